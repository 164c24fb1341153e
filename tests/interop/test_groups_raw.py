"""Bad input to both group protocols: each refused with the code that Apache Kafka gives."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from penstock.base.errors import ErrorCode as E
from penstock.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from penstock.wire.messages.delete_groups import DeleteGroupsRequest
from penstock.wire.messages.describe_groups import DescribeGroupsRequest
from penstock.wire.messages.join_group import JoinGroupRequestProtocol
from penstock.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from support.calls import find_topic
from support.group_calls import (
    assignment,
    await_coordinator,
    beat,
    commit,
    fetch_offsets,
    heartbeat,
    join,
    join_request,
    leave,
    owned,
    subscription,
    sync,
)
from support.groups import GROUP_SIZE_MAX
from support.helpers import TopicMaker
from support.process import BrokerProcess
from support.raw import RawClient
from support.waiting import eventually

LEAVE, LEAVE_STATIC = -1, -2
METADATA_BYTES_MAX = 4096
LONG_SESSION_MS = 300_000
WITHOUT_AN_ID = 3
"""The last version of JoinGroup that takes a new member without asking it to come again."""


class Group(NamedTuple):
    """A group with one member that owns the one partition of a topic."""

    client: RawClient
    id: str
    topic: str
    topic_id: bytes
    member: str
    epoch: int


@pytest.fixture
def raw(group_node: BrokerProcess, group_id: str) -> Iterator[RawClient]:
    with RawClient(group_node.host, group_node.port) as client:
        await_coordinator(client, group_id)
        yield client


@pytest.fixture
def classic(raw: RawClient, group_topic: TopicMaker, group_id: str) -> Group:
    topic = find_topic(raw, group_topic())
    metadata = subscription(topic.name)
    protocols = [JoinGroupRequestProtocol(name="range", metadata=metadata)]
    joined = join(raw, group_id, protocols=protocols)
    assert (joined.error_code, joined.leader) == (0, joined.member_id)
    member, generation = joined.member_id, joined.generation_id
    synced = sync(raw, group_id, generation, member, **{member: assignment(topic.name, 0)})
    assert (synced.error_code, synced.assignment) == (0, assignment(topic.name, 0))
    return Group(raw, group_id, topic.name, topic.id, member, generation)


@pytest.fixture
def consumer(raw: RawClient, group_topic: TopicMaker, group_id: str) -> Group:
    topic = find_topic(raw, group_topic())
    answer = beat(raw, group_id, "m", 0, subscribed_topic_names=[topic.name])
    assert answer.error_code == 0, answer.error_message
    got = answer
    while not (got.assignment and got.assignment.topic_partitions):
        got = beat(raw, group_id, "m", got.member_epoch)
        assert got.error_code == 0, got.error_message
    assert got.assignment.topic_partitions == owned(topic.id, 0)
    got = beat(raw, group_id, "m", got.member_epoch, topic_partitions=owned(topic.id, 0))
    return Group(raw, group_id, topic.name, topic.id, "m", got.member_epoch)


# No group, no member


def test_a_group_that_does_not_exist(raw: RawClient, group_id: str) -> None:
    assert heartbeat(raw, group_id, 0, "x") == E.UNKNOWN_MEMBER_ID
    assert sync(raw, group_id, 1, "x").error_code == E.UNKNOWN_MEMBER_ID
    assert leave(raw, group_id, "x").members[0].error_code == E.UNKNOWN_MEMBER_ID
    assert join(raw, group_id, "x").error_code == E.UNKNOWN_MEMBER_ID
    assert beat(raw, group_id, "x", 5).error_code == E.GROUP_ID_NOT_FOUND
    assert beat(raw, group_id, "x", LEAVE).error_code == E.GROUP_ID_NOT_FOUND
    code = commit(raw, group_id, "x", member_id="x", generation_id_or_member_epoch=1)
    assert code == E.UNKNOWN_TOPIC_OR_PARTITION, "the topic is looked at first"
    assert delete_group(raw, group_id) == E.GROUP_ID_NOT_FOUND
    assert delete_offset(raw, group_id, "x") == E.GROUP_ID_NOT_FOUND


def test_to_fetch_from_a_group_that_does_not_exist_is_no_error(
    raw: RawClient, group_topic: TopicMaker, group_id: str
) -> None:
    name = group_topic()
    everything = fetch_offsets(raw, group_id, None)
    assert (everything.error_code, everything.topics) == (0, [])
    [topic] = fetch_offsets(raw, group_id, name).topics
    [partition] = topic.partitions
    assert (partition.error_code, partition.committed_offset, partition.metadata) == (0, -1, "")


def test_an_empty_group_id(raw: RawClient, group_topic: TopicMaker) -> None:
    assert join(raw, "").error_code == E.INVALID_GROUP_ID
    assert heartbeat(raw, "", 1, "x") == E.INVALID_GROUP_ID
    assert sync(raw, "", 1, "x").error_code == E.INVALID_GROUP_ID
    assert leave(raw, "", "x").error_code == E.INVALID_GROUP_ID
    assert beat(raw, "", "m", 0).error_code == E.INVALID_REQUEST
    assert delete_offset(raw, "", "x") == E.INVALID_GROUP_ID
    assert describe_consumer(raw, "").error_code == E.INVALID_GROUP_ID
    # Commits and fetches of the group without a name are as old as Kafka, and served.
    name = group_topic()
    assert commit(raw, "", name, 7) == 0
    assert fetch_offsets(raw, "", name).topics[0].partitions[0].committed_offset == 7


# The classic protocol


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"session_timeout_ms": 1}, E.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 10**9}, E.INVALID_SESSION_TIMEOUT),
        ({"protocols": []}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, E.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_a_join_that_cannot_be_meant(
    raw: RawClient, group_id: str, fields: dict[str, Any], code: E
) -> None:
    assert join(raw, group_id, **fields).error_code == code


def test_a_join_without_a_member_id_is_given_one(raw: RawClient, group_id: str) -> None:
    first = raw.call(join_request(group_id), 9)
    assert first.error_code == E.MEMBER_ID_REQUIRED
    assert first.member_id.startswith("raw-")
    assert raw.call(join_request(group_id), 3).error_code == 0, "before version 4 it is not asked"


def test_another_protocol_than_the_group_has(classic: Group) -> None:
    other = [JoinGroupRequestProtocol(name="other", metadata=b"")]
    raw, group = classic.client, classic.id
    assert join(raw, group, protocols=other).error_code == E.INCONSISTENT_GROUP_PROTOCOL
    assert join(raw, group, protocol_type="connect").error_code == E.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("off", [-1, 1])
def test_a_generation_that_is_not_the_present_one(classic: Group, off: int) -> None:
    raw, group, _, _, member, generation = classic
    wrong = generation + off
    assert heartbeat(raw, group, generation, member) == 0
    assert heartbeat(raw, group, wrong, member) == E.ILLEGAL_GENERATION
    assert sync(raw, group, wrong, member).error_code == E.ILLEGAL_GENERATION
    assert committed_by(classic, member, wrong) == E.ILLEGAL_GENERATION


def test_an_unknown_member_of_a_classic_group(classic: Group) -> None:
    raw, group, _, _, _, generation = classic
    assert heartbeat(raw, group, generation, "no") == E.UNKNOWN_MEMBER_ID
    assert sync(raw, group, generation, "no").error_code == E.UNKNOWN_MEMBER_ID
    assert join(raw, group, "no").error_code == E.UNKNOWN_MEMBER_ID
    assert leave(raw, group, "no").members[0].error_code == E.UNKNOWN_MEMBER_ID
    assert leave(raw, group, "", "no").members[0].error_code == E.UNKNOWN_MEMBER_ID
    assert committed_by(classic, "no", generation) == E.UNKNOWN_MEMBER_ID
    assert committed_by(classic, "", -1) == E.UNKNOWN_MEMBER_ID, "nobody, while it is in use"


def test_an_instance_that_another_member_has_taken(
    raw: RawClient, group_topic: TopicMaker, group_id: str
) -> None:
    protocols = [JoinGroupRequestProtocol(name="range", metadata=subscription(group_topic()))]
    fields: dict[str, Any] = {"protocols": protocols, "group_instance_id": "i"}
    first = join(raw, group_id, **fields)
    sync(raw, group_id, first.generation_id, first.member_id, **{first.member_id: b""})
    second = join(raw, group_id, **fields)
    assert second.error_code == 0
    assert second.member_id != first.member_id
    assert second.generation_id == first.generation_id, "a static member comes back unnoticed"
    generation = first.generation_id
    assert heartbeat(raw, group_id, generation, first.member_id, "i") == E.FENCED_INSTANCE_ID
    assert heartbeat(raw, group_id, generation, second.member_id, "no") == E.UNKNOWN_MEMBER_ID
    answer = leave(raw, group_id, first.member_id, "i")
    assert answer.members[0].error_code == E.FENCED_INSTANCE_ID


def test_a_group_that_is_full(group_node: BrokerProcess, raw: RawClient, group_id: str) -> None:
    with contextlib.ExitStack() as stack:
        # The first to join is a generation of its own; the others wait for it to come again.
        for _ in range(GROUP_SIZE_MAX + 1):
            client = stack.enter_context(RawClient(group_node.host, group_node.port))
            named = client.call(join_request(group_id), 9)
            client.send(join_request(group_id, named.member_id), 9)

        def refused() -> bool:
            answer = raw.call(join_request(group_id), 9)
            return bool(answer.error_code == E.GROUP_MAX_SIZE_REACHED)

        eventually(refused)


# The consumer protocol


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"server_assignor": "no"}, E.UNSUPPORTED_ASSIGNOR),
        ({"subscribed_topic_names": None}, E.INVALID_REQUEST),
        ({"topic_partitions": None}, E.INVALID_REQUEST),
        ({"topic_partitions": owned(b"\1" * 16, 0)}, E.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, E.INVALID_REQUEST),
        ({"instance_id": ""}, E.INVALID_REQUEST),
        ({"member_id": ""}, E.INVALID_REQUEST),
        ({"member_epoch": -3}, E.INVALID_REQUEST),
        ({"member_epoch": LEAVE_STATIC}, E.INVALID_REQUEST),
        (
            {"subscribed_topic_names": None, "subscribed_topic_regex": "["},
            E.INVALID_REGULAR_EXPRESSION,
        ),
    ],
)
def test_a_first_heartbeat_that_cannot_be_meant(
    raw: RawClient, group_id: str, fields: dict[str, Any], code: E
) -> None:
    member, epoch = fields.pop("member_id", "m"), fields.pop("member_epoch", 0)
    answer = beat(raw, group_id, member, epoch, **fields)
    assert answer.error_code == code
    assert answer.error_message
    assert describe_consumer(raw, group_id).error_code == E.GROUP_ID_NOT_FOUND


def test_version_0_is_given_a_member_id(raw: RawClient, group_id: str) -> None:
    answer = beat(raw, group_id, "", 0, version=0)
    assert answer.error_code == 0
    assert len(answer.member_id) == 22


def test_a_subscription_to_a_missing_topic_waits_for_it(
    raw: RawClient, group_id: str, topic_name: Callable[[], str], group_node: BrokerProcess
) -> None:
    name = topic_name()
    answer = beat(raw, group_id, "m", 0, subscribed_topic_names=[name])
    assert (answer.error_code, answer.assignment.topic_partitions) == (0, [])
    TopicMaker(group_node, lambda: name)()
    epoch = answer.member_epoch

    def assigned() -> bool:
        nonlocal epoch
        answer = beat(raw, group_id, "m", epoch)
        epoch = answer.member_epoch
        return answer.assignment is not None and answer.assignment.topic_partitions != []

    eventually(assigned)


def test_an_epoch_that_is_not_the_present_one(consumer: Group) -> None:
    raw, group, _, _, member, epoch = consumer
    assert beat(raw, group, member, epoch).error_code == 0
    assert beat(raw, group, member, epoch + 10).error_code == E.FENCED_MEMBER_EPOCH
    assert committed_by(consumer, member, epoch) == 0
    assert committed_by(consumer, member, epoch + 1) == E.STALE_MEMBER_EPOCH
    fetched = fetch_offsets(raw, group, consumer.topic, member_id=member, member_epoch=epoch - 1)
    assert fetched.error_code == E.STALE_MEMBER_EPOCH


def test_an_unknown_member_of_a_consumer_group(consumer: Group) -> None:
    raw, group, topic, _, _, epoch = consumer
    assert beat(raw, group, "no", epoch).error_code == E.UNKNOWN_MEMBER_ID
    assert beat(raw, group, "no", LEAVE).error_code == E.UNKNOWN_MEMBER_ID
    assert committed_by(consumer, "no", epoch) == E.UNKNOWN_MEMBER_ID
    assert committed_by(consumer, "", -1) == E.UNKNOWN_MEMBER_ID, "nobody, while it is in use"
    fetched = fetch_offsets(raw, group, topic, member_id="no", member_epoch=epoch)
    assert fetched.error_code == E.UNKNOWN_MEMBER_ID


def test_a_broken_expression_in_a_running_group(consumer: Group) -> None:
    raw, group, _, _, member, epoch = consumer
    answer = beat(raw, group, member, epoch, subscribed_topic_regex="a(b")
    assert answer.error_code == E.INVALID_REGULAR_EXPRESSION
    assert beat(raw, group, member, epoch).error_code == 0


def test_instances_of_the_consumer_protocol(
    raw: RawClient, group_topic: TopicMaker, group_id: str
) -> None:
    names = [group_topic()]
    first = beat(raw, group_id, "m1", 0, instance_id="i", subscribed_topic_names=names)
    epoch = first.member_epoch
    second = beat(raw, group_id, "m2", 0, instance_id="i", subscribed_topic_names=names)
    assert second.error_code == E.UNRELEASED_INSTANCE_ID
    fenced = beat(raw, group_id, "m2", epoch, instance_id="i")
    assert fenced.error_code == E.FENCED_INSTANCE_ID
    assert beat(raw, group_id, "m1", epoch, instance_id="j").error_code == E.UNKNOWN_MEMBER_ID
    away = beat(raw, group_id, "m1", LEAVE_STATIC, instance_id="i")
    assert (away.error_code, away.member_epoch) == (0, LEAVE_STATIC)
    back = beat(raw, group_id, "m2", 0, instance_id="i", subscribed_topic_names=names)
    assert (back.error_code, back.member_id) == (0, "m2")


def test_a_consumer_group_that_is_full(raw: RawClient, group_id: str) -> None:
    for i in range(GROUP_SIZE_MAX):
        assert beat(raw, group_id, f"m{i}", 0).error_code == 0
    assert beat(raw, group_id, "one more", 0).error_code == E.GROUP_MAX_SIZE_REACHED


# The wrong kind of group


def test_consumer_requests_to_a_classic_group(classic: Group) -> None:
    assert beat(classic.client, classic.id, "x", 5).error_code == E.GROUP_ID_NOT_FOUND
    assert describe_consumer(classic.client, classic.id).error_code == E.GROUP_ID_NOT_FOUND


def test_classic_requests_to_a_consumer_group(consumer: Group) -> None:
    raw, group, _, _, member, epoch = consumer
    assert heartbeat(raw, group, epoch, member) == E.UNKNOWN_MEMBER_ID
    assert sync(raw, group, epoch, member).error_code == E.UNKNOWN_MEMBER_ID
    assert heartbeat(raw, group, epoch, "no") == E.UNKNOWN_MEMBER_ID
    assert leave(raw, group, "no").members[0].error_code == E.UNKNOWN_MEMBER_ID
    assert join(raw, group, protocol_type="connect").error_code == E.INCONSISTENT_GROUP_PROTOCOL
    described = describe_classic(raw, group)
    assert (described.error_code, described.group_state) == (E.GROUP_ID_NOT_FOUND, "Dead")


def test_describe_tells_an_unknown_group_by_the_version(raw: RawClient, group_id: str) -> None:
    found = describe_classic(raw, group_id)
    assert (found.error_code, found.group_state) == (E.GROUP_ID_NOT_FOUND, "Dead")
    old = describe_classic(raw, group_id, version=4)
    assert (old.error_code, old.group_state) == (0, "Dead")


# Offsets


@pytest.mark.parametrize("kind", ["classic", "consumer", "offsets only"])
def test_metadata_beyond_its_limit(
    request: pytest.FixtureRequest,
    raw: RawClient,
    group_topic: TopicMaker,
    group_id: str,
    kind: str,
) -> None:
    group = (
        Group(raw, group_id, group_topic(), b"", "", -1)
        if kind == "offsets only"
        else request.getfixturevalue(kind)
    )
    assert committed_by(group, group.member, group.epoch, metadata="x" * METADATA_BYTES_MAX) == 0
    too_long = "x" * (METADATA_BYTES_MAX + 1)
    code = committed_by(group, group.member, group.epoch, 9, metadata=too_long)
    assert code == E.OFFSET_METADATA_TOO_LARGE
    stored = fetch_offsets(raw, group_id, group.topic).topics[0].partitions[0]
    assert (stored.committed_offset, len(stored.metadata)) == (1, METADATA_BYTES_MAX)


def test_offsets_of_what_is_not_there(classic: Group) -> None:
    raw, group, topic, _, member, generation = classic
    by: dict[str, Any] = {"member_id": member, "generation_id_or_member_epoch": generation}
    assert commit(raw, group, "no-such-topic", **by) == E.UNKNOWN_TOPIC_OR_PARTITION
    assert commit(raw, group, topic, partition=7, **by) == E.UNKNOWN_TOPIC_OR_PARTITION
    [partition] = fetch_offsets(raw, group, "no-such-topic").topics[0].partitions
    assert (partition.error_code, partition.committed_offset) == (0, -1)


@pytest.mark.parametrize("kind", ["classic", "consumer"])
def test_a_group_in_use_keeps_what_it_has(request: pytest.FixtureRequest, kind: str) -> None:
    group: Group = request.getfixturevalue(kind)
    assert committed_by(group, group.member, group.epoch) == 0
    assert delete_group(group.client, group.id) == E.NON_EMPTY_GROUP
    refused = delete_offset(group.client, group.id, group.topic)
    assert refused == E.GROUP_SUBSCRIBED_TO_TOPIC
    left = fetch_offsets(group.client, group.id, None)
    assert left.topics[0].partitions[0].committed_offset == 1


def test_many_groups_are_fetched_at_once(
    raw: RawClient, group_topic: TopicMaker, group_id: str
) -> None:
    name = group_topic()
    ids = [f"{group_id}-{i}" for i in range(3)]
    for i, one in enumerate(ids[:2]):
        assert commit(raw, one, name, 10 + i, metadata=f"of {i}") == 0
    asked = [OffsetFetchRequestGroup(group_id=one, topics=None) for one in ids]
    answers = raw.call(OffsetFetchRequest(groups=asked, require_stable=True), 9).groups
    found = {
        answer.group_id: [(p.committed_offset, p.metadata) for p in topic.partitions]
        for answer in answers
        for topic in answer.topics
    }
    assert [answer.group_id for answer in answers] == ids
    assert found == {ids[0]: [(10, "of 0")], ids[1]: [(11, "of 1")]}


def test_topics_with_unknown_ids_are_answered_last(
    raw: RawClient, group_topic: TopicMaker, group_id: str
) -> None:
    topic_id = find_topic(raw, group_topic(partitions=1)).id
    unknown = bytes(15) + b"\x07"
    topics = [
        OffsetFetchRequestTopics(topic_id=one, partition_indexes=[0]) for one in (unknown, topic_id)
    ]
    asked = OffsetFetchRequestGroup(group_id=group_id, topics=topics)
    [answer] = raw.call(OffsetFetchRequest(groups=[asked]), 10).groups
    found = [(topic.topic_id, topic.partitions[0].error_code) for topic in answer.topics]
    assert found == [(topic_id, E.NONE), (unknown, E.UNKNOWN_TOPIC_ID)]


def test_a_silent_member_is_dropped_after_its_timeout_and_no_sooner(
    raw: RawClient, group_id: str
) -> None:
    session = 1.0
    joined = join(raw, group_id, session_timeout_ms=int(session * 1000))
    synced = sync(raw, group_id, joined.generation_id, joined.member_id)
    heard = time.monotonic()
    assert synced.error_code == 0
    eventually(lambda: not describe_classic(raw, group_id).members, every=0.02)
    gone = time.monotonic() - heard
    assert session - 0.05 <= gone <= session + 5.0


def committed_by(group: Group, member: str, epoch: int, offset: int = 1, **fields: Any) -> int:
    return commit(
        group.client,
        group.id,
        group.topic,
        offset,
        member_id=member,
        generation_id_or_member_epoch=epoch,
        **fields,
    )


def delete_group(client: RawClient, group: str) -> int:
    [result] = client.call(DeleteGroupsRequest(groups_names=[group]), 2).results
    return int(result.error_code)


def delete_offset(client: RawClient, group: str, topic: str) -> int:
    """The error of the whole answer, else of the one partition."""
    partitions = [OffsetDeleteRequestPartition(partition_index=0)]
    topics = [OffsetDeleteRequestTopic(name=topic, partitions=partitions)]
    answer = client.call(OffsetDeleteRequest(group_id=group, topics=topics), 0)
    return int(answer.error_code or answer.topics[0].partitions[0].error_code)


def describe_classic(client: RawClient, group: str, version: int = 6) -> Any:
    [found] = client.call(DescribeGroupsRequest(groups=[group]), version).groups
    return found


def describe_consumer(client: RawClient, group: str) -> Any:
    [found] = client.call(ConsumerGroupDescribeRequest(group_ids=[group]), 1).groups
    return found


def test_a_member_that_leaves_and_hangs_up_has_left(
    group_node: BrokerProcess, raw: RawClient, group_id: str
) -> None:
    """A consumer that is closed in a hurry sends LeaveGroup behind another request, and does not
    wait for the answer of either. Here the other one waits for a rebalance.
    """
    joined = join(raw, group_id, session_timeout_ms=LONG_SESSION_MS)
    member = joined.member_id
    assert sync(raw, group_id, joined.generation_id, member, **{member: b""}).error_code == 0
    other = f"{group_id}-other"
    await_coordinator(raw, other)
    assert join(raw, other, rebalance_timeout_ms=500).error_code == 0
    with RawClient(group_node.host, group_node.port) as hasty:
        hasty.send(join_request(other, rebalance_timeout_ms=500), WITHOUT_AN_ID)
        leaver = MemberIdentity(member_id=member)
        hasty.send(LeaveGroupRequest(group_id=group_id, members=[leaver]), 5)

    def members() -> int:
        [described] = raw.call(DescribeGroupsRequest(groups=[group_id]), 5).groups
        return len(described.members)

    eventually(lambda: members() == 0)
