"""Idempotent producers of four client libraries that write at a steady rate and note every answer.

They keep their libraries' own patience (time-outs, pauses, how often metadata is asked for), so
that what is seen is what a user would see; only confluent-kafka never gives up a message, since
duplicates are counted (`NO_DUPLICATES`). Times are those of `time.time()`, which another process
can read too.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer
from kafka import KafkaProducer

from .helpers import NO_DUPLICATES, QUIET
from .reference import java_command

STOP_SECONDS_MAX = 60.0
JAVA = Path(__file__).resolve().parents[1] / "interop" / "java" / "Writer.java"


class Answer(NamedTuple):
    """One message that was acknowledged."""

    sent: float
    at: float
    partition: int
    offset: int
    value: str


class Writer:
    """Writes `w-0`, `w-1`, ... to all partitions in turn until it is stopped."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, per_second: int) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.partitions = partitions
        self.per_second = per_second
        self.answers: list[Answer] = []
        self.errors: list[str] = []
        self.stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends writing and waits for the answers that are due."""
        self.stopping.set()
        self._thread.join(STOP_SECONDS_MAX)
        assert not self._thread.is_alive(), f"{type(self).__name__} does not end"

    def _run(self) -> None:
        try:
            self.work()
        except Exception as error:
            self.errors.append(f"the writer ended with {error!r}")

    def work(self) -> None:
        raise NotImplementedError

    def answered(self, sent: float, partition: int, offset: int | None, value: str) -> None:
        place = -1 if offset is None else offset
        self.answers.append(Answer(sent, time.time(), partition, place, value))

    # Readings

    def latencies(self) -> list[float]:
        return [answer.at - answer.sent for answer in self.answers]

    def times(self) -> dict[int, list[float]]:
        """When answers came, by partition."""
        found: dict[int, list[float]] = defaultdict(list)
        for answer in self.answers:
            found[answer.partition].append(answer.at)
        return {partition: sorted(times) for partition, times in found.items()}

    def answers_since(self, moment: float) -> set[int]:
        """The partitions that took a message which was sent after a moment."""
        return {answer.partition for answer in self.answers[:] if answer.sent > moment}


class ConfluentWriter(Writer):
    def work(self) -> None:
        client = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "linger.ms": 2,
                **NO_DUPLICATES,
                **QUIET,
            }
        )
        number = 0
        while not self.stopping.wait(1 / self.per_second):
            self._send(client, number)
            number += 1
            client.poll(0)
        if left := client.flush(STOP_SECONDS_MAX / 2):
            self.errors.append(f"{left} messages were never answered")

    def _send(self, client: Producer, number: int) -> None:
        value, partition, sent = f"w-{number}", number % self.partitions, time.time()

        def answered(error: Any, message: Any) -> None:
            if error is None:
                self.answered(sent, partition, message.offset(), value)
            else:
                self.errors.append(str(error))

        client.produce(self.topic, value, partition=partition, on_delivery=answered)


class KafkaPythonWriter(Writer):
    def work(self) -> None:
        client = KafkaProducer(
            bootstrap_servers=self.bootstrap, enable_idempotence=True, linger_ms=2
        )
        number = 0
        while not self.stopping.wait(1 / self.per_second):
            value, partition = f"w-{number}", number % self.partitions
            future = client.send(self.topic, value.encode(), partition=partition)
            future.add_callback(self._done, time.time(), partition, value)
            future.add_errback(lambda error: self.errors.append(repr(error)))
            number += 1
        client.flush(STOP_SECONDS_MAX / 2)
        client.close()

    def _done(self, sent: float, partition: int, value: str, metadata: Any) -> None:
        self.answered(sent, partition, metadata.offset, value)


class AiokafkaWriter(Writer):
    def work(self) -> None:
        asyncio.run(self._write())

    async def _write(self) -> None:
        client = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap, enable_idempotence=True, linger_ms=2
        )
        await client.start()
        waiting: set[asyncio.Task[None]] = set()
        number = 0
        while not self.stopping.is_set():
            value, partition, sent = f"w-{number}", number % self.partitions, time.time()
            # One after the other, also while the client waits for room or metadata: among several
            # that wait it keeps no order.
            sending = await client.send(self.topic, value.encode(), partition=partition)
            task = asyncio.create_task(self._take(sending, sent, partition, value))
            waiting.add(task)
            task.add_done_callback(waiting.discard)
            number += 1
            await asyncio.sleep(1 / self.per_second)
        await asyncio.gather(*waiting)
        await client.stop()

    async def _take(
        self, sending: asyncio.Future[Any], sent: float, partition: int, value: str
    ) -> None:
        try:
            done = await sending
            self.answered(sent, partition, done.offset, value)
        except Exception as error:
            self.errors.append(repr(error))


class JavaWriter(Writer):
    def work(self) -> None:
        command = java_command(
            str(JAVA), self.bootstrap, self.topic, str(self.partitions), str(self.per_second)
        )
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            ender = threading.Thread(target=self._end, args=(process,), daemon=True)
            ender.start()
            for line in process.stdout:
                sent, at, partition, offset, value, error = json.loads(line)
                if error is None:
                    self.answers.append(Answer(sent, at, partition, offset, value))
                else:
                    self.errors.append(error)
        if process.returncode != 0:
            self.errors.append(f"the JVM ended with {process.returncode}")

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        self.stopping.wait()
        assert process.stdin is not None
        process.stdin.write(b"end\n")
        process.stdin.flush()


WRITERS: dict[str, type[Writer]] = {
    "confluent-kafka": ConfluentWriter,
    "kafka-python": KafkaPythonWriter,
    "aiokafka": AiokafkaWriter,
    "java": JavaWriter,
}
