"""ListOffsets by time: nobody else waits for it, and what has changed meanwhile is told."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.api import list_offsets
from penstock.base.errors import ErrorCode
from penstock.log import record_times
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock.wire.records import Compression, Record, build_batch
from support.calls import RawTopic
from unit.net.served import run
from unit.serving.rig import Peer, running, until

BOMB_BYTES = 64 * 1024 * 1024
OTHERS_SECONDS_MAX = 0.2
"""Of the machine as a whole, busy with other tests; on the loop the bomb takes a second."""


def request(topic: RawTopic, timestamp: int, partitions: int = 1) -> ListOffsetsRequest:
    wanted = [
        ListOffsetsPartition(partition_index=i, timestamp=timestamp) for i in range(partitions)
    ]
    return ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=topic.name, partitions=wanted)]
    )


def bomb() -> bytes:
    records = [Record(0, 1_000, None, bytes(BOMB_BYTES)), Record(0, 2_000, None, b"v")]
    return build_batch(records, compression=Compression.GZIP)


async def asked(peer: Peer, what: ListOffsetsRequest) -> list[tuple[int, int]]:
    """(error code, offset) of each partition."""
    answer = await peer.call(what, 7)
    return [(p.error_code, p.offset) for t in answer.topics for p in t.partitions]


def test_others_do_not_wait_for_a_look_up_in_a_bomb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    monkeypatch.setattr(
        record_times, "decompressed_body", noting(record_times.decompressed_body, threads)
    )

    async def test() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic()
            peer, other = await rig.peer(), await rig.peer()
            assert (await peer.produce(topic, bomb())).error_code == 0
            search = asyncio.create_task(asked(peer, request(topic, 1_500)))
            waits = []
            while not search.done():
                begun = time.monotonic()
                assert (await other.produce(topic)).error_code == 0
                waits.append(time.monotonic() - begun)
            assert await search == [(0, 1)]
            assert threads
            assert threading.get_ident() not in threads
            assert len(waits) > 1
            assert sorted(waits)[-2] < OTHERS_SECONDS_MAX

    run(test)


def noting(unpack: Callable[..., bytes], threads: list[int]) -> Callable[..., bytes]:
    def noted(*args: Any, **how: Any) -> bytes:
        threads.append(threading.get_ident())
        return unpack(*args, **how)

    return noted


def test_a_partition_that_is_deleted_meanwhile_has_no_offset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go = threading.Event(), threading.Event()
    unpack = record_times.decompressed_body

    def held(*args: Any, **how: Any) -> bytes:
        begun.set()
        assert go.wait(20.0)
        return unpack(*args, **how)

    monkeypatch.setattr(record_times, "decompressed_body", held)

    async def test() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic()
            peer = await rig.peer()
            records = [Record(0, 1_000, None, b"v")]
            await peer.produce(topic, build_batch(records, compression=Compression.GZIP))
            search = asyncio.create_task(asked(peer, request(topic, 500)))
            await until(begun.is_set)
            await rig.delete_topic(topic.name)
            go.set()
            assert await search == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]

    run(test)


@pytest.mark.parametrize("timestamp", [list_offsets.LATEST, 0])
def test_many_partitions_are_answered_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, timestamp: int
) -> None:
    monkeypatch.setattr(list_offsets, "PARTITIONS_PER_TURN", 3)

    async def test() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic(partitions=10)
            peer = await rig.peer()
            for partition in (2, 7):
                await peer.produce(topic, partition=partition)
            found = await asked(peer, request(topic, timestamp, partitions=11))
            nothing = 0 if timestamp == list_offsets.LATEST else -1
            something = 1 if timestamp == list_offsets.LATEST else 0
            expected = [(0, something if i in (2, 7) else nothing) for i in range(10)]
            assert found == [*expected, (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]

    run(test)
