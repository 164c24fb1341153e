"""A transactional worker as a process of its own, so that it can be killed and stopped.

`python -m tests.chaos.cluster.txn_worker '{"kind": ..., ...}'`. A writer writes to several
partitions and commits or aborts; a chain reads a topic as the member of a group, and what it makes
of it and its offsets are one transaction. Both say in a file, line by line and before they do it,
what they ask for (`Initialised`, `Ending`, `Ended` of `history`). A value names its transaction,
how many values that has, and what is going to become of it: `run.number|total|what|more`.

A process is one producer: when it can do nothing more it ends with `GONE`, and whoever started it
starts another. SIGTERM ends it after its transaction.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from .history import Ended, Ending, Initialised
from .workload import IMPATIENT

GONE = 3
TRANSACTION_TIMEOUT_MS = 8_000
CALL_SECONDS_MAX = 15.0
GIVE_UP_SECONDS = 60.0
READ_MAX = 200
COMMIT, ABORT, CHAIN = "commit", "abort", "chain"


class Job(NamedTuple):
    """What a worker is told."""

    kind: str
    name: str
    servers: dict[str, str]
    source: str
    target: str
    partitions: int
    path: str


class Gone(Exception):
    """The producer can do nothing more."""


class Worker:
    """A producer with its transactional id, and the file it reports to."""

    def __init__(self, job: Job) -> None:
        self.job = job
        # In an hour the kernel gives the number of a process again.
        self.run = f"{job.name}@{os.getpid()}-{time.monotonic_ns():x}"
        self.number = 0
        self.chance = random.Random(self.run)
        self.stopping = False
        self._out = Path(job.path).open("a", buffering=1)  # noqa: SIM115  (for its whole life)
        signal.signal(signal.SIGTERM, self._stop)
        self.producer = Producer(
            {
                **job.servers,
                "transactional.id": job.name,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                # A message that is given up aborts its transaction: what is sent again counts once.
                "message.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "request.timeout.ms": 3_000,
                "linger.ms": 2,
                **IMPATIENT,
            }
        )

    def _stop(self, *_: object) -> None:
        self.stopping = True

    def say(self, event: Initialised | Ending | Ended) -> None:
        self._out.write(json.dumps([type(event).__name__, *event]) + "\n")

    @property
    def transaction(self) -> str:
        return f"{self.run}.{self.number}"

    def initialise(self) -> None:
        self._patiently(lambda: self.producer.init_transactions(CALL_SECONDS_MAX))
        self.say(Initialised(time.monotonic(), self.job.name, self.run))

    def begin(self) -> None:
        self.number += 1
        self.producer.begin_transaction()

    def end(self, commit: bool) -> bool:
        """Whether it was committed; aborted when that cannot be."""
        asked = Ending(time.monotonic(), self.job.name, self.run, self.transaction, commit)
        self.say(asked)
        how = self.producer.commit_transaction if commit else self.producer.abort_transaction
        try:
            self._patiently(lambda: how(CALL_SECONDS_MAX))
        except KafkaException as e:
            if not e.args[0].txn_requires_abort():
                raise Gone(str(e)) from e
            self._patiently(lambda: self.producer.abort_transaction(CALL_SECONDS_MAX))
            commit = False
        self.say(Ended(time.monotonic(), self.transaction, commit))
        return commit

    def _patiently(self, call: Any) -> None:
        """Try again what may be tried again."""
        give_up = time.monotonic() + GIVE_UP_SECONDS
        while True:
            try:
                call()
                return
            except KafkaException as e:
                error = e.args[0]
                if error.txn_requires_abort():
                    raise
                if not error.retriable() or time.monotonic() > give_up:
                    raise Gone(str(e)) from e

    def send(self, partition: int, value: str) -> None:
        while True:
            try:
                self.producer.produce(self.job.target, value, partition=partition)
                return
            except BufferError:
                self.producer.poll(0.05)


def write(worker: Worker) -> None:
    """Transactions over several partitions."""
    job, chance = worker.job, worker.chance
    while not worker.stopping:
        commit = chance.random() < 0.7
        total = chance.randint(1, 12)
        worker.begin()
        try:
            for number in range(total):
                value = f"{worker.transaction}|{total}|{COMMIT if commit else ABORT}|{number}"
                worker.send(chance.randrange(job.partitions), value)
            if chance.random() < 0.2:
                worker.producer.flush(CALL_SECONDS_MAX)
            time.sleep(chance.choice((0.0, 0.0, 0.05, 0.3)))
            worker.end(commit)
        except KafkaException as e:
            _abort(worker, e)


def chain(worker: Worker) -> None:
    """Consume, transform, produce."""
    job = worker.job
    consumer = Consumer(
        {
            **job.servers,
            "group.id": CHAIN,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 500,
            "fetch.wait.max.ms": 100,
            **IMPATIENT,
        }
    )
    consumer.subscribe([job.source])
    while not worker.stopping:
        messages = [m for m in consumer.consume(READ_MAX, timeout=0.2) if m.error() is None]
        if not messages:
            continue
        worker.begin()
        try:
            _transform(worker, consumer, messages)
            if worker.end(commit=True):
                continue
        except KafkaException as e:
            _abort(worker, e)
        _rewind(consumer)
    consumer.close()


def _transform(worker: Worker, consumer: Consumer, messages: list[Any]) -> None:
    after: dict[tuple[str, int], int] = {}
    for message in messages:
        partition, offset = message.partition(), message.offset()
        value = f"{worker.transaction}|{len(messages)}|{CHAIN}|{partition}@{offset}"
        worker.send(partition % worker.job.partitions, value)
        after[message.topic(), partition] = offset + 1
    offsets = [TopicPartition(*place, offset) for place, offset in after.items()]
    member = consumer.consumer_group_metadata()
    worker._patiently(
        lambda: worker.producer.send_offsets_to_transaction(offsets, member, CALL_SECONDS_MAX)
    )


def _abort(worker: Worker, error: KafkaException) -> None:
    if not error.args[0].txn_requires_abort():
        raise Gone(str(error)) from error
    worker.end(commit=False)


def _rewind(consumer: Consumer) -> None:
    """Go on from what the group has committed."""
    give_up = time.monotonic() + GIVE_UP_SECONDS
    while mine := consumer.assignment():
        try:
            for place in consumer.committed(mine, timeout=CALL_SECONDS_MAX):
                consumer.seek(TopicPartition(place.topic, place.partition, max(place.offset, 0)))
            return
        except KafkaException as e:
            if time.monotonic() > give_up:
                raise Gone(str(e)) from e


def main() -> int:
    worker = Worker(Job(**json.loads(sys.argv[1])))
    try:
        worker.initialise()
        {"writer": write, "chain": chain}[worker.job.kind](worker)
    except (Gone, KafkaException) as e:
        sys.stderr.write(f"{worker.run}: {e}\n")
        return GONE
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
