"""Look-ups by time: what runs beside the loop, and what happens to the log meanwhile."""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import crc32c
import pytest

from penstock.base.errors import CorruptRecord
from penstock.log import record_times as record_times_module
from penstock.log.limits import LOOKUPS_AT_ONCE_MAX
from penstock.log.record_times import record_times
from penstock.log.time_lookup import MAX_TIMESTAMP, Allowance, TimeLookups
from penstock.wire.records import Compression, Record, build_batch, parse_header, read_records
from support.lookups import looked_up
from unit.net.served import run
from unit.serving.rig import until

MAX_TIMESTAMP_AT, CRC_AT, CRC_FROM = 35, 17, 21


class Unpacking:
    """Holds up whoever unpacks a batch, and notes in which threads that was."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.threads: list[int] = []
        self.now = self.most = 0

    def wrap(self, unpack: Callable[..., memoryview]) -> Callable[..., memoryview]:
        def held(*args: Any, **how: Any) -> memoryview:
            self.threads.append(threading.get_ident())
            self.now += 1
            self.most = max(self.most, self.now)
            assert self.go.wait(20.0)
            self.now -= 1
            return unpack(*args, **how)

        return held


@pytest.fixture
def unpacking(monkeypatch: pytest.MonkeyPatch) -> Iterator[Unpacking]:
    held = Unpacking()
    real = record_times_module.unpack
    monkeypatch.setattr(record_times_module, "unpack", held.wrap(real))
    yield held
    held.go.set()


def put(box: Any, batch: bytes) -> None:
    """Append a batch as it is."""
    box.log.append_as_follower(box.log.log_end_offset.to_bytes(8, "big") + batch[8:], 0)


def packed(box: Any, *times: int) -> None:
    records = [Record(0, time, None, b"x") for time in times]
    put(box, build_batch(records, compression=Compression.GZIP))


def test_a_compressed_batch_is_unpacked_beside_the_loop(box: Any, unpacking: Unpacking) -> None:
    packed(box, 10, 20, 30)

    async def test() -> None:
        task = asyncio.create_task(TimeLookups().find(box.log, 15, Allowance()))
        await until(lambda: unpacking.threads)
        assert threading.get_ident() not in unpacking.threads
        unpacking.go.set()
        assert (await task)[:2] == (20, 1)

    run(test)


def test_a_short_look_up_needs_no_thread(box: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for time in range(100):
        box.append(timestamp=time)

    async def test() -> None:
        lookups, allowance = TimeLookups(), Allowance()
        monkeypatch.setattr(lookups, "_run_beside", None)
        found = await lookups.find(box.log, 60, allowance)
        assert found is not None
        assert found[:2] == (60, 60)
        assert 0 < allowance.left_bytes < Allowance().left_bytes

    run(test)


@pytest.mark.parametrize("wanted", [99, MAX_TIMESTAMP])
def test_many_headers_are_read_beside_the_loop(box: Any, wanted: int) -> None:
    for time in range(100):
        box.append(timestamp=time)
    box.log.delete_records(1)
    threads: list[int] = []

    async def test() -> None:
        lookups = TimeLookups()
        beside = lookups._run_beside

        async def noted(walk: Any) -> None:
            threads.append(1)
            await beside(walk)

        lookups._run_beside = noted  # type: ignore[method-assign]
        found = await lookups.find(box.log, wanted, Allowance(1_000))
        assert found is not None
        assert found[:2] == (99, 99)

    run(test)
    assert threads


def test_no_more_than_a_few_run_at_once(box: Any, unpacking: Unpacking) -> None:
    packed(box, 10, 20, 30)

    async def test() -> None:
        lookups = TimeLookups()
        tasks = [asyncio.create_task(lookups.find(box.log, 15, Allowance())) for _ in range(8)]
        await until(lambda: unpacking.now == LOOKUPS_AT_ONCE_MAX)
        unpacking.go.set()
        assert {(await task)[:2] for task in tasks} == {(20, 1)}

    run(test)
    assert unpacking.most == LOOKUPS_AT_ONCE_MAX


def cut(log: Any) -> None:
    log.truncate_to(0)


def trim(log: Any) -> None:
    log.delete_records(3)


@pytest.mark.parametrize("change", [cut, trim])
def test_what_is_gone_meanwhile_is_not_found(
    box: Any, unpacking: Unpacking, change: Callable[[Any], None]
) -> None:
    packed(box, 10, 20, 30)
    packed(box, 11, 21, 31)

    async def test() -> None:
        task = asyncio.create_task(TimeLookups().find(box.log, 15, Allowance()))
        await until(lambda: unpacking.threads)
        change(box.log)
        if change is cut:
            box.append(timestamp=70)
        unpacking.go.set()
        assert (await task)[:2] == ((70, 0) if change is cut else (21, 4))

    run(test)


def test_a_batch_that_claims_a_time_which_it_does_not_have_is_passed_over(box: Any) -> None:
    for times in ((10, 11), (20, 21)):
        lying = bytearray(
            build_batch([Record(0, t, None, b"x") for t in times], compression=Compression.GZIP)
        )
        struct.pack_into(">q", lying, MAX_TIMESTAMP_AT, 99)
        struct.pack_into(">I", lying, CRC_AT, crc32c.crc32c(bytes(lying[CRC_FROM:])))
        put(box, bytes(lying))
    packed(box, 60)
    assert looked_up(box.log, 50)[:2] == (60, 4)


def test_the_walk_tells_what_reading_tells() -> None:
    records = [
        Record(0, 1_000 + 300 * i, b"k" * (i % 3 * 90), b"v" * i * 7, (("h", b"w"),) * (i % 2))
        for i in range(1_200)
    ]
    batch = build_batch(records, base_offset=77, compression=Compression.ZSTD)
    pauses: list[None] = []
    walked = list(record_times(batch, parse_header(batch), lambda: pauses.append(None)))
    assert walked == [(r.timestamp, r.offset) for r in read_records(batch)]
    assert len(pauses) == 3


@pytest.mark.parametrize("at", range(12))
def test_bytes_that_are_no_records_are_refused(at: int) -> None:
    batch = bytearray(build_batch([Record(0, 5, None, b"v"), Record(0, 6, None, b"v")]))
    batch[61 + at] = 0xFF
    whole = bytes(batch)
    try:
        found = list(record_times(whole, parse_header(whole), lambda: None))
    except CorruptRecord:
        return
    assert [offset for _, offset in found] == [0, 1], "only a time or an attribute has changed"
