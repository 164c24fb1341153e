"""Kafka Streams' word count as a process, words to count, and what it must have counted."""

from __future__ import annotations

import itertools
import subprocess
from collections import Counter, defaultdict
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, TopicPartition

from .cluster import Cluster
from .helpers import consumer, produce_all, producer
from .reference import java_command
from .waiting import CALL_SECONDS_MAX, eventually

PROGRAM: Final = Path(__file__).resolve().parents[1] / "interop" / "java" / "WordCount.java"
APPLICATION: Final = "words"
SOURCE: Final = "source"
PARTITIONS: Final = 2
SINK: Final = "sink"
WORDS: Final = 7
WORDS_EACH: Final = 20
"""Of one send."""
STREAMS: Final = "streams"


class WordCount:
    """A process of the application, which can be killed and started again."""

    def __init__(
        self, cluster: Cluster, root: Path, name: str = "state", protocol: str | None = None
    ) -> None:
        """Without a protocol its members speak the classic one."""
        self._command = java_command(
            str(PROGRAM),
            cluster.bootstrap,
            APPLICATION,
            SOURCE,
            SINK,
            str(root / name),
            *([] if protocol is None else [protocol]),
        )
        self._said = root / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._said.open("ab") as said:
            self.process = subprocess.Popen(self._command, stdout=said, stderr=said)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(CALL_SECONDS_MAX)

    def end(self) -> None:
        """Its members leave their group."""
        assert self.process is not None
        self.process.terminate()
        self.process.wait(CALL_SECONDS_MAX)

    def check(self) -> None:
        assert self.process is not None
        assert self.process.poll() is None, self._said.read_text()[-3000:]


class Words:
    """Sends words and reads the counts; each word has to be counted once."""

    @staticmethod
    def make_topics(cluster: Cluster) -> None:
        cluster.make_topic(SOURCE, PARTITIONS)
        cluster.make_topic(SINK)

    def __init__(self, cluster: Cluster) -> None:
        first = cluster.nodes[min(cluster.nodes)]
        self._sender = producer(first)
        self._numbers = itertools.count()
        self._sent: Counter[str] = Counter()
        self._counts: dict[str, list[int]] = defaultdict(list)
        self._reader: Consumer = consumer(first, isolation_level="read_committed")
        self._reader.assign([TopicPartition(SINK, 0, 0)])

    def until(self, least: int, *running: WordCount) -> None:
        """Until so many words were counted; there is always work under way."""

        def busy() -> bool:
            if self._sent.total() < least + 5 * WORDS_EACH:
                self._send()
            return self._counted(least, running)

        eventually(busy, 2 * CALL_SECONDS_MAX, every=0)

    def all_counted(self, *running: WordCount) -> None:
        sent = self._sent.total()
        eventually(lambda: self._counted(sent, running), 2 * CALL_SECONDS_MAX, every=0)

    @property
    def total(self) -> int:
        """How many counts were read."""
        return sum(len(found) for found in self._counts.values())

    def check(self) -> None:
        self._reader.close()
        assert self._counts == {w: list(range(1, n + 1)) for w, n in self._sent.items()}

    def _send(self) -> None:
        batch = list(itertools.islice(self._numbers, WORDS_EACH))
        words = [f"word-{number % WORDS}" for number in batch]
        produce_all(
            self._sender,
            SOURCE,
            [
                {"value": word, "partition": number % PARTITIONS}
                for number, word in zip(batch, words, strict=True)
            ],
        )
        self._sent.update(words)

    def _counted(self, least: int, running: tuple[WordCount, ...]) -> bool:
        for application in running:
            application.check()
        for message in self._reader.consume(100, timeout=0.02):
            assert message.error() is None, message.error()
            key, value = message.key(), message.value()
            assert key is not None
            assert value is not None
            self._counts[key.decode()].append(int(value))
        return self.total >= least
