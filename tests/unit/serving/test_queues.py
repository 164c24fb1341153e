"""DescribeQueues and Redrive on a node: what a leader tells of share-partitions, and revives."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from penstock.api.audited import changes_cluster
from penstock.api.registry import APIS
from penstock.auth.audit import UPDATE
from penstock.base.errors import ErrorCode
from penstock.serving.audited_requests import told
from penstock.wire.apis import ApiKey
from penstock.wire.messages.create_acls import CreateAclsRequest
from penstock.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from penstock.wire.messages.describe_queues import (
    ALL_TOLD,
    DescribeQueuesRequest,
    QueuePartition,
    QueueTopic,
)
from penstock.wire.messages.redrive import (
    OffsetRange,
    Redriven,
    RedrivenPartition,
    RedrivenTopic,
    RedrivePartition,
    RedriveRequest,
    RedriveResponse,
    RedriveTopic,
)
from support.batches import Rec, batch
from support.calls import RawTopic
from support.rights_rows import GROUP_DENIED, TOPIC_DENIED, Row, codes
from unit.api.test_rights_of_every_api import NOBODY, ROOT, as_principal, secured
from unit.net.served import run
from unit.serving.rig import Peer, running, until
from unit.serving.share_rig import (
    ACCEPT,
    GROUP,
    REJECT,
    RELEASE,
    SETTINGS,
    ShareMember,
    begin_group,
)

REVIVED, GONE, UNFINISHED, NOT_YET = Redriven
Run = tuple[int, int, str, int, str]


async def published(peer: Peer, topic: RawTopic, *sizes: int) -> None:
    for size in sizes:
        records = batch([b"v%d" % number for number in range(size)])
        assert (await peer.produce(topic, records)).error_code == 0


async def described(
    peer: Peer, topic: str, *, index: int = 0, group: str = GROUP, runs: int = 100, begin: int = 0
) -> Any:
    part = QueuePartition(partition_index=index, from_offset=begin)
    request = DescribeQueuesRequest(
        group_id=group, topics=[QueueTopic(name=topic, partitions=[part])], runs_max=runs
    )
    answer = await peer.call(request, 0)
    assert answer.error_code == 0
    [found] = answer.topics
    [partition] = found.partitions
    return partition


def runs(partition: Any) -> list[Run]:
    return [
        (r.first_offset, r.last_offset, r.state, r.delivery_count, r.member_id)
        for r in partition.runs
    ]


def numbers(partition: Any) -> tuple[int, int, int, int, int]:
    return (
        partition.available,
        partition.locked,
        partition.parked,
        partition.archiving,
        partition.revived,
    )


async def redriven(
    peer: Peer, topic: str, *ranges: tuple[int, int], dry: bool = False, index: int = 0
) -> Any:
    part = RedrivePartition(
        partition_index=index,
        ranges=[OffsetRange(first_offset=first, last_offset=last) for first, last in ranges],
    )
    request = RedriveRequest(
        group_id=GROUP, topics=[RedriveTopic(name=topic, partitions=[part])], validate_only=dry
    )
    answer = await peer.call(request, 0)
    assert answer.error_code == 0
    [found] = answer.topics
    [partition] = found.partitions
    if partition.error_code:
        return ErrorCode(partition.error_code)
    return [(r.first_offset, r.last_offset, r.outcome) for r in partition.ranges]


async def trimmed(peer: Peer, topic: str, before: int) -> None:
    part = DeleteRecordsPartition(partition_index=0, offset=before)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=[part])], timeout_ms=5_000
    )
    answer = await peer.call(request, 2)
    assert answer.topics[0].partitions[0].error_code == 0


def test_who_holds_what_since_when_and_how_often(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **SETTINGS) as rig:
            topic = await rig.topic()
            await begin_group(rig, topic)
            ann, bob = [ShareMember(await rig.peer(), topic, name) for name in ("ann", "bob")]
            await published(ann.peer, topic, 2, 2, 3)
            assert await ann.taken(max_records=2) == [(0, 1, 1)]
            assert await bob.taken(max_records=2) == [(2, 3, 1)]
            assert await ann.said((0, 0, RELEASE), (1, 1, ACCEPT)) == 0
            assert await bob.taken(max_records=1, share_acquire_mode=1) == [(0, 0, 2)]
            seen = await described(ann.peer, topic.name)
            assert runs(seen) == [
                (0, 0, "ACQUIRED", 2, "bob"),
                (1, 1, "ACKNOWLEDGED", 1, ""),
                (2, 3, "ACQUIRED", 1, "bob"),
            ]
            assert numbers(seen) == (3, 3, 0, 0, 0)
            assert (seen.start_offset, seen.window_end_offset, seen.log_end_offset) == (0, 3, 7)
            for run_ in (seen.runs[0], seen.runs[2]):
                assert 0 <= run_.age_ms < 30_000
                assert 0 < run_.left_ms <= 30_000

    run(test)


def test_an_answer_has_so_many_runs_and_says_where_to_go_on(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **SETTINGS) as rig:
            topic = await rig.topic()
            await begin_group(rig, topic)
            ann = ShareMember(await rig.peer(), topic, "ann")
            await published(ann.peer, topic, 6)
            assert await ann.taken() == [(0, 5, 1)]
            assert await ann.said((0, 5, [RELEASE, ACCEPT] * 3)) == 0
            whole = await described(ann.peer, topic.name)
            found: list[Run] = []
            begin = 0
            while begin != ALL_TOLD:
                page = await described(ann.peer, topic.name, runs=2, begin=begin)
                assert len(page.runs) <= 2
                found += runs(page)
                begin = page.next_offset
            assert found == runs(whole)
            assert (await described(ann.peer, topic.name, runs=0)).runs == []
            assert numbers(await described(ann.peer, topic.name, runs=0)) == numbers(whole)

    run(test)


def test_what_nobody_consumes_is_loaded_for_it_and_leaves_again(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **SETTINGS) as rig:
            topic = await rig.topic()
            await begin_group(rig, topic, start=2)
            peer = await rig.peer()
            await published(peer, topic, 5)
            assert numbers(await described(peer, topic.name)) == (3, 0, 0, 0, 0)
            assert len(rig.broker.share.partitions) == 0
            member = ShareMember(peer, topic)
            assert await member.taken() == [(2, 4, 1)]
            assert numbers(await described(peer, topic.name)) == (0, 3, 0, 0, 0)
            assert len(rig.broker.share.partitions) == 1, "its member still fetches"
            assert (await member.acknowledge(share_session_epoch=-1)).error_code == 0
            await until(lambda: len(rig.broker.share.partitions) == 0)

    run(test)


def test_several_may_look_at_once_at_what_nobody_consumes(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **SETTINGS) as rig:
            topic = await rig.topic()
            await begin_group(rig, topic)
            peers = [await rig.peer() for _ in range(5)]
            await published(peers[0], topic, 3)
            for _ in range(3):
                found = await asyncio.gather(*(described(peer, topic.name) for peer in peers))
                assert {one.error_code for one in found} == {0}
                assert {numbers(one) for one in found} == {(3, 0, 0, 0, 0)}
                assert len(rig.broker.share.partitions) == 0

    run(test)


def test_what_was_given_up_is_delivered_anew_and_is_so_after_a_reload(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **SETTINGS) as rig:
            topic = await rig.topic()
            await begin_group(rig, topic)
            member = ShareMember(await rig.peer(), topic)
            peer = await rig.peer()
            await published(peer, topic, 6)
            assert await member.taken() == [(0, 5, 1)]
            types = [REJECT, ACCEPT, ACCEPT, REJECT, RELEASE, ACCEPT]
            assert await member.said((0, 5, types)) == 0
            dry = await redriven(peer, topic.name, (0, 0), (3, 9), dry=True)
            assert dry == [
                (0, 0, REVIVED),
                (3, 3, REVIVED),
                (4, 4, UNFINISHED),
                (5, 5, REVIVED),
                (6, 9, NOT_YET),
            ]
            assert (await described(peer, topic.name)).start_offset == 4, "it only asked"
            assert await redriven(peer, topic.name, (0, 0), (3, 3)) == [
                (0, 0, REVIVED),
                (3, 3, REVIVED),
            ]
            assert (await member.acknowledge(share_session_epoch=-1)).error_code == 0
            await until(lambda: len(rig.broker.share.partitions) == 0)
            seen = await described(peer, topic.name)
            assert numbers(seen) == (3, 0, 0, 0, 2)
            assert await redriven(peer, topic.name, (0, 0)) == [(0, 0, UNFINISHED)]
            again = ShareMember(await rig.peer(), topic, "again")
            assert await again.taken() == [(0, 0, 1), (3, 3, 1), (4, 4, 2)]
            assert await again.said((0, 0, ACCEPT), (3, 4, ACCEPT)) == 0
            assert numbers(await described(peer, topic.name)) == (0, 0, 0, 0, 0)
            assert await again.taken(max_wait_ms=50) == []

    run(test)


def test_what_the_log_does_not_have_is_gone(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **SETTINGS) as rig:
            topic = await rig.topic()
            await begin_group(rig, topic)
            member = ShareMember(await rig.peer(), topic)
            await published(member.peer, topic, 4)
            assert await member.taken() == [(0, 3, 1)]
            assert await member.said((0, 3, REJECT)) == 0
            await trimmed(member.peer, topic.name, 2)
            assert await redriven(member.peer, topic.name, (0, 3)) == [
                (0, 1, GONE),
                (2, 3, REVIVED),
            ]

    run(test)


def test_a_compacted_topic_is_taken_for_gone(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **SETTINGS) as rig:
            topic = await rig.topic(cleanup_policy="compact,delete")
            await begin_group(rig, topic)
            member = ShareMember(await rig.peer(), topic)
            records = batch([Rec(b"v", key=b"k")] * 2)
            assert (await member.peer.produce(topic, records)).error_code == 0
            assert await member.taken() == [(0, 1, 1)]
            assert await member.said((0, 1, REJECT)) == 0
            assert await redriven(member.peer, topic.name, (0, 2)) == [
                (0, 1, GONE),
                (2, 2, NOT_YET),
            ]

    run(test)


def test_so_many_are_revived_at_a_time(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **SETTINGS) as rig:
            topic = await rig.topic()
            peer = await rig.peer()
            await published(peer, topic, 4_000, 4_000, 4_000)
            await begin_group(rig, topic, start=12_000)
            assert await redriven(peer, topic.name, (0, 9_998)) == [(0, 9_998, REVIVED)]
            for dry in (True, False):
                refused = await redriven(peer, topic.name, (9_999, 10_000), dry=dry)
                assert refused == ErrorCode.INVALID_REQUEST
            assert await redriven(peer, topic.name, (9_990, 9_999)) == [
                (9_990, 9_998, UNFINISHED),
                (9_999, 9_999, REVIVED),
            ]
            assert (await described(peer, topic.name, runs=0)).revived == 10_000

    run(test)


def test_the_audit_log_says_what_was_revived() -> None:
    part = RedrivePartition(partition_index=3, ranges=[OffsetRange(first_offset=1, last_offset=2)])
    request = RedriveRequest(
        group_id=GROUP, topics=[RedriveTopic(name="t", partitions=[part])], validate_only=True
    )
    answered = RedrivenPartition(partition_index=3, error_code=ErrorCode.INVALID_REQUEST)
    response = RedriveResponse(topics=[RedrivenTopic(name="t", partitions=[answered])])
    kind, _, [resource], detail = told(request, response)
    assert (kind, resource.name, detail) == (UPDATE, GROUP, "INVALID_REQUEST")
    assert resource.data == {"offsets": ["t-3:1-2"], "validate_only": True}
    assert changes_cluster(APIS[ApiKey.REDRIVE])
    assert not changes_cluster(APIS[ApiKey.DESCRIBE_QUEUES])


@pytest.mark.parametrize("ranges", [[(3, 2)], [(-1, 2)], [(0, 5), (5, 6)], [(0, 10_000)]])
def test_wrong_ranges(tmp_path: Path, ranges: Iterable[tuple[int, int]]) -> None:
    async def test() -> None:
        async with running(tmp_path, **SETTINGS) as rig:
            topic = await rig.topic()
            await begin_group(rig, topic)
            answer = await redriven(await rig.peer(), topic.name, *ranges)
            assert answer == ErrorCode.INVALID_REQUEST

    run(test)


def test_what_is_not_there(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **SETTINGS) as rig:
            topic = await rig.topic()
            await begin_group(rig, topic)
            peer = await rig.peer()
            for group, name, index, code in (
                (GROUP, "missing", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                (GROUP, topic.name, 7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                ("other", topic.name, 0, ErrorCode.UNKNOWN_SERVER_ERROR),
            ):
                found = await described(peer, name, index=index, group=group)
                assert found.error_code == code
            assert found.error_message == "the share-partition is not initialised"
            assert (await peer.call(DescribeQueuesRequest(), 0)).error_code == (
                ErrorCode.INVALID_GROUP_ID
            )
            assert len(rig.broker.share.partitions) == 0

    run(test)


RIGHTS = [
    ("DESCRIBE group group", TOPIC_DENIED, GROUP_DENIED),
    ("DESCRIBE topic t", GROUP_DENIED, GROUP_DENIED),
    ("DESCRIBE group group, DESCRIBE topic t", 0, GROUP_DENIED),
    ("READ group group, DESCRIBE topic t", 0, TOPIC_DENIED),
    ("READ group group, READ topic t", 0, 0),
]


@pytest.mark.parametrize(("rules", "look", "revive"), RIGHTS)
def test_rights(tmp_path: Path, rules: str, look: int, revive: int) -> None:
    async def test() -> None:
        async with secured(tmp_path, **SETTINGS) as rig:
            topic = await rig.topic("t")
            await begin_group(rig, topic)
            root = await as_principal(rig, ROOT)
            row = Row("", rules, 0, lambda _: None, [])
            await root.call(CreateAclsRequest(creations=row.creations("nobody")), 3)
            nobody = await as_principal(rig, NOBODY)
            part = QueuePartition(partition_index=0)
            asked = DescribeQueuesRequest(
                group_id=GROUP, topics=[QueueTopic(name="t", partitions=[part])]
            )
            assert codes(await nobody.call(asked, 0)) == [look] * bool(look)
            wanted = RedriveRequest(
                group_id=GROUP,
                topics=[
                    RedriveTopic(
                        name="t",
                        partitions=[
                            RedrivePartition(
                                partition_index=0,
                                ranges=[OffsetRange(first_offset=0, last_offset=0)],
                            )
                        ],
                    )
                ],
            )
            assert codes(await nobody.call(wanted, 0)) == [revive] * bool(revive)

    run(test)
