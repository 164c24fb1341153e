"""The append service by itself: requests in, results out, no node, socket or clock that runs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from penstock.base.errors import ApiError, ErrorCode
from penstock.base.results import PartitionAnswer
from penstock.metadata.image import MetadataImage
from penstock.partitions.partition import Partition
from penstock.serving.append import AppendRequest, AppendResult, AppendService
from penstock.serving.rights import Rights
from penstock.wire.compression import Compression
from penstock.wire.records import Record, build_batch
from support.batches import batch
from unit.partitions.test_partition_alone import NODE, OTHER, Alone, alone, end_of_turn

pytestmark = pytest.mark.uncompiled  # which looks at the types of what stands for others
USER = "User:test"


class Replicas:
    """One partition, `t-0`."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition

    def leader_of(self, topic: str, index: int) -> Partition:
        if (topic, index) != ("t", 0):
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition")
        return self._partition


class NoHints:
    def leader(self, *_: Any) -> None:
        return None


class Verification:
    """Of no transaction."""

    async def stop(self) -> None:
        """There is nothing to give up."""


class Source:
    def __init__(self) -> None:
        self.seen: list[str] = []

    def hold(self, size: int) -> None:
        self.seen.append(f"hold {size}")

    def release(self) -> None:
        self.seen.append("release")


class Publisher:
    """Hands requests to the service, and keeps what comes back."""

    def __init__(self, it: Alone) -> None:
        made = (it.turns, NoHints(), it.clock, Verification(), Rights(MetadataImage()))
        parts: tuple[Any, ...] = (Replicas(it.partition), *made)
        self.service = AppendService(*parts)
        self.results: list[AppendResult] = []
        self.source = Source()

    def append(self, records: bytes, acks: int = -1, topic: str = "t", **how: Any) -> AppendRequest:
        wanted: Any = [(topic, [(0, memoryview(records))])]
        request = AppendRequest(USER, how.get("source", self.source), acks, 30_000, wanted, None)
        self.service.append(request, self.results.append)
        return request

    @property
    def answers(self) -> list[PartitionAnswer]:
        return [answer for r in self.results for _, found in r.topics for answer in found]


@contextmanager
def publishing(root: Path, *replicas: int) -> Iterator[tuple[Alone, Publisher]]:
    with alone(root, *replicas) as it:
        publisher = Publisher(it)
        try:
            yield it, publisher
        finally:
            publisher.service._unpackers.shutdown()


def test_a_lone_source_is_answered_at_once(tmp_path: Path) -> None:
    async def test() -> None:
        with publishing(tmp_path, NODE) as (it, publisher):
            publisher.append(batch([b"a", b"b"]))
            publisher.append(batch([b"c"]))
            assert [(a.error_code, a.base_offset) for a in publisher.answers] == [(0, 0), (0, 2)]
            assert it.partition.high_watermark == 3

    asyncio.run(test())


def test_several_sources_share_a_write(tmp_path: Path) -> None:
    async def test() -> None:
        with publishing(tmp_path, NODE) as (_, publisher):
            for number in range(3):
                publisher.append(batch([b"%d" % number]), source=Source())
            assert len(publisher.results) < 3
            await end_of_turn()
            assert [a.base_offset for a in publisher.answers] == [0, 1, 2]

    asyncio.run(test())


def test_the_result_waits_for_what_its_acks_ask(tmp_path: Path) -> None:
    async def test() -> None:
        with publishing(tmp_path, NODE, OTHER) as (it, publisher):
            request = publisher.append(batch([b"a"]))
            assert not publisher.results
            assert request.topics == []  # their memory is the door's again
            publisher.append(batch([b"b"]), acks=1)
            await end_of_turn()
            assert [a.base_offset for a in publisher.answers] == [1]
            it.partition.follower_fetched(OTHER, 2, 0, 1)
            assert [a.base_offset for a in publisher.answers] == [1, 0]
            assert publisher.results[1].waits_since_ns

    asyncio.run(test())


@pytest.mark.parametrize(
    ("records", "acks", "topic", "code"),
    [
        (batch([b"a"]), 2, "t", ErrorCode.INVALID_REQUIRED_ACKS),
        (batch([b"a"]), -1, "missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (batch([b"a"])[:-1], -1, "t", ErrorCode.CORRUPT_MESSAGE),
        (b"", -1, "t", ErrorCode.INVALID_RECORD),
    ],
)
def test_what_is_refused_is_answered_at_once(
    tmp_path: Path, records: bytes, acks: int, topic: str, code: ErrorCode
) -> None:
    async def test() -> None:
        with publishing(tmp_path, NODE) as (it, publisher):
            publisher.append(records, acks, topic)
            assert [a.error_code for a in publisher.answers] == [code]
            assert publisher.results[0].failed
            assert it.partition.log.log_end_offset == 0

    asyncio.run(test())


def large_batch(it: Alone) -> bytes:
    """So large that a worker unpacks it."""
    values = [bytes([number]) * 100_000 for number in range(3)]
    records = [Record(i, it.clock.now_ms(), None, v) for i, v in enumerate(values)]
    return build_batch(records, compression=Compression.ZSTD)


def test_a_source_is_held_while_its_batch_is_unpacked(tmp_path: Path) -> None:
    async def test() -> None:
        with publishing(tmp_path, NODE) as (it, publisher):
            large = large_batch(it)
            publisher.append(large)
            assert publisher.source.seen == [f"hold {len(large)}"]
            publisher.append(batch([b"of another"]), source=Source())
            async with asyncio.timeout(10):
                while len(publisher.results) < 2:
                    await asyncio.sleep(0.001)
            assert publisher.source.seen == [f"hold {len(large)}", "release"]
            assert sorted(a.base_offset for a in publisher.answers) == [0, 1]
            assert cast("int", it.partition.log.log_end_offset) == 4

    asyncio.run(test())


def test_what_is_being_unpacked_when_the_service_stops_is_written_and_answered(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        with publishing(tmp_path, NODE) as (it, publisher):
            publisher.append(large_batch(it))
            await publisher.service.stop()
            assert [answer.error_code for answer in publisher.answers] == [0]
            assert it.partition.log.log_end_offset == 3
            assert publisher.source.seen[-1] == "release"

    asyncio.run(test())
