"""Transactions by three Python clients: what is committed is read, and nothing else.

Each client writes and reads; `--target kafka` shows that each expectation is Kafka's own. Where a
reader has to see the end of what there is, a message from a plain producer follows (`end_all`).
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from support.calls import find_topic, list_offset
from support.helpers import TopicMaker, make_topic, produce_all, producer
from support.process import BrokerProcess
from support.raw import RawClient
from support.transactional import CLIENTS, Client, Got, Reader, Where, Writer, library, read_until
from support.transactions import SETTINGS, await_end, newest_features
from support.waiting import eventually

pytestmark = pytest.mark.timeout(300)

END = b"END "
NO_OFFSET = -1001  # librdkafka's word for "nothing was committed"
TIMEOUT_MS = 1000  # the least that librdkafka takes
SMALL_SEGMENTS = {"segment.bytes": str(1 << 20)}  # the least that Kafka allows
_numbers = itertools.count(1)


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    with library(request.param) as made:
        yield made


@pytest.fixture
def name() -> str:
    """A transactional id that no other test uses."""
    return f"id-{os.getpid()}-{next(_numbers)}"


class Bench:
    """Writers and readers of one client on the broker; all are closed at the end."""

    def __init__(self, client: Client, broker: BrokerProcess) -> None:
        self.client = client
        self.broker = broker
        self._open = contextlib.ExitStack()

    def writer(self, name: str, timeout_ms: int = 60_000) -> Writer:
        made = self.client.writer(self.broker, name, timeout_ms)
        self._open.callback(made.close)
        return made

    def reader(self, start: dict[Where, int], *, committed: bool = True) -> Reader:
        made = self.client.reader(self.broker, start, committed=committed)
        self._open.callback(made.close)
        return made

    def member(self, topic: str, group: str) -> Reader:
        made = self.client.member(self.broker, topic, group)
        self._open.callback(made.close)
        return made

    def read(self, *wheres: Where, committed: bool = True, start: int = 0) -> list[Got]:
        """Everything in these partitions; each of them gets its END first."""
        end = end_all(self.broker, *wheres)
        reader = self.reader(dict.fromkeys(wheres, start), committed=committed)
        seen = read_until(reader, end, len(wheres))
        return [got for got in seen if not got.value.startswith(END)]

    def values(self, *wheres: Where, committed: bool = True) -> list[str]:
        return sorted(got.value.decode() for got in self.read(*wheres, committed=committed))

    def refuses(self, call: Callable[[], Any]) -> None:
        """The call says that another has taken over."""
        with pytest.raises(self.client.errors) as refused:
            call()
        assert self.client.is_fenced(refused.value), repr(refused.value)

    def close(self) -> None:
        self._open.close()


@pytest.fixture
def bench(client: Client, txn_node: BrokerProcess) -> Iterator[Bench]:
    made = Bench(client, txn_node)
    yield made
    made.close()


def end_all(broker: BrokerProcess, *wheres: Where) -> bytes:
    """A message at the end of each partition, which is like no other."""
    sender = producer(broker)
    end = END + str(next(_numbers)).encode()
    for topic, partition in wheres:
        produce_all(sender, topic, [{"key": END, "value": end, "partition": partition}])
    return end


def take_until(reader: Reader, seen: list[Got], count: int) -> None:
    """Reads into `seen` until it has this many."""

    def enough() -> bool:
        seen.extend(reader.poll())
        return len(seen) >= count

    eventually(enough, every=0)


def stable_end(broker: BrokerProcess, topic: str, partition: int = 0) -> int:
    """The last stable offset."""
    with RawClient(broker.host, broker.port) as raw:
        found = list_offset(raw, find_topic(raw, topic), -1, partition=partition, isolation_level=1)
    assert found.error_code == 0
    return int(found.offset)


def over(broker: BrokerProcess, name: str) -> str:
    """The state of a transaction that is not being ended."""
    with RawClient(broker.host, broker.port) as raw:
        return str(await_end(raw, name).transaction_state)


def write(writer: Writer, wheres: list[Where], label: str, *, commit: bool | None) -> None:
    """One transaction with two messages for each partition; None leaves it open."""
    writer.begin()
    for number, (topic, partition) in itertools.product(range(2), wheres):
        writer.send(topic, f"{label} {topic}/{partition} {number}", partition)
    if commit is None:
        writer.flush()
    else:
        writer.commit() if commit else writer.abort()


def written(wheres: list[Where], *labels: str) -> list[str]:
    """The values that `write` sends."""
    return sorted(
        f"{label} {topic}/{partition} {number}"
        for label in labels
        for number, (topic, partition) in itertools.product(range(2), wheres)
    )


def test_commits_and_aborts_over_topics_and_partitions(
    bench: Bench, txn_topic: TopicMaker, name: str
) -> None:
    one, two = txn_topic(partitions=2), txn_topic()
    wheres = [(one, 0), (one, 1), (two, 0)]
    writer = bench.writer(name)
    for label, commit in (("a", True), ("b", False), ("c", True), ("d", False), ("e", True)):
        write(writer, wheres, label, commit=commit)
    assert bench.values(*wheres) == written(wheres, "a", "c", "e")
    # librdkafka aborts what it has not sent yet without sending it.
    seen = set(bench.values(*wheres, committed=False))
    assert set(written(wheres, *"ace")) <= seen <= set(written(wheres, *"abcde"))


def test_an_open_transaction_holds_readers_back(
    bench: Bench, txn_node: BrokerProcess, txn_topic: TopicMaker, name: str
) -> None:
    topic = txn_topic()
    here = [(topic, 0)]
    writer = bench.writer(name)
    write(writer, here, "before", commit=True)
    careful, careless = (
        bench.reader({(topic, 0): 0}),
        bench.reader({(topic, 0): 0}, committed=False),
    )
    write(writer, here, "open", commit=None)
    end = end_all(txn_node, (topic, 0))
    assert stable_end(txn_node, topic) == 3  # two messages and a marker
    assert [got.offset for got in read_until(careless, end)] == [0, 1, 3, 4]
    seen: list[Got] = []
    take_until(careful, seen, 2)
    assert careful.poll() == []
    writer.abort()
    assert read_until(careful, end) == []
    assert sorted(got.value.decode() for got in seen) == written(here, "before")
    eventually(lambda: stable_end(txn_node, topic) == 7)


def test_offsets_in_the_transaction(
    bench: Bench, txn_node: BrokerProcess, txn_topic: TopicMaker, name: str
) -> None:
    source, sink = txn_topic(), txn_topic()
    produce_all(producer(txn_node), source, [{"value": f"v{i}"} for i in range(10)])
    writer = bench.writer(name)

    def work(expected: int, *, commit: bool) -> int:
        """A member's life: it copies what it reads, up to the end; the offset it left."""
        member = bench.client.member(txn_node, source, name)
        try:
            seen: list[Got] = []
            take_until(member, seen, expected)
            writer.begin()
            for got in seen:
                writer.send(sink, got.value.decode())
            writer.send_offsets(member)
            writer.commit() if commit else writer.abort()
            over(txn_node, name)
            return member.committed(source, 0)
        finally:
            member.close()

    assert work(10, commit=False) in (NO_OFFSET, -1)
    assert work(10, commit=True) == 10
    produce_all(producer(txn_node), source, [{"value": "w"}])
    assert work(1, commit=True) == 11
    assert bench.values((sink, 0)) == [*(f"v{i}" for i in range(10)), "w"]


def test_a_zombie_is_fenced(bench: Bench, txn_topic: TopicMaker, name: str) -> None:
    topic = txn_topic()
    here = [(topic, 0)]
    zombie = bench.writer(name)
    write(zombie, here, "first", commit=True)
    write(zombie, here, "zombie", commit=None)
    successor = bench.writer(name)  # ends what was open
    write(successor, here, "second", commit=True)

    def goes_on() -> None:
        zombie.send(topic, "late")
        zombie.commit()

    bench.refuses(goes_on)
    write(successor, here, "third", commit=True)
    assert bench.values((topic, 0)) == written(here, "first", "second", "third")


def test_a_transaction_that_takes_too_long(
    bench: Bench, txn_node: BrokerProcess, txn_topic: TopicMaker, name: str
) -> None:
    topic = txn_topic()
    here = [(topic, 0)]
    slow = bench.writer(name, TIMEOUT_MS)
    write(slow, here, "slow", commit=None)
    eventually(lambda: over(txn_node, name) == "CompleteAbort")
    bench.refuses(slow.commit)
    write(bench.writer(name), here, "next", commit=True)
    assert bench.values((topic, 0)) == written(here, "next")


def test_what_a_crash_left_open_is_ended(
    bench: Bench, txn_node: BrokerProcess, txn_topic: TopicMaker, name: str
) -> None:
    topic = txn_topic(partitions=2)
    wheres = [(topic, 0), (topic, 1)]
    write(bench.writer(name), wheres, "lost", commit=None)
    assert over(txn_node, name) == "Ongoing"
    assert stable_end(txn_node, topic) == 0
    heir = bench.writer(name)
    assert over(txn_node, name) in ("CompleteAbort", "Empty")
    eventually(lambda: [stable_end(txn_node, *where) for where in wheres] == [3, 3])
    write(heir, wheres, "kept", commit=True)
    assert bench.values(*wheres) == written(wheres, "kept")


def test_nothing_in_a_transaction(bench: Bench, txn_topic: TopicMaker, name: str) -> None:
    topic = txn_topic()
    writer = bench.writer(name)
    for commit in (True, False, True):
        writer.begin()
        writer.commit() if commit else writer.abort()
        write(writer, [(topic, 0)], f"{commit}", commit=True)
    assert bench.values((topic, 0)) == sorted(
        [*written([(topic, 0)], "True", "False"), *written([(topic, 0)], "True")]
    )


def test_transactions_larger_than_segments(
    bench: Bench, txn_node: BrokerProcess, txn_topic: TopicMaker, name: str
) -> None:
    """Two that are interleaved, one of which is aborted, and every reader's way through them."""
    topic = txn_topic(config=SMALL_SEGMENTS)
    pad = "x" * 20_000
    kept, dropped = bench.writer(f"{name}-kept"), bench.writer(f"{name}-dropped")
    for writer in (kept, dropped):
        writer.begin()
    for part in range(6):
        for label, writer in (("kept", kept), ("dropped", dropped)):
            for number in range(20):
                writer.send(topic, f"{label} {part * 20 + number} {pad}")
            writer.flush()
    dropped.abort()
    kept.commit()
    logs = list(txn_node.partition_dir(topic).glob("*.log"))
    assert len(logs) > 3, f"only {len(logs)} segments"

    everything = bench.read((topic, 0), committed=False)
    assert len(everything) == 240
    seen = bench.read((topic, 0))
    assert [got.value.split()[:2] for got in seen] == [[b"kept", b"%d" % i] for i in range(120)]
    # In the middle of the aborted one, and of a segment.
    middle = everything[130].offset
    later = [got for got in seen if got.offset >= middle]
    assert 0 < len(later) < 120
    assert bench.read((topic, 0), start=middle) == later


def test_a_reader_that_begins_within_an_aborted_transaction(
    bench: Bench, txn_topic: TopicMaker, name: str
) -> None:
    topic = txn_topic()
    aborted, other = bench.writer(f"{name}-a"), bench.writer(f"{name}-b")
    aborted.begin()
    for number in range(4):
        aborted.send(topic, f"aborted {number}")
        aborted.flush()
        write(other, [(topic, 0)], f"{number}", commit=True)
    aborted.abort()
    write(aborted, [(topic, 0)], "last", commit=True)
    everything = bench.read((topic, 0))
    assert len(everything) == 10
    assert not [got for got in everything if b"aborted" in got.value]
    for start in range(0, everything[-1].offset, 3):
        later = [got for got in everything if got.offset >= start]
        assert bench.read((topic, 0), start=start) == later


def test_many_producers_at_once(bench: Bench, txn_topic: TopicMaker, name: str) -> None:
    topic = txn_topic(partitions=3)
    wheres = [(topic, p) for p in range(3)]

    def work(number: int) -> list[str]:
        writer = bench.writer(f"{name}-{number}")
        kept = []
        for step in range(6):
            label, commit = f"{number}.{step}", (number + step) % 3 != 0
            write(writer, wheres, label, commit=commit)
            kept += [label] if commit else []
        return kept

    with ThreadPoolExecutor(8) as pool:
        kept = list(itertools.chain.from_iterable(pool.map(work, range(8))))
    assert bench.values(*wheres) == written(wheres, *kept)


def test_a_transaction_over_a_crash_of_the_broker(
    client: Client, fresh_node: Callable[..., BrokerProcess], name: str
) -> None:
    """Killed and started again, the broker knows what was open, and its client goes on with it."""
    broker = fresh_node(settings=SETTINGS)
    newest_features(broker)
    topic = make_topic(broker, name, 2)
    wheres = [(topic, 0), (topic, 1)]
    bench = Bench(client, broker)
    writer, other = bench.writer(name), bench.writer(f"{name}-other")
    write(writer, wheres, "before", commit=True)
    write(writer, wheres, "over", commit=None)
    write(other, wheres, "lost", commit=None)
    over(broker, name)
    broker.kill()
    broker.start()
    assert stable_end(broker, topic) == 3
    assert over(broker, name) == "Ongoing"
    writer.commit()
    write(writer, wheres, "after", commit=True)
    write(bench.writer(f"{name}-other"), wheres, "heir", commit=True)
    assert bench.values(*wheres) == written(wheres, "before", "over", "after", "heir")
    bench.close()


# A compacted topic, made once and read by all


@pytest.fixture(scope="module")
def compacted(shared_txn_node: BrokerProcess) -> tuple[str, dict[str, str]]:
    """A topic whose cleaner has been at work on committed and aborted data; what must be read."""
    config = {
        **SMALL_SEGMENTS,
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "0",
    }
    broker = shared_txn_node
    topic = make_topic(broker, f"compacted-{os.getpid()}", 1, config)
    left: dict[str, str] = {}
    with library("confluent") as client:
        writer = client.writer(broker, topic)
        pad = "x" * 2000
        for step in range(60):
            commit = step % 3 != 1
            writer.begin()
            for key in range(20):
                writer.send(topic, f"{step} {commit} {pad}", key=f"k{(step + key) % 30}")
            writer.flush()
            writer.commit() if commit else writer.abort()
            if commit:
                left |= {f"k{(step + key) % 30}": f"{step} {commit} {pad}" for key in range(20)}

        def cleaned() -> bool:
            reader = client.reader(broker, {(topic, 0): 0}, committed=False)
            try:
                first: list[Got] = []
                take_until(reader, first, 1)
                return first[0].offset > 400
            finally:
                reader.close()

        eventually(cleaned)
        writer.close()
    return topic, left


def test_a_compacted_topic(bench: Bench, compacted: tuple[str, dict[str, str]]) -> None:
    topic, left = compacted
    seen = bench.read((topic, 0))
    assert not [got for got in seen if got.value.split()[1] != b"True"], "aborted data was read"
    assert {got.key.decode(): got.value.decode() for got in seen if got.key} == left
    assert len(seen) < 40 * 20, "nothing was compacted"
