"""The group coordinator inside a node: its topic, its shards, what survives, and failing disks."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from penstock.coordinating import coordinators
from penstock.coordinating.coordinators import java_hash
from penstock.coordinating.group_lag import GroupLag
from penstock.coordinating.shard_driver import ShardDriver, ShardState
from penstock.coordinator.shard import GroupShard
from penstock.metadata.names import OFFSETS_TOPIC
from penstock.observe.metrics import Registry
from penstock.wire.messages.delete_groups import DeleteGroupsRequest
from penstock.wire.messages.describe_groups import DescribeGroupsRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.heartbeat import HeartbeatRequest
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.wire.messages.list_groups import ListGroupsRequest
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from support.batches import Rec, batch
from support.calls import RawTopic
from unit.net.served import run
from unit.serving.rig import Peer, Rig, failing_fsync, full_disk, running, until

FEW = {"offsets_topic_num_partitions": "4"}


async def find(peer: Peer, *groups: str, version: int = 6, kind: int = 0) -> list[Any]:
    """What FindCoordinator says of each key."""
    if version < 4:
        return [
            await peer.call(FindCoordinatorRequest(key=g, key_type=kind), version) for g in groups
        ]
    request = FindCoordinatorRequest(coordinator_keys=list(groups), key_type=kind)
    return list((await peer.call(request, version)).coordinators)


async def commit(peer: Peer, group: str, offset: int, *, metadata: str = "") -> int:
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=metadata
    )
    topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
    answer = await peer.call(OffsetCommitRequest(group_id=group, topics=[topic]), 9)
    return int(answer.topics[0].partitions[0].error_code)


async def committed(peer: Peer, group: str) -> tuple[int, int]:
    """The error code and the offset of t-0."""
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    one = OffsetFetchRequestGroup(group_id=group, topics=topics)
    [found] = (await peer.call(OffsetFetchRequest(groups=[one]), 9)).groups
    if found.error_code:
        return found.error_code, -1
    return 0, found.topics[0].partitions[0].committed_offset


async def settled(peer: Peer, group: str) -> int:
    """The committed offset, once the shard has been loaded."""
    while True:
        code, offset = await committed(peer, group)
        if not code:
            return offset
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert code in (loading, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        await asyncio.sleep(0.01)


def driver_of(rig: Rig, group: str) -> ShardDriver[GroupShard]:
    index = rig.broker.groups.partition_of(group)
    assert index is not None
    return rig.broker.groups._drivers[index]


def offsets_partition(rig: Rig, group: str) -> Any:
    index = rig.broker.groups.partition_of(group)
    assert index is not None
    return rig.broker.replicas.leader_of(OFFSETS_TOPIC, index)


# -- where a group lives ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", 0),
        ("a", 97),
        ("my-group", 1906497762),
        ("größer", 1233337215),
        ("\U0001f389", 1773261),
        ("polygenelubricants", 0),  # the smallest number, which has no absolute value
    ],
)
def test_java_hash(text: str, code: int) -> None:
    assert java_hash(text) == code


def test_the_first_question_creates_the_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinators, "CREATION_WAIT_S", 10.0)  # the disk may be slow

    async def test() -> None:
        async with running(tmp_path, offsets_topic_segment_bytes="2000000", **FEW) as rig:
            peers = [await rig.peer() for _ in range(3)]
            for peer in peers:
                peer.send(FindCoordinatorRequest(coordinator_keys=["a", "b"]), 6)
            for peer in peers:
                for found in (await peer.receive()).coordinators:
                    assert (found.error_code, found.node_id) == (0, rig.broker.node_id)
                    assert f"{found.host}:{found.port}" == rig.node.kafka_address
            assert len(rig.broker.metadata.topics[OFFSETS_TOPIC].partitions) == 4
            config = rig.broker.topic_config(OFFSETS_TOPIC)
            assert config.cleanup_policy == {"compact"}
            assert config.segment_bytes == 2_000_000

    run(test)


@pytest.mark.parametrize("version", range(7))
def test_coordinators_in_every_version(tmp_path: Path, version: int) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer = await rig.peer()
            await rig.broker.groups.make_topic()  # on a slow disk nobody waits for it
            [found] = await find(peer, "g", version=version)
            assert (found.error_code, found.node_id) == (0, rig.broker.node_id)
            if version >= 1:
                [found] = await find(peer, "g", version=version, kind=1)
                assert (found.error_code, found.node_id) == (0, rig.broker.node_id)
                # A share-partition has a longer key, and no name before version 6.
                [found] = await find(peer, "g", version=version, kind=2)
                assert found.error_code == ErrorCode.INVALID_REQUEST
                [found] = await find(peer, "g", version=version, kind=9)
                assert found.error_code == ErrorCode.INVALID_REQUEST

    run(test)


def test_asking_for_its_metadata_creates_the_topic_as_it_must_be(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, auto_create_topics_enable="true", **FEW) as rig:
            peer = await rig.peer()
            wanted = MetadataRequest(topics=[MetadataRequestTopic(name=OFFSETS_TOPIC)])
            await peer.call(wanted, 8)
            assert len(rig.broker.metadata.topics[OFFSETS_TOPIC].partitions) == 4
            assert rig.broker.topic_config(OFFSETS_TOPIC).cleanup_policy == {"compact"}

    run(test)


def test_only_the_coordinator_writes_to_its_topic(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer = await rig.peer()
            await find(peer, "g")
            topic = RawTopic(OFFSETS_TOPIC, rig.broker.metadata.topics[OFFSETS_TOPIC].id)
            answer = await peer.produce(topic)
            assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION

    run(test)


def test_a_group_before_there_is_a_coordinator(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            peer = await rig.peer()
            await rig.topic()
            assert await commit(peer, "g", 1) == ErrorCode.NOT_COORDINATOR
            assert (await committed(peer, "g"))[0] == ErrorCode.NOT_COORDINATOR
            answer = await peer.call(ListGroupsRequest(), 5)
            assert (answer.error_code, answer.groups) == (0, [])

    run(test)


# -- offsets over the wire -------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, 11))
def test_offsets_are_read_in_every_version(tmp_path: Path, version: int) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer, topic = await rig.peer(), await rig.topic()
            await find(peer, "g")
            assert await commit(peer, "g", 17, metadata="m") == 0
            if version < 8:
                old = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
                answer = await peer.call(OffsetFetchRequest(group_id="g", topics=old), version)
                assert answer.error_code == 0
                [partition] = answer.topics[0].partitions
            else:
                new = [OffsetFetchRequestTopics(name="t", topic_id=topic.id, partition_indexes=[0])]
                groups = [
                    OffsetFetchRequestGroup(group_id="g", topics=new),
                    OffsetFetchRequestGroup(group_id="other", topics=None),
                ]
                answer = await peer.call(OffsetFetchRequest(groups=groups), version)
                assert [g.group_id for g in answer.groups] == ["g", "other"]
                assert answer.groups[1].topics == []
                [partition] = answer.groups[0].topics[0].partitions
            assert (partition.committed_offset, partition.metadata) == (17, "m")

    run(test)


def test_offsets_survive_a_restart(tmp_path: Path) -> None:
    async def test() -> None:
        groups = [f"g{i}" for i in range(20)]
        async with running(tmp_path, **FEW) as rig:
            peer = await rig.peer()
            await rig.topic()
            await find(peer, "g")
            for round_ in range(3):
                for i, group in enumerate(groups):
                    assert await commit(peer, group, 100 * round_ + i) == 0
            await peer.call(DeleteGroupsRequest(groups_names=["g7"]), 2)
        async with running(tmp_path, **FEW) as rig:
            peer = await rig.peer()
            for i, group in enumerate(groups):
                assert await settled(peer, group) == (-1 if i == 7 else 200 + i)
            listed = (await peer.call(ListGroupsRequest(), 5)).groups
            assert {g.group_id for g in listed} == set(groups) - {"g7"}

    run(test)


def test_offsets_survive_compaction(tmp_path: Path) -> None:
    settings = {
        "offsets_topic_num_partitions": "1",
        "offsets_topic_segment_bytes": "1048576",
        "log_cleaner_backoff_ms": "50",
        "log_cleaner_min_cleanable_ratio": "0.01",
    }

    async def test() -> None:
        async with running(tmp_path, **settings) as rig:
            peer = await rig.peer()
            await rig.topic()
            await find(peer, "g")
            long = "x" * 4_000
            for i in range(700):
                assert await commit(peer, f"g{i % 3}", i, metadata=long) == 0
            log = offsets_partition(rig, "g").log
            await until(lambda: log.size_bytes < 1_500_000, 10.0)
        async with running(tmp_path, **settings) as rig:
            peer = await rig.peer()
            assert [await settled(peer, f"g{i}") for i in range(3)] == [699, 697, 698]

    run(test)


def test_offsets_of_a_deleted_topic_go(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer = await rig.peer()
            await rig.topic()
            await find(peer, "g")
            await commit(peer, "g", 5)
            await rig.delete_topic("t")
            await rig.topic()
            assert await committed(peer, "g") == (0, -1)

    run(test)


def test_the_topic_itself_is_deleted(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer = await rig.peer()
            await rig.topic()
            await find(peer, "g")
            await commit(peer, "g", 5)
            await rig.delete_topic(OFFSETS_TOPIC)
            assert await commit(peer, "g", 6) == ErrorCode.NOT_COORDINATOR
            await find(peer, "g")
            assert await committed(peer, "g") == (0, -1)
            assert await commit(peer, "g", 7) == 0

    run(test)


def test_expired_offsets_are_removed(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, offsets_retention_check_interval_ms="20", **FEW) as rig:
            peer = await rig.peer()
            await rig.topic()
            await find(peer, "g")
            partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
            topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
            old = OffsetCommitRequest(group_id="g", topics=[topic], retention_time_ms=1)
            await peer.call(old, 4)
            await until(lambda: not driver_of(rig, "g").shard.groups)
            assert await committed(peer, "g") == (0, -1)

    run(test)


# -- answers wait for records ----------------------------------------------------------------------


def test_answers_wait_until_records_are_committed(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, log_flush_interval_messages="1", **FEW) as rig:
            writer, reader = await rig.peer(), await rig.peer()
            await rig.topic()
            await find(writer, "g")
            assert await commit(writer, "g", 1) == 0
            with rig.held_flushes():
                task = asyncio.create_task(commit(writer, "g", 2))
                await until(lambda: driver_of(rig, "g")._uncommitted)
                # Who reads must not see what may still be lost.
                reading = asyncio.create_task(committed(reader, "g"))
                await asyncio.sleep(0.05)
                assert not task.done()
                assert not reading.done()
            assert await task == 0
            assert await reading == (0, 2)

    run(test)


def test_a_full_disk_costs_the_shard_and_nothing_else(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, offsets_topic_num_partitions="1") as rig:
            peer = await rig.peer()
            await rig.topic()
            await find(peer, "g")
            long = "x" * 4_000
            for i in range(20):
                assert await commit(peer, "g", i, metadata=long) == 0
            with full_disk(offsets_partition(rig, "g")):
                refused = ErrorCode.COORDINATOR_NOT_AVAILABLE
                assert await commit(peer, "g", 99, metadata=long) == refused
                assert driver_of(rig, "g").state is not ShardState.ACTIVE
            assert await settled(peer, "g") == 19

            while (code := await commit(peer, "g", 20)) != 0:
                assert code in (refused, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
                await asyncio.sleep(0.05)
            assert await settled(peer, "g") == 20

    run(test)


def test_a_failed_fsync_is_not_acknowledged(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, log_flush_interval_messages="1", **FEW) as rig:
            peer = await rig.peer()
            await rig.topic()
            await find(peer, "g")
            assert await commit(peer, "g", 1) == 0
            with failing_fsync(offsets_partition(rig, "g")):
                assert await commit(peer, "g", 2) == ErrorCode.COORDINATOR_NOT_AVAILABLE
            # Nobody knows what the disk has kept: until a restart nothing is told of the group.
            await until(lambda: driver_of(rig, "g")._retry is None)
            assert await committed(peer, "g") == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)

    run(test)


def test_a_bug_in_the_shard_costs_a_replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer = await rig.peer()
            await rig.topic()
            await find(peer, "g")
            await commit(peer, "g", 5)
            broken = driver_of(rig, "g").shard
            monkeypatch.setattr(broken, "handle", None, raising=False)
            assert await commit(peer, "g", 6) == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert await settled(peer, "g") == 5
            assert driver_of(rig, "g").shard is not broken

    run(test)


def test_requests_while_a_shard_is_loaded(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer = await rig.peer()
            await rig.topic()
            await find(peer, "g")
            await commit(peer, "g", 5)
            driver = driver_of(rig, "g")
            driver.fail("the test says so")
            assert driver._retry is not None
            driver._retry.cancel()
            assert await commit(peer, "g", 6) == ErrorCode.COORDINATOR_NOT_AVAILABLE
            driver.load()
            loading: Any = driver.submit(ListGroupsRequest(), 5, "", "")
            assert loading.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            beat: Any = driver.submit(HeartbeatRequest(group_id="g", member_id="m"), 4, "", "")
            assert beat.error_code == 0
            assert await settled(peer, "g") == 5

    run(test)


# -- members and their timers ----------------------------------------------------------------------


def join_request(group: str, **fields: Any) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=6_000,
        rebalance_timeout_ms=6_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        **fields,
    )


def test_a_timer_ends_the_wait_for_more_members(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, group_initial_rebalance_delay_ms="150", **FEW) as rig:
            first, second = await rig.peer(), await rig.peer()
            await find(first, "g")
            first.send(join_request("g"), 2)
            second.send(join_request("g"), 2)
            assert await first.silent()
            answers = [await first.receive(), await second.receive()]
            assert {a.generation_id for a in answers} == {1}
            assert sorted(len(a.members) for a in answers) == [0, 2]

    run(test)


def test_who_waits_is_sent_away_when_the_node_stops(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, group_initial_rebalance_delay_ms="20000", **FEW) as rig:
            peer = await rig.peer()
            await find(peer, "g")
            peer.send(join_request("g"), 2)
            await until(lambda: any(d._waiting for d in rig.broker.groups._drivers.values()))
            rig.stop()
            assert (await peer.receive()).error_code == ErrorCode.NOT_COORDINATOR

    run(test)


def test_what_may_be_done_with_groups_is_told_when_asked(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer = await rig.peer()
            await rig.topic()
            await find(peer, "g")
            await commit(peer, "g", 5)
            for asked, told in ((False, -(2**31)), (True, 3400)):
                request = DescribeGroupsRequest(
                    groups=["g", "none"], include_authorized_operations=asked
                )
                found, none = (await peer.call(request, 6)).groups
                assert (found.group_state, found.authorized_operations) == ("Empty", told)
                assert none.error_code == ErrorCode.GROUP_ID_NOT_FOUND

    run(test)


# -- lag -------------------------------------------------------------------------------------------


def lag_of(rig: Rig, *, per_group: bool = True) -> GroupLag:
    broker = rig.broker
    return GroupLag(Registry(), broker.groups, broker.replicas, broker.clock, per_group=per_group)


def test_lag_in_messages_and_seconds(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer, topic = await rig.peer(), await rig.topic()
            await find(peer, "g")
            old = rig.broker.clock.now_ms() - 60_000
            await peer.produce(topic, batch([Rec(b"a", timestamp=old), Rec(b"b", timestamp=old)]))
            await peer.produce(topic, batch([Rec(b"c", timestamp=old + 30_000)]))
            lag = lag_of(rig)
            for offset, messages, seconds in ((0, 3, 60.0), (2, 1, 30.0), (3, 0, 0.0), (9, 0, 0.0)):
                await commit(peer, "g", offset)
                [found] = lag.read(with_seconds=True)
                assert (found.group_id, found.topic, found.partition) == ("g", "t", 0)
                assert found.messages == messages
                assert found.seconds == pytest.approx(seconds, abs=5.0)

    run(test)


def test_the_switch_leaves_the_totals(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer, topic = await rig.peer(), await rig.topic()
            await find(peer, "g")
            await peer.produce(topic, batch([b"a", b"b"]))
            await commit(peer, "g", 1)
            shown = {r.metric.name: r.samples for r in lag_of(rig, per_group=False)._collect()}
            assert set(shown) == {"penstock_groups_lag_messages"}
            assert shown["penstock_groups_lag_messages"][0].value == 1
            shown = {r.metric.name: r.samples for r in lag_of(rig)._collect()}
            [sample] = shown["penstock_group_lag_messages"]
            assert sample.labels == {"group": "g", "topic": "t", "partition": "0"}
            assert sample.value == 1

    run(test)


def test_a_changed_setting_counts_for_groups_that_are_there(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer = await rig.peer()
            await find(peer, "g")
            await rig.topic("t")
            assert await settled(peer, "g") == -1
            environment = driver_of(rig, "g").shard.environment
            assert environment.config_of("g").consumer_assignment_interval_ms == 1_000
            name = "group.consumer.assignment.interval.ms"
            change = AlterableConfig(name=name, config_operation=0, value="2000")
            resource = AlterConfigsResource(resource_type=4, resource_name="", configs=[change])
            request = IncrementalAlterConfigsRequest(resources=[resource])
            assert (await peer.call(request, 1)).responses[0].error_code == 0
            await until(lambda: environment.config_of("g").consumer_assignment_interval_ms == 2_000)

    run(test)
