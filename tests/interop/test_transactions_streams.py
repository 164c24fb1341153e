"""Kafka Streams with `exactly_once_v2` on a cluster: words are counted once, over two kills."""

from __future__ import annotations

import itertools
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from support.cluster import Cluster
from support.helpers import consumer, produce_all, producer
from support.reference import java_command
from support.transactions import SETTINGS, newest_features
from support.waiting import CALL_SECONDS_MAX, eventually

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]

SOURCE = Path(__file__).parent / "java" / "WordCount.java"
WORDS = 7
WORDS_EACH = 20  # of one send
KILLED_AT = (150, 400)


class Application:
    """The word count as a process that can be killed and started again."""

    def __init__(self, cluster: Cluster, root: Path) -> None:
        self._command = java_command(
            str(SOURCE), cluster.bootstrap, "words", "source", "sink", str(root / "state")
        )
        self._said = root / "application.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._said.open("ab") as said:
            self.process = subprocess.Popen(self._command, stdout=said, stderr=said)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(CALL_SECONDS_MAX)

    def check(self) -> None:
        assert self.process is not None
        assert self.process.poll() is None, self._said.read_text()[-3000:]


@pytest.fixture
def cluster(target: str, tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(3, tmp_path / "cluster", SETTINGS, kind=target) as made:
        newest_features(made.nodes[1])
        made.make_topic("source", 2)
        made.make_topic("sink")
        yield made


@pytest.fixture
def application(cluster: Cluster, tmp_path: Path) -> Iterator[Application]:
    made = Application(cluster, tmp_path)
    yield made
    made.kill()


def test_words_are_counted_once(cluster: Cluster, application: Application) -> None:
    sender = producer(cluster.nodes[1])
    numbers = itertools.count()
    sent: Counter[str] = Counter()
    counts: dict[str, list[int]] = defaultdict(list)
    reader = consumer(cluster.nodes[1], isolation_level="read_committed")
    reader.assign([TopicPartition("sink", 0, 0)])

    def send() -> None:
        batch = [next(numbers) for _ in range(WORDS_EACH)]
        words = [f"word-{number % WORDS}" for number in batch]
        produce_all(
            sender,
            "source",
            [{"value": w, "partition": n % 2} for n, w in zip(batch, words, strict=True)],
        )
        sent.update(words)

    def counted(least: int) -> bool:
        application.check()
        for message in reader.consume(100, timeout=0.02):
            assert message.error() is None, message.error()
            key, value = message.key(), message.value()
            assert key is not None
            assert value is not None
            counts[key.decode()].append(int(value))
        return sum(len(found) for found in counts.values()) >= least

    def busy(least: int) -> bool:
        if sent.total() < least + 5 * WORDS_EACH:  # there is always work under way
            send()
        return counted(least)

    for least in KILLED_AT:
        application.start()
        eventually(lambda least=least: busy(least), 2 * CALL_SECONDS_MAX, every=0)
        application.kill()
    application.start()
    eventually(lambda: counted(sent.total()), 2 * CALL_SECONDS_MAX, every=0)
    reader.close()
    assert counts == {word: list(range(1, sent[word] + 1)) for word in sent}
