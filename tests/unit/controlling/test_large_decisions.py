"""A decision about very many partitions: others run in between, no other decision is made."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock.base.errors import ApiError, ErrorCode
from penstock.metadata.controller import Controller
from penstock.metadata.topic_control import ELEMENTS_PER_STEP
from penstock.net import turn
from penstock.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from unit.net.served import run
from unit.serving.rig import Rig, running, until

MANY = 10 * ELEMENTS_PER_STEP


@pytest.fixture(autouse=True)
def _short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn, "TURN_NS_MAX", -1)


def create(name: str, partitions: int) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    return CreateTopicsRequest(topics=[topic])


def delete(name: str) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topics=[DeleteTopicState(name=name)])


def controller(rig: Rig) -> Controller:
    active = rig.broker.quorum.seat.active
    assert active is not None
    return active.controller


async def turns_until(task: asyncio.Task[Any]) -> int:
    turns = 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    return turns


def test_others_run_in_between(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            submit = rig.broker.controller.submit
            grow = CreatePartitionsTopic(name="t", count=2 * MANY, assignments=None)
            for request in (
                create("t", MANY),
                CreatePartitionsRequest(topics=[grow]),
                delete("t"),
            ):
                name = type(request).__name__.removesuffix("Request")
                method = {
                    "CreateTopics": Controller.create_topics,
                    "CreatePartitions": Controller.create_partitions,
                    "DeleteTopics": Controller.delete_topics,
                }[name]
                task = asyncio.create_task(submit(lambda c, m=method, r=request: m(c, r)))
                assert await turns_until(task) >= MANY / ELEMENTS_PER_STEP, name
                assert controller(rig).image == rig.broker.metadata
            assert rig.broker.metadata.partition_count == 0

    run(test)


def test_decisions_are_made_one_after_the_other(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            submit = rig.broker.controller.submit
            large = [
                asyncio.create_task(submit(lambda c, i=i: c.create_topics(create(f"t{i}", MANY))))
                for i in range(3)
            ]
            twice = asyncio.create_task(submit(lambda c: c.create_topics(create("t1", 1))))
            gone = asyncio.create_task(submit(lambda c: c.delete_topics(delete("t2"))))
            codes = [(await task).topics[0].error_code for task in (*large, twice)]
            assert codes == [0, 0, 0, ErrorCode.TOPIC_ALREADY_EXISTS]
            assert (await gone).responses[0].error_code == 0
            assert sorted(rig.broker.metadata.topics) == ["t0", "t1"]
            assert rig.broker.metadata.partition_count == 2 * MANY
            assert controller(rig).image == rig.broker.metadata

    run(test)


def test_one_that_nobody_waits_for_any_more_is_ended(tmp_path: Path) -> None:
    """The controller's image has all records that are in the log, or none."""

    async def test() -> None:
        async with running(tmp_path) as rig:
            submit = rig.broker.controller.submit
            reached = set()
            for turns in range(0, 80, 2):
                name = f"t{turns}"
                before = rig.broker.quorum.log.end_offset
                task = asyncio.create_task(
                    submit(lambda c, n=name: c.create_topics(create(n, MANY)))
                )
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                appended = rig.broker.quorum.log.end_offset > before
                reached.add(appended)
                known = controller(rig).image.topics.get(name)
                assert (known is not None) == appended
                assert known is None or len(known.partitions) == MANY
                await submit(lambda c, n=name: c.delete_topics(delete(n)))
            assert reached == {False, True}
            assert controller(rig).image == rig.broker.metadata

    run(test)


def test_a_controller_that_is_replaced_meanwhile_appends_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            seat = rig.broker.quorum.seat
            task = asyncio.create_task(seat.submit(lambda c: c.create_topics(create("t", MANY))))
            await until(seat._deciding.locked)
            end = rig.broker.quorum.log.end_offset
            seat.lost()
            with pytest.raises(ApiError) as e:
                await task
            assert e.value.code is ErrorCode.NOT_CONTROLLER
            assert rig.broker.quorum.log.end_offset == end

    run(test)


def test_partitions_are_made_before_the_served_image_takes_them(tmp_path: Path) -> None:
    """To make ten thousand of them takes longer than all else that is done at once."""

    async def test() -> None:
        async with running(tmp_path) as rig:
            await rig.topic("t", 3)
            served = rig.broker.metadata.topics["t"].partitions
            made = controller(rig).image.topics["t"].partitions
            assert len(served) == 3
            assert all(one is other for one, other in zip(served, made, strict=True))
            assert served is not made

    run(test)
