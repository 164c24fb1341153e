"""Parts of the simulator that a run rests on: its folder, and how it reads logs."""

from __future__ import annotations

import asyncio
import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from unit.serving.rig import running

from . import cluster
from .checks import Violation
from .observer import committed_batches


def test_runs_of_one_seed_have_a_folder_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "MEMORY_DISK", str(tmp_path))
    (one, first), (other, second) = cluster._take_folder(7), cluster._take_folder(7)
    assert one != other
    os.close(first)
    os.close(second)


@pytest.mark.parametrize("again", [False, True], ids=["nobody", "a third run"])
def test_a_lock_that_was_removed_meanwhile_counts_for_nothing(
    again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run ends after this one has opened its lock, and perhaps a third takes its place."""
    path, flock = tmp_path / "lock", fcntl.flock

    def removed_first(fd: int, how: int) -> Any:
        path.unlink()
        if again:
            path.touch()
        return flock(fd, how)

    monkeypatch.setattr(cluster.fcntl, "flock", removed_first)
    assert cluster._locked(str(path)) is None


def test_a_log_that_lacks_what_is_committed_is_found(tmp_path: Path) -> None:
    """To read on for ever would be no finding."""

    async def run() -> None:
        async with running(tmp_path) as rig:
            peer, topic = await rig.peer(), await rig.topic()
            assert not (await peer.produce(topic)).error_code
            partition = rig.partition(topic)
            whole = partition.log.size_bytes
            assert not (await peer.produce(topic)).error_code  # the last batch is in memory, too
            assert partition.high_watermark == 2
            [segment] = tmp_path.rglob("t-0/*.log")
            os.truncate(segment, whole - 1)
            with pytest.raises(Violation, match="nothing at offset 0"):
                list(committed_batches(partition))

    asyncio.run(run())
