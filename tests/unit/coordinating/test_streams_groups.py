"""Streams groups in one node: internal topics, what stands against them, rights, level 0."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from penstock.coordinator.streams_group.resolving import StatusCode
from penstock.metadata.features import STREAMS_VERSION
from penstock.wire.messages.create_acls import CreateAclsRequest
from penstock.wire.messages.streams_group_describe import StreamsGroupDescribeRequest
from penstock.wire.messages.streams_group_heartbeat import (
    KeyValue,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TopicInfo,
    Topology,
)
from support.rights_rows import Row
from unit.api.test_rights_of_every_api import NOBODY, ROOT, as_principal, secured
from unit.coordinating.test_group_coordinator import find
from unit.serving.rig import Peer, running

SETTINGS = {
    "offsets_topic_num_partitions": "3",
    "group_streams_initial_rebalance_delay_ms": "0",
    "group_streams_assignment_interval_ms": "0",
}
SECONDS = 20


def topology(source: str, *changelog_configs: KeyValue, changelog: str = "log") -> Topology:
    return Topology(
        epoch=1,
        subtopologies=[
            Subtopology(
                subtopology_id="0", source_topics=[source], repartition_sink_topics=["again"]
            ),
            Subtopology(
                subtopology_id="1",
                repartition_source_topics=[TopicInfo(name="again")],
                state_changelog_topics=[
                    TopicInfo(name=changelog, topic_configs=list(changelog_configs))
                ],
            ),
        ],
    )


async def join(peer: Peer, told: Topology, **fields: Any) -> Any:
    """The answer to a member that joins, once its group is loaded."""
    request = StreamsGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        rebalance_timeout_ms=1_000,
        topology=told,
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id="p",
        **fields,
    )
    async with asyncio.timeout(SECONDS):
        while True:
            answer = await peer.call(request, 0)
            if answer.error_code not in (
                ErrorCode.NOT_COORDINATOR,
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ):
                return answer
            await asyncio.sleep(0.01)


async def beat(peer: Peer, epoch: int) -> Any:
    request = StreamsGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=epoch)
    return await peer.call(request, 0)


def details(answer: Any) -> list[str]:
    assert answer.error_code == 0, answer
    missing = StatusCode.MISSING_INTERNAL_TOPICS
    return [status.status_detail for status in answer.status if status.status_code == missing]


def test_internal_topics_are_created_once_and_their_tasks_given(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path, **SETTINGS) as rig:
            peer = await rig.peer()
            topic = await rig.topic(partitions=3)
            await find(peer, "g")
            compacted = KeyValue(key="cleanup.policy", value="compact")
            answer = await join(peer, topology(topic.name, compacted))
            assert details(answer) == ["Internal topics are missing: again, log"]
            async with asyncio.timeout(SECONDS):
                while answer.status:
                    answer = await beat(peer, answer.member_epoch)
                    await asyncio.sleep(0.01)
            assert {t.subtopology_id: t.partitions for t in answer.active_tasks} == {
                "0": [0, 1, 2],
                "1": [0, 1, 2],
            }
            image = rig.broker.metadata
            assert len(image.topics["log"].partitions) == len(image.topics["again"].partitions) == 3
            assert image.topic_config("log")["cleanup.policy"] == "compact"

    asyncio.run(run())


def test_why_a_topic_could_not_be_created_is_told_for_a_while(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path, **SETTINGS) as rig:
            peer = await rig.peer()
            topic = await rig.topic(partitions=1)
            await find(peer, "g")
            answer = await join(
                peer, topology(topic.name, KeyValue(key="no.such.setting", value="1"))
            )
            async with asyncio.timeout(SECONDS):
                while not any("could not be created: log (" in text for text in details(answer)):
                    answer = await beat(peer, answer.member_epoch)
                    await asyncio.sleep(0.01)
            assert "no.such.setting" in details(answer)[0]
            assert "again" in rig.broker.metadata.topics

    asyncio.run(run())


@pytest.mark.parametrize("name", ["__consumer_offsets", "no topic/at all"])
def test_topics_that_no_application_may_name(tmp_path: Path, name: str) -> None:
    async def run() -> None:
        async with running(tmp_path, **SETTINGS) as rig:
            peer = await rig.peer()
            topic = await rig.topic(partitions=1)
            await find(peer, "g")
            answer = await join(peer, topology(topic.name, changelog=name))
            assert answer.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY

    asyncio.run(run())


def test_at_level_0_there_are_no_streams_groups(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path, **SETTINGS) as rig:
            peer = await rig.peer()
            rig.broker.metadata.features[STREAMS_VERSION] = 0
            answer = await join(peer, topology("t"))
            assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
            described = await peer.call(StreamsGroupDescribeRequest(group_ids=["g"]), 0)
            assert [g.error_code for g in described.groups] == [ErrorCode.UNSUPPORTED_VERSION]

    asyncio.run(run())


def test_the_protocol_may_be_left_out(tmp_path: Path) -> None:
    protocols = {"group_coordinator_rebalance_protocols": "classic,consumer"}

    async def run() -> None:
        async with running(tmp_path, **SETTINGS, **protocols) as rig:
            peer = await rig.peer()
            answer = await join(peer, topology("t"))
            assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION

    asyncio.run(run())


def test_internal_topics_are_created_with_the_rights_of_the_member(tmp_path: Path) -> None:
    async def run() -> None:
        async with secured(tmp_path, **SETTINGS) as rig:
            topic = await rig.topic(partitions=2)
            root = await as_principal(rig, ROOT)
            await find(root, "g")
            text = "READ group g, " + ", ".join(
                f"DESCRIBE topic {n}" for n in ("t", "again", "log")
            )
            await allow(root, text)
            member = await as_principal(rig, NOBODY)
            answer = await join(member, topology(topic.name))
            [detail] = details(answer)
            assert detail.endswith("; no right to create again, log.")
            assert "log" not in rig.broker.metadata.topics
            await allow(root, "CREATE topic again, CREATE topic log")
            async with asyncio.timeout(SECONDS):
                while answer.status:
                    answer = await beat(member, answer.member_epoch)
                    await asyncio.sleep(0.01)
            [shown] = (await member.call(StreamsGroupDescribeRequest(group_ids=["g"]), 0)).groups
            assert shown.group_state == "Stable"

    asyncio.run(run())


async def allow(root: Peer, rules: str) -> None:
    """What the member may do, as rows of rights are written."""
    row = Row("", rules, 0, lambda _: None, [])
    request = CreateAclsRequest(creations=row.creations(NOBODY.name))
    assert list((await root.call(request, 3)).error_codes()) == []
