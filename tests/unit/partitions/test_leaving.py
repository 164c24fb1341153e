"""Replicas of a deleted topic: not found any more, closed and deleted in turns if they are many."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from penstock.base.errors import ErrorCode
from penstock.net import turn
from penstock.partitions.replica_manager import LEAVES_AT_ONCE_MAX
from support.calls import RawTopic
from unit.net.served import run
from unit.serving.rig import Rig, running, until, waiting_reads

MANY = 4 * LEAVES_AT_ONCE_MAX


@pytest.fixture(autouse=True)
def _short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn, "TURN_NS_MAX", -1)


def stored(folder: Path) -> list[str]:
    """The partitions of the topic that still have their folders."""
    return [n for n in os.listdir(folder) if n.startswith("t-") and "delete" not in n]


def hold(rig: Rig) -> Callable[[], None]:
    """Nothing more leaves than leaves at once, until what is returned is called."""
    replication = rig.broker.replication
    assert replication is not None
    go_on = replication.on_to_leave
    replication.on_to_leave = lambda: None  # type: ignore[method-assign]
    return go_on


async def opened(rig: Rig, partitions: int) -> RawTopic:
    topic = await rig.topic("t", partitions)
    for index in range(partitions):
        rig.partition(topic, index)
    return topic


def test_they_leave_one_after_the_other(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            await opened(rig, MANY)
            assert len(stored(tmp_path)) == MANY
            await rig.delete_topic("t")
            assert rig.broker.replicas.opened("t", MANY - 1) is None
            left = [len(stored(tmp_path))]
            assert 0 < left[0] < MANY
            while left[-1]:
                await asyncio.sleep(0)
                left.append(len(stored(tmp_path)))
            assert max(before - after for before, after in pairwise(left)) == 1

    run(test)


def test_few_leave_at_once(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            await opened(rig, LEAVES_AT_ONCE_MAX)
            await rig.delete_topic("t")
            assert stored(tmp_path) == []

    run(test)


def test_who_waits_for_one_of_them_is_told(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            topic, peer = await opened(rig, MANY), await rig.peer()
            last = rig.partition(topic, MANY - 1)
            waits = asyncio.create_task(
                peer.fetch(topic, partition=MANY - 1, max_wait_ms=30_000, version=12)
            )
            await until(lambda: waiting_reads(last))
            await rig.delete_topic("t")
            assert (await waits).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(test)


def test_a_topic_of_the_same_name_begins_empty(tmp_path: Path) -> None:
    """Whether its predecessor's replicas have left by then or not."""

    async def test() -> None:
        async with running(tmp_path) as rig:
            peer, go_on = await rig.peer(), hold(rig)
            for _ in range(3):
                topic = await rig.topic("t", MANY)
                for index in range(MANY):
                    assert rig.partition(topic, index).log.log_end_offset == 0
                for index in (0, MANY // 2, MANY - 1):
                    assert (await peer.produce(topic, partition=index)).error_code == 0
                await rig.delete_topic("t")
            topic = await rig.topic("t", MANY)
            assert len(stored(tmp_path)) > 0
            last = rig.partition(topic, MANY - 1)
            assert last.log.log_end_offset == 0
            assert (await peer.produce(topic, partition=MANY - 1)).error_code == 0
            go_on()
            await until(lambda: len(stored(tmp_path)) == 1)
            assert last.log.log_end_offset == 1
            assert rig.partition(topic, MANY - 1) is last

    run(test)


def test_a_topic_that_was_never_used_goes_while_its_predecessor_does(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            await opened(rig, MANY)
            go_on = hold(rig)
            await rig.delete_topic("t")
            await rig.topic("t", MANY)
            await rig.delete_topic("t")
            assert stored(tmp_path)
            go_on()
            await until(lambda: not stored(tmp_path))
            assert not rig.broker.replicas._leaving

    run(test)


def test_a_node_that_stops_lets_them_go_first(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            await opened(rig, MANY)
            await rig.delete_topic("t")
            assert stored(tmp_path)
            await rig.stop()
            assert stored(tmp_path) == []
        async with running(tmp_path) as rig:
            assert "t" not in rig.broker.metadata.topics

    run(test)
