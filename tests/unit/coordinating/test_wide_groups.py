"""Groups with very many partitions: others run while a commit is made ready, offsets are fetched,
or a regular expression is matched.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock.api.offset_fetch import PART_PARTITIONS_MAX
from penstock.base.errors import ErrorCode
from penstock.base.steps import Steps, at_once
from penstock.coordinating import group_coordinator
from penstock.coordinating.group_coordinator import OFFSETS_AT_ONCE_MAX
from penstock.coordinator.commits import OFFSETS_PER_STEP
from penstock.coordinator.consumer import engine
from penstock.net import turn
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from unit.coordinating.test_group_coordinator import (
    FEW,
    driver_of,
    find,
    offsets_partition,
    settled,
)
from unit.net.served import run
from unit.serving.rig import Peer, Rig, running, until

MANY = 10 * OFFSETS_AT_ONCE_MAX


@pytest.fixture(autouse=True)
def _short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn, "TURN_NS_MAX", -1)


def commit(partitions: int, offset: int = 1, **fields: Any) -> OffsetCommitRequest:
    wanted = [
        OffsetCommitRequestPartition(partition_index=i, committed_offset=offset)
        for i in range(partitions)
    ]
    topic = OffsetCommitRequestTopic(name="t", partitions=wanted)
    return OffsetCommitRequest(group_id="g", topics=[topic], **fields)


class Held:
    """Stops the coordinator's work in turns after its first step, until `go` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go = asyncio.Event()
        monkeypatch.setattr(group_coordinator, "in_turns", self)

    async def __call__(self, steps: Steps[Any]) -> Any:
        next(steps)
        await self.go.wait()
        return at_once(steps)


def codes(answer: Any) -> set[int]:
    return {p.error_code for topic in answer.topics for p in topic.partitions}


async def prepared(rig: Rig, partitions: int = MANY) -> Peer:
    """A node with topic `t` and a coordinator for group `g`."""
    peer = await rig.peer()
    await rig.topic("t", partitions)
    await find(peer, "g")
    await settled(peer, "g")
    return peer


async def turns_of(peer: Peer, request: Any, version: int) -> tuple[int, Any]:
    """How many turns of the loop there were before the request was answered."""
    peer.deliver(request, version)
    turns = 0
    while peer.inside.pending:
        await asyncio.sleep(0)
        turns += 1
    return turns, await peer.receive()


def test_many_offsets_are_made_ready_in_turns_and_stored_at_once(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer = await prepared(rig)
            log = offsets_partition(rig, "g").log
            before = log.log_end_offset
            peer.deliver(commit(MANY), 9)
            ends = []
            while peer.inside.pending:
                await asyncio.sleep(0)
                ends.append(log.log_end_offset)
            assert ends.index(before + MANY) >= MANY / OFFSETS_PER_STEP
            assert set(ends) == {before, before + MANY}
            assert codes(await peer.receive()) == {0}
            stored = driver_of(rig, "g").shard.offsets.of_group("g")
            assert [found.partition for found in stored] == list(range(MANY))

    run(test)


def test_a_topic_that_goes_while_its_offsets_are_made_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer, held = await prepared(rig), Held(monkeypatch)
            peer.deliver(commit(MANY), 9)
            await rig.delete_topic("t")
            assert peer.inside.pending
            held.go.set()
            assert codes(await peer.receive()) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
            assert driver_of(rig, "g").shard.offsets.of_group("g") == []

    run(test)


def test_the_group_is_asked_when_the_offsets_are_ready(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer = await prepared(rig)
            refused = commit(MANY, generation_id_or_member_epoch=5, member_id="m")
            assert codes(await peer.call(refused, 9)) == {ErrorCode.GROUP_ID_NOT_FOUND}
            too_many = commit(MANY + 1)
            assert codes(await peer.call(too_many, 9)) == {0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}

    run(test)


def test_a_shard_that_goes_while_offsets_are_made_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer, held = await prepared(rig), Held(monkeypatch)
            peer.deliver(commit(MANY), 9)
            rig.broker.groups.end_waiting()
            held.go.set()
            assert codes(await peer.receive()) == {ErrorCode.NOT_COORDINATOR}

    run(test)


def heartbeat(regex: str | None, epoch: int = 0) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=epoch,
        rebalance_timeout_ms=30_000,
        subscribed_topic_regex=regex,
        topic_partitions=[],
    )


async def with_topics(rig: Rig, count: int) -> Peer:
    peer = await prepared(rig, 1)
    topics = [
        CreatableTopic(name=f"orders-{i}", num_partitions=1, replication_factor=1)
        for i in range(count)
    ]
    request = CreateTopicsRequest(topics=topics)
    await rig.broker.controller.submit(lambda c: c.create_topics(request))
    return peer


def test_a_regular_expression_is_matched_with_many_topics_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_coordinator, "MATCHED_AT_ONCE_MAX", 50)

    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer = await with_topics(rig, 100)
            turns, answer = await turns_of(peer, heartbeat("orders-.*[05]"), 1)
            assert (answer.error_code, answer.member_epoch) == (0, 1)
            assert turns >= 100
            answer = await peer.call(
                ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=1), 1
            )
            assert len(answer.assignment.topic_partitions) == 20
            patterns = driver_of(rig, "g").shard.environment.patterns
            assert list(patterns) == ["orders-.*[05]"]
            # What comes later is matched when it comes.
            await rig.topic("orders-x5")
            group = driver_of(rig, "g").shard.groups["g"]
            assert "orders-x5" in group.engine.roster.regexes["orders-.*[05]"].topics  # type: ignore[attr-defined]

    run(test)


def test_many_topics_are_found_and_assigned_in_turns_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "TOPICS_AT_ONCE_MAX", 50)

    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer = await with_topics(rig, 100)
            shard = driver_of(rig, "g").shard
            await peer.call(heartbeat("orders-.*"), 1)
            roster = shard.groups["g"].engine.roster  # type: ignore[attr-defined]
            assert len(roster.regexes["orders-.*"].topics) == 100
            await until(lambda: roster.assignment_epoch == roster.epoch == 2)
            assert len(roster.target["m"]) == 100
            answer = await peer.call(heartbeat(None, 1), 1)
            assert len(answer.assignment.topic_partitions) == 100

    run(test)


def test_who_asks_before_many_topics_are_assigned_has_them_assigned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "TOPICS_AT_ONCE_MAX", 50)

    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer = await with_topics(rig, 100)
            shard = driver_of(rig, "g").shard
            peer.deliver(heartbeat("orders-.*"), 1)
            roster = shard.groups["g"].engine.roster  # type: ignore[attr-defined]
            assert (roster.assignment_epoch, roster.epoch) == (1, 2)  # the timer makes it
            assert roster.regexes["orders-.*"].topics
            peer.deliver(heartbeat(None, 1), 1)
            assert (await peer.receive()).error_code == 0
            assert len((await peer.receive()).assignment.topic_partitions) == 100

    run(test)


def test_a_topic_that_comes_while_others_are_matched_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_coordinator, "MATCHED_AT_ONCE_MAX", 50)

    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer, held = await with_topics(rig, 200), Held(monkeypatch)
            peer.deliver(heartbeat("orders-.*"), 1)
            await rig.topic("orders-later")
            await rig.delete_topic("orders-7")
            assert peer.inside.pending
            held.go.set()
            assert (await peer.receive()).error_code == 0
            group = driver_of(rig, "g").shard.groups["g"]
            found = group.engine.roster.regexes["orders-.*"].topics  # type: ignore[attr-defined]
            assert "orders-later" in found
            assert "orders-7" not in found
            assert len(found) == 200

    run(test)


def test_a_broken_expression_is_refused_as_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_coordinator, "MATCHED_AT_ONCE_MAX", 0)

    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer = await prepared(rig, 1)
            answer = await peer.call(heartbeat("("), 1)
            assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
            await until(lambda: not driver_of(rig, "g").shard.groups)

    run(test)


def fetch(*topics: tuple[str, list[int]]) -> OffsetFetchRequest:
    wanted = [OffsetFetchRequestTopics(name=n, partition_indexes=list(i)) for n, i in topics]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=wanted)])


def test_many_offsets_are_fetched_some_at_a_time(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer = await prepared(rig)
            assert codes(await peer.call(commit(MANY, 7), 9)) == {0}
            backwards = list(range(MANY))[::-1]
            asked = [
                ("t", backwards),
                ("nothing", []),
                ("t", [3]),
                ("none", [0, 1]),
                ("t", list(range(PART_PARTITIONS_MAX))),
                ("t", [5]),
            ]
            turns, answer = await turns_of(peer, fetch(*asked), 9)
            assert turns >= MANY / PART_PARTITIONS_MAX
            [group] = answer.groups
            assert [
                (t.name, [p.partition_index for p in t.partitions]) for t in group.topics
            ] == asked
            found = {(t.name, p.committed_offset) for t in group.topics for p in t.partitions}
            assert found == {("t", 7), ("none", -1)}

    run(test)


def test_a_group_that_refuses_is_told_once(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer = await prepared(rig)
            rig.broker.groups.end_waiting()
            [group] = (await peer.call(fetch(("t", list(range(MANY)))), 9)).groups
            assert (group.error_code, group.topics) == (ErrorCode.NOT_COORDINATOR, [])

    run(test)
