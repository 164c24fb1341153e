"""Consumers that keep up get what was just written as it lies in the page cache, unread."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from support.batches import batch, heads
from support.raw import Closed
from support.regions import Regions, grow_old
from unit.net.served import run
from unit.serving.rig import Peer, running

BATCH_BYTES = 200_000
HUGE = 32 * 1024 * 1024
"""More than a socket takes at once."""


@pytest.fixture
def regions(monkeypatch: pytest.MonkeyPatch) -> Regions:
    return Regions(monkeypatch)


async def filled(peer: Peer, topic: Any, count: int) -> list[bytes]:
    """Batches of random bytes, and what of them a log holds unchanged."""
    made = [batch([os.urandom(BATCH_BYTES)]) for _ in range(count)]
    for data in made:
        assert (await peer.produce(topic, data)).error_code == 0
    return [data[16:] for data in made]


def bodies(records: bytes) -> list[bytes]:
    """The batches, each without what the broker writes into its head."""
    view, found = bytes(records), []
    while view:
        end = 12 + int.from_bytes(view[8:12], "big")
        found.append(view[16:end])
        view = view[end:]
    return found


def test_what_is_fresh_is_sent_unread_and_what_is_older_is_read(
    tmp_path: Path, regions: Regions
) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            topic, peer = await rig.topic(), await rig.peer()
            made = await filled(peer, topic, 8)
            unread = (await peer.fetch(topic, 1)).records
            assert bodies(unread) == made[1 : 1 + len(heads(unread))]
            assert len(heads(unread)) > 3
            assert regions.made == 1
            grow_old(rig.partition(topic).log)
            assert bodies((await peer.fetch(topic, 1)).records) == bodies(unread)
            assert regions.made == 1
            # Whoever asks for the same shortly after that need not read it again.
            assert bodies((await peer.fetch(topic, 1)).records) == bodies(unread)
            assert regions.made == 2

    run(test)


def test_damage_is_found_once_it_is_no_longer_fresh(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            topic, peer = await rig.topic(), await rig.peer()
            await filled(peer, topic, 3)
            fd = os.open(tmp_path / "t-0" / f"{0:020d}.log", os.O_RDWR)
            os.pwrite(fd, b"damage", BATCH_BYTES // 2)
            os.close(fd)
            grow_old(rig.partition(topic).log)
            assert (await peer.fetch(topic)).error_code == ErrorCode.CORRUPT_MESSAGE

    run(test)


def test_a_slow_reader_gets_all_of_it_and_holds_nobody_up(tmp_path: Path, regions: Regions) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            topic, peer, slow = await rig.topic(), await rig.peer(), await rig.peer()
            made = await filled(peer, topic, HUGE // BATCH_BYTES)
            slow._writer.transport.pause_reading()  # type: ignore[attr-defined]
            asked = asyncio.create_task(
                slow.fetch(topic, 0, partition_max_bytes=HUGE, max_bytes=HUGE)
            )
            await asyncio.sleep(0.1)
            assert bodies((await peer.fetch(topic, 5)).records)[0] == made[5]
            slow._writer.transport.resume_reading()  # type: ignore[attr-defined]
            came = bodies((await asked).records)
            assert came == made[: len(came)]
            assert len(came) > len(made) // 2
            assert regions.made == 2

    run(test)


def test_a_file_that_is_cut_off_under_a_slow_reader_ends_its_connection_only(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            topic, peer, slow = await rig.topic(), await rig.peer(), await rig.peer()
            await filled(peer, topic, HUGE // BATCH_BYTES)
            slow._writer.transport.pause_reading()  # type: ignore[attr-defined]
            asked = asyncio.create_task(
                slow.fetch(topic, 0, partition_max_bytes=HUGE, max_bytes=HUGE)
            )
            await asyncio.sleep(0.1)
            os.truncate(tmp_path / "t-0" / f"{0:020d}.log", 10 * BATCH_BYTES)
            slow._writer.transport.resume_reading()  # type: ignore[attr-defined]
            with pytest.raises(Closed):
                await asked
            assert (await peer.fetch(topic, 0, partition_max_bytes=1)).error_code == 0

    run(test)
