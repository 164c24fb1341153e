"""What compaction does on the event loop is done in turns."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock.log.cleaner_client import Cleaner
from penstock.net import turn
from unit.net.served import run
from unit.serving.rig import running

PARTITIONS = 20


def test_logs_are_looked_at_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn, "TURN_NS_MAX", 0)

    async def test() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic(cleanup_policy="compact", partitions=PARTITIONS)
            peer = await rig.peer()
            for partition in range(PARTITIONS):
                await peer.produce(topic, partition=partition, records=None)
            compaction = rig.node._compaction
            assert compaction is not None
            looked, look = 0, compaction._candidate

            def counted(*args: Any) -> Any:
                nonlocal looked
                looked += 1
                return look(*args)

            monkeypatch.setattr(compaction, "_candidate", counted)
            task = asyncio.create_task(compaction._clean_next(Cleaner()))
            most = 0
            while not task.done():
                before = looked
                await asyncio.sleep(0)
                most = max(most, looked - before)
            assert not await task
            assert looked >= PARTITIONS
            assert most == 1

    run(test)
