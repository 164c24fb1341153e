"""Parts of the simulator that a run rests on: its folder, how it reads logs, who changes rights."""

from __future__ import annotations

import asyncio
import fcntl
import os
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.wire.messages.create_acls import CreateAclsRequest
from penstock.wire.messages.delete_acls import DeleteAclsRequest
from penstock.wire.schema import Message
from unit.serving.rig import running, until

from . import cluster
from .checks import Violation
from .locked import Guest
from .observer import committed_batches
from .paths import Paths


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


def test_rights_are_not_followed_while_others_change_them() -> None:
    """A change that is still under way would undo the one that is waited for."""
    asked: list[Message] = []

    async def run() -> None:
        loop, answer = asyncio.get_running_loop(), asyncio.Event()

        async def as_operator(request: Message) -> bool:
            asked.append(request)
            await answer.wait()
            return True

        guest = Guest(SimpleNamespace(bootstrap=()), Paths(), Random(1), "t", as_operator)  # type: ignore[arg-type]
        going = loop.create_task(guest.run())
        await until(lambda: asked)
        guest.stopping = True
        following = loop.create_task(guest.follows(False, loop.time() + 20, loop.time))
        for _ in range(10):
            await asyncio.sleep(0)
        assert [type(request) for request in asked] == [CreateAclsRequest]
        answer.set()
        await asyncio.wait_for(asyncio.gather(going, following), 20)
        assert [type(request) for request in asked] == [CreateAclsRequest, DeleteAclsRequest]

    asyncio.run(run())
