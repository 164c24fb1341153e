"""What lies inside a batch, checked record by record.

Kafka always does that. Penstock does it for compressed batches, and for all where
`penstock.record.validation` is `full`; otherwise it trusts the checksum and the header of an
uncompressed batch, since the work of a broker is by the batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import cramjam
import pytest

from penstock.base.errors import ErrorCode
from support.batches import Rec, batch, heads, record
from support.calls import RawTopic, fetch, find_topic, list_offset, produce
from support.helpers import TopicMaker
from support.process import BrokerProcess
from support.raw import RawClient

GZIP, ZSTD = 1, 4
REFUSALS = {
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.INVALID_RECORD,
    ErrorCode.UNKNOWN_SERVER_ERROR,  # where Kafka fails by accident
}


@pytest.fixture(scope="module")
def strict_node(
    target: str,
    tmp_path_factory: pytest.TempPathFactory,
    broker_maker: Callable[[Path], BrokerProcess],
) -> Iterator[BrokerProcess]:
    broker = broker_maker(tmp_path_factory.mktemp("strict"))
    if target == "penstock":
        broker.settings["penstock.record.validation"] = "full"
    with broker:
        yield broker


@pytest.fixture
def raw(strict_node: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(strict_node.host, strict_node.port) as client:
        yield client


@pytest.fixture
def make(
    strict_node: BrokerProcess, raw: RawClient, topic_name: Callable[[], str]
) -> Callable[..., RawTopic]:
    maker = TopicMaker(strict_node, topic_name)
    return lambda **settings: find_topic(raw, maker(**settings))


def packed(count: int, codec: int, **fields: int) -> bytes:
    """A compressed batch that claims `count` records and holds two."""
    inside = b"".join(record(Rec(b"v"), i, Rec().timestamp) for i in range(2))
    pack = cramjam.gzip.compress if codec == GZIP else cramjam.zstd.compress
    counts = {"count": count, "last_offset_delta": count - 1}
    return batch([b"v"] * 2, payload=bytes(pack(inside)), attributes=codec, **(counts | fields))


BAD = {
    "garbage said to be gzip": batch([b"x"], payload=b"\xff" * 40, attributes=GZIP),
    "garbage said to be zstd": batch([b"x"], payload=b"\xff" * 40, attributes=ZSTD),
    "gzip, too many counted": packed(3, GZIP),
    "gzip, too few counted": packed(1, GZIP),
    "zstd, too many counted": packed(300, ZSTD),
    "zstd, too few counted": packed(1, ZSTD),
    "many plain, too many counted": batch([b"x"] * 50, count=51, last_offset_delta=50),
    "many plain, too few counted": batch([b"x"] * 50, count=49, last_offset_delta=48),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_insides_are_refused(raw: RawClient, make: Callable[..., RawTopic], case: str) -> None:
    known = make()
    answer = produce(raw, known, BAD[case])
    assert ErrorCode(answer.error_code) in REFUSALS
    assert list_offset(raw, known, -1).offset == 0


def test_a_right_compressed_batch_is_taken(raw: RawClient, make: Callable[..., RawTopic]) -> None:
    known = make()
    for codec in (GZIP, ZSTD):
        assert produce(raw, known, packed(2, codec)).error_code == 0
    assert list_offset(raw, known, -1).offset == 4


def test_one_timestamp_outside_the_window(raw: RawClient, make: Callable[..., RawTopic]) -> None:
    window = {"message.timestamp.before.max.ms": "60000", "message.timestamp.after.max.ms": "60000"}
    known = make(config=window)
    now = int(time.time() * 1000)
    mixed = batch([Rec(timestamp=now), Rec(timestamp=now - 120_000), Rec(timestamp=now)])
    answer = produce(raw, known, mixed)
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [entry.batch_index for entry in answer.record_errors] == [1]
    assert answer.error_message


def test_a_wrong_max_timestamp_is_put_right(raw: RawClient, make: Callable[..., RawTopic]) -> None:
    known = make()
    assert produce(raw, known, batch([Rec(timestamp=900)], max_timestamp=100)).error_code == 0
    [head] = heads(fetch(raw, known, 0).records)
    assert head.max_timestamp == 900


def test_a_compacted_topic_wants_keys(raw: RawClient, make: Callable[..., RawTopic]) -> None:
    known = make(config={"cleanup.policy": "compact"})
    mixed = batch([Rec(key=b"k"), Rec(key=None), Rec(key=b"k")])
    assert produce(raw, known, mixed).error_code == ErrorCode.INVALID_RECORD
    assert produce(raw, known, batch([Rec(key=b"k")])).base_offset == 0
