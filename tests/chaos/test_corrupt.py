"""Stored bytes that have gone bad are found on read or on recovery, and never served as good."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.base.errors import ErrorCode
from support.batches import HEADER, Head, batch, heads
from support.calls import RawTopic, fetch, find_topic, list_offset, produce
from support.helpers import make_topic
from support.node import NodeProcess
from support.raw import RawClient

BATCHES = 60
VALUE_BYTES = 1000

NodeMaker = Callable[..., NodeProcess]


def filled(client: RawClient, topic: RawTopic, partition: int = 0) -> None:
    for i in range(BATCHES):
        data = batch([f"{i:04}".encode() + b"x" * VALUE_BYTES])
        assert produce(client, topic, data, partition=partition).error_code == 0


def position_of(log: Path, offset: int) -> int:
    """Where the batch with this base offset begins."""
    data, at = log.read_bytes(), 0
    while True:
        head = Head(*HEADER.unpack_from(data, at))
        if head.base_offset == offset:
            return at
        at += 12 + head.length


def flip(log: Path, position: int) -> None:
    with log.open("r+b") as file:
        file.seek(position)
        [old] = file.read(1)
        file.seek(position)
        file.write(bytes([old ^ 0x40]))


def segment(node: NodeProcess, topic: str, partition: int = 0) -> Path:
    return node.partition_dir(topic, partition) / f"{0:020}.log"


@pytest.mark.penstock_only  # Kafka sends what lies there and leaves the check to the client
@pytest.mark.parametrize("place", ["value", "checksum", "length", "attributes"])
def test_a_flipped_byte_is_not_served(fresh_node: NodeMaker, place: str) -> None:
    node = fresh_node()
    name = make_topic(node, "bad", 2)
    bad = BATCHES // 2
    with RawClient(node.host, node.port) as client:
        known = find_topic(client, name)
        for partition in range(2):
            filled(client, known, partition)
        log = segment(node, name)
        within = {"value": 500, "checksum": 18, "length": 10, "attributes": 22}[place]
        flip(log, position_of(log, bad) + within)

        answer = fetch(client, known, bad)
        assert answer.error_code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.KAFKA_STORAGE_ERROR)
        assert not answer.records
        assert node.metric("penstock_log_corrupt_reads_total") >= 1
        assert name in node.log_tail()

        # From the start: the good ones before it may come, the bad one may not.
        answer = fetch(client, known, 0)
        assert all(head.last_offset < bad for head in heads(answer.records))
        whole = fetch(client, known, 0, partition=1)
        assert len(heads(whole.records)) == BATCHES
        assert produce(client, known, batch([b"new"]), partition=1).error_code == 0
    node.kill()


def test_a_torn_tail_is_cut(fresh_node: NodeMaker) -> None:
    """What a crash leaves half-written behind the last good batch."""
    node = fresh_node()
    name = make_topic(node, "torn", 3)
    whole = batch([b"never acknowledged" * 50], base_offset=BATCHES)
    tails = (whole[: len(whole) // 2], b"\x00" * 5000, whole[:-1] + b"?")
    with RawClient(node.host, node.port) as client:
        known = find_topic(client, name)
        for partition in range(3):
            filled(client, known, partition)
    node.kill()
    for partition, tail in enumerate(tails):
        with segment(node, name, partition).open("ab") as log:
            log.write(tail)
    node.start()
    with RawClient(node.host, node.port) as client:
        for partition in range(3):
            assert list_offset(client, known, -1, partition=partition).offset == BATCHES
            added = produce(client, known, batch([b"new"]), partition=partition)
            assert (added.error_code, added.base_offset) == (0, BATCHES)
            found = fetch(client, known, 0, partition=partition, partition_max_bytes=1 << 22)
            assert [head.base_offset for head in heads(found.records)] == list(range(BATCHES + 1))
    node.stop()


def test_lost_indexes_are_rebuilt(fresh_node: NodeMaker) -> None:
    node = fresh_node()
    name = make_topic(node, "unindexed")
    with RawClient(node.host, node.port) as client:
        known = find_topic(client, name)
        filled(client, known)
    node.kill()
    for suffix in ("index", "timeindex"):
        (node.partition_dir(name) / f"{0:020}.{suffix}").unlink(missing_ok=True)
    node.start()
    with RawClient(node.host, node.port) as client:
        [first, *_] = heads(fetch(client, known, BATCHES - 1).records)
        assert first.base_offset == BATCHES - 1
        assert list_offset(client, known, 1_700_000_000_000).offset == 0
    node.stop()
