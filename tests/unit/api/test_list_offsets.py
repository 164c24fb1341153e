"""ListOffsets by time: nobody else waits for it, and what has changed meanwhile is told."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from penstock.api import list_offsets
from penstock.base.errors import ErrorCode
from penstock.log import record_times
from penstock.net import turn
from penstock.serving import offsets
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock.wire.records import Compression, Record, build_batch
from support.calls import RawTopic
from unit.net.served import run
from unit.serving.rig import Peer, running, until

HELD_SECONDS_MAX = 10.0


def request(topic: RawTopic, timestamp: int, partitions: int = 1) -> ListOffsetsRequest:
    wanted = [
        ListOffsetsPartition(partition_index=i, timestamp=timestamp) for i in range(partitions)
    ]
    return ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=topic.name, partitions=wanted)]
    )


async def asked(peer: Peer, what: ListOffsetsRequest) -> list[tuple[int, int]]:
    """(error code, offset) of each partition."""
    answer = await peer.call(what, 7)
    return [(p.error_code, p.offset) for t in answer.topics for p in t.partitions]


class Unpacking:
    """Holds up who unpacks a batch to look for a record."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.go = threading.Event(), threading.Event()
        self._unpack = record_times.unpack
        monkeypatch.setattr(record_times, "unpack", self)

    def __call__(self, *args: Any, **how: Any) -> memoryview:
        self.begun.set()
        assert self.go.wait(HELD_SECONDS_MAX)
        return self._unpack(*args, **how)


def packed() -> bytes:
    records = [Record(0, 1_000, None, b"v"), Record(0, 2_000, None, b"v")]
    return build_batch(records, compression=Compression.GZIP)


def test_others_are_served_while_a_batch_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpacking = Unpacking(monkeypatch)

    async def test() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic()
            peer, other = await rig.peer(), await rig.peer()
            assert (await peer.produce(topic, packed())).error_code == 0
            search = asyncio.create_task(asked(peer, request(topic, 1_500)))
            await until(unpacking.begun.is_set)
            assert (await other.produce(topic)).error_code == 0
            assert not search.done()
            unpacking.go.set()
            assert await search == [(0, 1)]

    run(test)


def test_a_partition_that_is_deleted_meanwhile_has_no_offset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpacking = Unpacking(monkeypatch)

    async def test() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic()
            peer = await rig.peer()
            await peer.produce(topic, packed())
            search = asyncio.create_task(asked(peer, request(topic, 500)))
            await until(unpacking.begun.is_set)
            await rig.delete_topic(topic.name)
            unpacking.go.set()
            assert await search == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]

    run(test)


@pytest.mark.parametrize("timestamp", [offsets.LATEST, 0])
def test_many_partitions_are_answered_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, timestamp: int
) -> None:
    monkeypatch.setattr(list_offsets, "LOGS_AT_ONCE_MAX", 3)
    monkeypatch.setattr(turn, "TURN_NS_MAX", 0)

    async def test() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic(partitions=10)
            peer = await rig.peer()
            for partition in (2, 7):
                await peer.produce(topic, partition=partition)
            found = await asked(peer, request(topic, timestamp, partitions=11))
            nothing = 0 if timestamp == offsets.LATEST else -1
            something = 1 if timestamp == offsets.LATEST else 0
            expected = [(0, something if i in (2, 7) else nothing) for i in range(10)]
            assert found == [*expected, (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]

    run(test)
