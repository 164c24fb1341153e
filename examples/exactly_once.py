"""Exactly once: consume, transform, produce, with the offsets in the transaction.

    python examples/exactly_once.py [HOST:PORT]
    python examples/exactly_once.py HOST:PORT work INPUT OUTPUT GROUP NAME

The second form is a worker: it turns the payments in INPUT into receipts in OUTPUT. What it writes
and how far it has read are committed together, in one transaction, or not at all. So it may be
killed at any moment: the next process of that NAME, or another member of the GROUP, goes on from
the last commit, and whoever reads the receipts with `isolation.level=read_committed` sees each one
exactly once. Stop it with Ctrl-C or SIGTERM.

The first form shows that: it publishes payments, runs two workers, kills them with SIGKILL again
and again, and compares what came out with what went in.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections import defaultdict
from collections.abc import Callable

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

BOOTSTRAP = sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"
TRANSACTION_MESSAGES, TRANSACTION_SECONDS = 100, 0.1
WORKERS, PARTITIONS, ACCOUNTS, PAYMENTS, KILLS = 2, 4, 10, 2_000, 4


class Worker:
    """One member of the group, one transactional id: both have the worker's name."""

    def __init__(self, source: str, target: str, group: str, name: str) -> None:
        self.target = target
        self.is_open = False
        self.begun = 0.0
        self.count = 0
        self.next_offsets: dict[tuple[str, int], int] = {}
        self.producer = Producer(
            {
                "bootstrap.servers": BOOTSTRAP,
                "transactional.id": name,
                "transaction.timeout.ms": 10_000,
            }
        )
        # Aborts what a former process of this name has left open, and fences that process.
        retrying(self.producer.init_transactions)
        self.consumer = Consumer(
            {
                "bootstrap.servers": BOOTSTRAP,
                "group.id": group,
                "group.instance.id": name,  # a new process of this name takes its place at once
                "session.timeout.ms": 6_000,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,  # the offsets go into the transaction
                "isolation.level": "read_committed",
            }
        )
        # Called inside poll(): what is done is committed before its partitions go to another.
        self.consumer.subscribe(
            [source], on_revoke=lambda *_: self.commit(), on_lost=lambda *_: self.abort()
        )

    def run(self, go_on: Callable[[], bool]) -> None:
        while go_on():
            message = self.consumer.poll(0.02)
            if message is not None and message.error() is None:
                self.take(message)
            elif message is not None and message.error().code() == KafkaError._FATAL:
                raise KafkaException(message.error())
            is_due = time.monotonic() - self.begun >= TRANSACTION_SECONDS
            if self.is_open and (self.count >= TRANSACTION_MESSAGES or is_due):
                self.commit()
        self.commit()
        self.consumer.close()

    def take(self, message) -> None:
        """One payment becomes one receipt, in the open transaction."""
        if not self.is_open:
            self.producer.begin_transaction()
            self.is_open, self.begun, self.count = True, time.monotonic(), 0
        try:
            receipt = b"receipt for " + message.value()
            self.producer.produce(self.target, receipt, message.key())
        except KafkaException as e:
            if e.args[0].fatal():
                raise
            self.abort()  # an earlier message could not be delivered
            return
        self.producer.poll(0)
        self.count += 1
        self.next_offsets[message.topic(), message.partition()] = message.offset() + 1

    def commit(self) -> None:
        """Receipts and offsets become visible together."""
        if not self.is_open:
            return
        offsets = [TopicPartition(t, p, offset) for (t, p), offset in self.next_offsets.items()]
        try:
            # The metadata names member and generation: offsets of one who has lost its
            # partitions are refused.
            metadata = self.consumer.consumer_group_metadata()
            retrying(self.producer.send_offsets_to_transaction, offsets, metadata)
            retrying(self.producer.commit_transaction)
        except KafkaException as e:
            if not e.args[0].txn_requires_abort():
                raise  # fatal: another process has this transactional id
            self.abort()
        self.is_open = False
        self.next_offsets.clear()

    def abort(self) -> None:
        """Nothing of the open transaction counts; its payments are read again."""
        if not self.is_open:
            return
        retrying(self.producer.abort_transaction)
        self.is_open = False
        self.next_offsets.clear()
        for place in retrying(self.consumer.committed, self.consumer.assignment()):
            if place.offset < 0:
                place.offset = OFFSET_BEGINNING
            with contextlib.suppress(KafkaException):  # it is being taken away: not ours to seek
                self.consumer.seek(place)


def retrying(call, *arguments):
    """The result of a call that is repeated while its error is a passing one."""
    while True:
        try:
            return call(*arguments)
        except KafkaException as e:
            if not e.args[0].retriable():
                raise


def work(source: str, target: str, group: str, name: str) -> None:
    stop_asked = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop_asked.append(True))
    try:
        Worker(source, target, group, name).run(lambda: not stop_asked)
    except KafkaException as e:
        reason = f"{name} gives up, since another has taken its place or its work: {e.args[0]}"
        print(reason, file=sys.stderr, flush=True)
        os._exit(1)  # there is nothing to hand over: do not wait for a group that has gone on


def start(source: str, target: str, group: str, name: str) -> subprocess.Popen:
    arguments = [sys.executable, __file__, BOOTSTRAP, "work", source, target, group, name]
    return subprocess.Popen(arguments)


def receipts(target: str) -> list[tuple[bytes, bytes]]:
    """Key and value of every committed receipt, in the order of its partition."""
    reader = Consumer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "group.id": "unused",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    reader.assign([TopicPartition(target, p, OFFSET_BEGINNING) for p in range(PARTITIONS)])
    found, ended = [], set()
    while len(ended) < PARTITIONS:
        message = reader.poll(1)
        if message is None:
            continue
        if message.error() is None:
            found.append((message.key(), message.value()))
        elif message.error().name() == "_PARTITION_EOF":
            ended.add(message.partition())
    reader.close()
    return found


def main() -> None:
    name = uuid.uuid4().hex[:8]
    source, target, group = f"payments-{name}", f"receipts-{name}", f"cashiers-{name}"
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
    topics = [NewTopic(topic, PARTITIONS, 1) for topic in (source, target)]
    for made in admin.create_topics(topics).values():
        made.result()
    names = [f"cashier-{i}-{name}" for i in range(1, WORKERS + 1)]
    workers = {name: start(source, target, group, name) for name in names}

    producer = Producer({"bootstrap.servers": BOOTSTRAP, "enable.idempotence": True})
    for i in range(PAYMENTS):
        producer.produce(source, f"payment {i}", f"account {i % ACCOUNTS}")
        if i % 100 == 0:
            producer.flush()
            time.sleep(0.2)  # so that there is work while workers die
        if i % (PAYMENTS // KILLS) == PAYMENTS // KILLS // 2:
            victim = random.choice(names)
            workers[victim].kill()
            workers[victim].wait()
            workers[victim] = start(source, target, group, victim)
    producer.flush()

    while len(receipts(target)) < PAYMENTS:
        time.sleep(0.2)
    for worker in workers.values():
        worker.terminate()
    for worker in workers.values():
        worker.wait()

    by_account = defaultdict(list)
    for key, value in receipts(target):
        by_account[key.decode()].append(value.decode())
    wanted = defaultdict(list)
    for i in range(PAYMENTS):
        wanted[f"account {i % ACCOUNTS}"].append(f"receipt for payment {i}")
    count = sum(len(of_account) for of_account in by_account.values())
    print(f"{PAYMENTS} payments, {count} receipts, {KILLS} kills")
    print("each exactly once, in order" if by_account == wanted else "THIS IS NOT EXACTLY ONCE")
    for deleted in admin.delete_topics([source, target]).values():
        deleted.result()


if __name__ == "__main__":
    if sys.argv[2:3] == ["work"]:
        work(*sys.argv[3:7])
    else:
        main()
