"""Rules of a consumer group that no scenario shows."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.base.errors import ErrorCode, InvariantBroken
from penstock.coordinator.consumer.member import Progress
from penstock.coordinator.group import Committer
from penstock.coordinator.reconcile import MemberState
from penstock.coordinator.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    TopicPartitions,
    decode,
    encode,
)
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.wire.messages.delete_groups import DeleteGroupsRequest
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.wire.messages.list_groups import ListGroupsRequest
from penstock.wire.messages.sync_group import SyncGroupRequest
from unit.coordinator_consumer.rig import GROUP, Rig, assignment, subscription


def rig_with(partitions: int = 4, **settings: object) -> Rig:
    rig = Rig(**settings)
    rig.create("t", partitions)
    return rig


def classic_join(
    member_id: str, instance_id: str | None = None, version: int = 1
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type="consumer",
        protocols=[
            JoinGroupRequestProtocol(name="range", metadata=subscription(["t"], version=version))
        ],
    )


# -- joining -----------------------------------------------------------------------------------


def test_version_0_is_given_a_member_id() -> None:
    rig = rig_with()
    answer = rig.join("", ["t"], version=0)
    assert answer.error_code == ErrorCode.NONE
    assert answer.member_id
    assert answer.heartbeat_interval_ms == 5_000
    assert rig.named(answer) == {("t", n) for n in range(4)}


def test_version_1_brings_its_member_id() -> None:
    assert rig_with().join("", ["t"]).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    "fields",
    [
        {"rebalance_timeout_ms": -1, "subscribed_topic_names": ["t"]},
        {"rebalance_timeout_ms": 1},
        {"group_id": " "},
    ],
)
def test_incomplete_joins_are_refused(fields: dict[str, Any]) -> None:
    request = ConsumerGroupHeartbeatRequest(
        **{"group_id": GROUP, "member_id": "m", "topic_partitions": list[Any](), **fields}
    )
    rig = rig_with()
    assert rig.send(request, 1).error_code == ErrorCode.INVALID_REQUEST
    assert not rig.shard.groups


def test_a_join_without_the_empty_list_of_partitions_is_refused() -> None:
    rig = rig_with()
    answer = rig.beat("m", 0, rebalance_timeout_ms=1, subscribed_topic_names=["t"])
    assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_a_full_group_refuses_newcomers_only() -> None:
    rig = rig_with(group_consumer_max_size=2)
    rig.join("a", ["t"])
    rig.join("s", ["t"], instance_id="i")
    assert rig.join("b", ["t"]).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert rig.join("a", ["t"]).error_code == ErrorCode.NONE
    assert rig.beat("s", -2, instance_id="i").error_code == ErrorCode.NONE
    assert rig.join("s2", ["t"], instance_id="i").error_code == ErrorCode.NONE


def test_a_static_member_may_repeat_its_own_join() -> None:
    rig = rig_with()
    first = rig.join("s", ["t"], instance_id="i")
    again = rig.join("s", ["t"], instance_id="i")
    assert (again.error_code, again.member_epoch) == (ErrorCode.NONE, first.member_epoch)
    assert rig.join("other", ["t"], instance_id="i").error_code == ErrorCode.UNRELEASED_INSTANCE_ID


def test_a_member_that_changes_its_instance_id_releases_the_old_one() -> None:
    rig = rig_with()
    rig.join("s", ["t"], instance_id="i")
    assert rig.join("s", ["t"], instance_id="j").error_code == ErrorCode.NONE
    assert rig.join("other", ["t"], instance_id="i").error_code == ErrorCode.NONE
    assert rig.beat("s", -1, instance_id="j").error_code == ErrorCode.NONE
    assert rig.group.engine.roster.static_ids == {"i": "other"}
    rig.check_replay()


def test_a_refused_request_changes_nothing() -> None:
    rig = rig_with()
    rig.join("a", ["t"])
    written = len(rig.log)
    rig.beat("a", 9, owned=set())
    rig.beat("a", 2, subscribed_topic_regex="(")
    rig.beat("a", 2, server_assignor="nope")
    assert len(rig.log) == written


# -- epochs and targets ------------------------------------------------------------------------


def test_the_epoch_is_bumped_by_real_changes_only() -> None:
    rig = rig_with()
    rig.join("a", ["t"])
    rig.beat("a", 2, rebalance_timeout_ms=5, rack_id="r", subscribed_topic_names=["t", "t"])
    rig.create("other", 3)
    assert rig.group.engine.roster.epoch == 2
    rig.beat("a", 2, subscribed_topic_names=["t", "other"])
    assert rig.group.engine.roster.epoch == 3


def test_the_assignor_is_what_most_members_want() -> None:
    rig = rig_with()
    rig.join("a", ["t"], server_assignor="range")
    rig.join("b", ["t"])
    assert rig.group.describe_consumer().assignor_name == "range"
    rig.join("c", ["t"], server_assignor="uniform")
    rig.join("d", ["t"], server_assignor="uniform")
    assert rig.group.describe_consumer().assignor_name == "uniform"


def test_members_that_come_together_cost_one_assignment() -> None:
    rig = rig_with(group_consumer_assignment_interval_ms=1_000)
    assert rig.named(rig.join("a", ["t"])) == {("t", n) for n in range(4)}
    rig.advance(100)
    for n in range(10):
        assert rig.join(f"b{n}", ["t"]).member_epoch == 2
    assert rig.group.state_name == "Assigning"
    rig.advance(899)
    assert rig.group.state_name == "Assigning"
    rig.advance(1)
    assert rig.group.state_name == "Reconciling"
    targets = [decode(r.key, r.value) for r in rig.log]
    epochs = [
        d for d in targets if d and isinstance(d.key, ConsumerGroupTargetAssignmentMetadataKey)
    ]
    assert len(epochs) == 2


def test_partitions_of_an_unsubscribed_topic_go_before_the_next_target() -> None:
    rig = rig_with(group_consumer_assignment_interval_ms=1_000)
    rig.create("u", 1)
    rig.join("a", ["t", "u"])
    rig.advance(10)
    answer = rig.beat("a", 2, subscribed_topic_names=["t"], owned={("t", 0), ("u", 0)})
    assert rig.group.state_name == "Assigning"
    assert rig.named(answer) == {("t", n) for n in range(4)}


def test_a_rebalance_of_many_members_moves_only_what_must_move() -> None:
    rig = rig_with(1_000)
    epochs: dict[str, int] = {}
    owned: dict[str, set[tuple[str, int]]] = {}

    def settle() -> int:
        given_up = 0
        for _ in range(3):
            for m in epochs:
                answer = rig.beat(m, epochs[m], owned=owned[m])
                epochs[m] = answer.member_epoch
                got = rig.named(answer)
                if got is not None:
                    given_up += len(owned[m] - got)
                    owned[m] = got
        return given_up

    for n in range(100):
        member = f"m{n:02}"
        epochs[member] = rig.join(member, ["t"]).member_epoch
        owned[member] = set()
    settle()
    assert rig.group.state_name == "Stable"
    epochs["late"] = rig.join("late", ["t"]).member_epoch
    owned["late"] = set()
    assert settle() == 9
    assert rig.group.state_name == "Stable"


# -- offsets and admin -------------------------------------------------------------------------


def test_a_group_may_have_settings_of_its_own() -> None:
    rig = rig_with()
    own = {"consumer.session.timeout.ms": "20000", "consumer.heartbeat.interval.ms": "700"}
    rig.shard.environment.overrides = lambda group_id: own if group_id == GROUP else {}
    assert rig.join("a", ["t"]).heartbeat_interval_ms == 700
    rig.advance(19_999)
    assert "a" in rig.group.engine.roster.members
    own["consumer.session.timeout.ms"] = "30000"
    assert rig.beat("a", 2).error_code == 0
    rig.advance(29_999)
    assert "a" in rig.group.engine.roster.members, "the next heartbeat begins the new time"
    rig.advance(1)
    assert rig.group.is_empty


def may_commit(
    rig: Rig, member_id: str, epoch: int, version: int = 9, *, transactional: bool = False
) -> ErrorCode:
    """Whether a commit for all partitions of `t` is accepted."""
    count = rig.topics.partition_count("t") or 0
    topic_id = rig.topics.topic_id("t")
    assert topic_id is not None
    committer = Committer(member_id, None, epoch, version, transactional)
    return rig.group.validate_offset_commit(committer, [(topic_id, n) for n in range(count)])


def test_commits_and_fetches_name_the_present_epoch() -> None:
    rig = rig_with()
    rig.join("a", ["t"])
    assert may_commit(rig, "a", 2) is ErrorCode.NONE
    assert may_commit(rig, "a", 0) is ErrorCode.STALE_MEMBER_EPOCH
    assert may_commit(rig, "a", 3) is ErrorCode.STALE_MEMBER_EPOCH
    assert may_commit(rig, "x", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert may_commit(rig, "", -1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert may_commit(rig, "a", 2, 8) is ErrorCode.UNSUPPORTED_VERSION
    group = rig.group
    assert group.validate_offset_fetch(None, -1) is ErrorCode.NONE
    assert group.validate_offset_fetch("a", 2) is ErrorCode.NONE
    assert group.validate_offset_fetch("a", 0) is ErrorCode.STALE_MEMBER_EPOCH
    assert group.validate_offset_fetch("x", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    rig.beat("a", -1)
    assert may_commit(rig, "", -1, 2) is ErrorCode.NONE


def test_a_classic_member_commits_by_generation() -> None:
    rig = rig_with()
    rig.join("a", ["t"])
    rig.send(classic_join("c"), 1)
    assert may_commit(rig, "c", 3, 2) is ErrorCode.NONE
    assert may_commit(rig, "c", 2, 2) is ErrorCode.ILLEGAL_GENERATION
    assert may_commit(rig, "c", 4, 2) is ErrorCode.ILLEGAL_GENERATION


def test_an_older_epoch_commits_what_was_held_in_it() -> None:
    rig = rig_with(partitions=2)
    topic_id = rig.topics.topic_id("t")
    assert topic_id is not None
    both = {(topic_id, 0): 5, (topic_id, 1): 7}
    rig.join("a", ["t"])
    [member] = rig.group.engine.roster.members.values()
    member.progress = Progress(epoch=9, assigned=both)
    assert may_commit(rig, "a", 9) is ErrorCode.NONE
    assert may_commit(rig, "a", 7) is ErrorCode.NONE
    assert may_commit(rig, "a", 6) is ErrorCode.STALE_MEMBER_EPOCH
    assert may_commit(rig, "a", 10) is ErrorCode.STALE_MEMBER_EPOCH
    first = Committer("a", None, 6, 9, transactional=False)
    assert rig.group.validate_offset_commit(first, [(topic_id, 0)]) is ErrorCode.NONE
    assert rig.group.validate_offset_commit(first, [(topic_id, 1)]) is ErrorCode.STALE_MEMBER_EPOCH
    assert rig.group.validate_offset_commit(first, [(topic_id, 2)]) is ErrorCode.STALE_MEMBER_EPOCH
    member.progress = Progress(epoch=9, assigned={(topic_id, 0): 5}, revoking={(topic_id, 1): 7})
    assert may_commit(rig, "a", 8) is ErrorCode.NONE, "what is to be given up may be committed"


def test_a_transaction_may_not_say_who_commits() -> None:
    rig = rig_with()
    rig.join("a", ["t"])
    assert may_commit(rig, "", -1, 2, transactional=True) is ErrorCode.NONE
    assert may_commit(rig, "", -2, 3, transactional=True) is ErrorCode.UNKNOWN_MEMBER_ID
    assert may_commit(rig, "x", -1, 3, transactional=True) is ErrorCode.UNKNOWN_MEMBER_ID
    assert may_commit(rig, "a", 2, 3, transactional=True) is ErrorCode.NONE
    assert may_commit(rig, "a", 1, 3, transactional=True) is ErrorCode.STALE_MEMBER_EPOCH


def test_subscribed_topics_are_known() -> None:
    rig = rig_with()
    rig.join("a", ["t"])
    rig.join("b", None, subscribed_topic_regex="u.*")
    rig.create("u1", 1)
    assert rig.group.is_subscribed("t")
    assert rig.group.is_subscribed("u1")
    assert not rig.group.is_subscribed("v")


def test_only_an_empty_group_is_deleted_and_nothing_is_left_of_it() -> None:
    rig = rig_with()
    rig.join("a", None, subscribed_topic_regex="t")
    delete = DeleteGroupsRequest(groups_names=[GROUP])
    assert rig.send(delete, 2).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    rig.beat("a", -1)
    assert rig.send(delete, 2).results[0].error_code == ErrorCode.NONE
    last = {record.key: record.value for record in rig.log}
    assert set(last.values()) == {None}
    assert not rig.rebuilt().groups


def test_listed_as_a_consumer_group() -> None:
    rig = rig_with()
    rig.join("a", ["t"])
    (listed,) = rig.send(ListGroupsRequest(types_filter=["consumer"]), 5).groups
    assert (listed.group_id, listed.group_state, listed.protocol_type) == (
        GROUP,
        "Stable",
        "consumer",
    )


# -- the log -----------------------------------------------------------------------------------


def test_a_record_of_an_older_coordinator_is_taken_back_with_the_group() -> None:
    rig = rig_with()
    rig.log += [
        encode(ConsumerGroupMetadataKey(group_id=GROUP), ConsumerGroupMetadataValue(epoch=3)),
        encode(
            ConsumerGroupPartitionMetadataKey(group_id=GROUP), ConsumerGroupPartitionMetadataValue()
        ),
    ]
    rig.fail_over()
    keys = [decode(r.key, r.value) for r in rig.group.tombstones()]
    assert any(d and isinstance(d.key, ConsumerGroupPartitionMetadataKey) for d in keys)


def test_partitions_without_epochs_are_read_with_the_members_epoch() -> None:
    rig = rig_with()
    rig.join("a", ["t"])
    rig.log.append(
        encode(
            ConsumerGroupCurrentMemberAssignmentKey(group_id=GROUP, member_id="a"),
            ConsumerGroupCurrentMemberAssignmentValue(
                member_epoch=1,
                previous_member_epoch=0,
                state=MemberState.STABLE,
                assigned_partitions=[
                    TopicPartitions(topic_id=rig.topics.ids["t"], partitions=[0, 1, 2, 3])
                ],
            ),
        )
    )
    rig.fail_over()
    assert set(rig.group.engine.roster.members["a"].progress.assigned.values()) == {1}


def test_a_member_in_a_state_of_the_future_is_fenced_until_it_owns_nothing() -> None:
    rig = rig_with()
    rig.join("a", ["t"])
    member = rig.group.engine.roster.members["a"]
    rig.group.engine.roster.advance(member, Progress(epoch=2, state=MemberState.UNKNOWN))
    assert rig.beat("a", 2).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert rig.beat("a", 2, owned={("t", 0)}).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert rig.named(rig.beat("a", 2, owned=set())) == {("t", n) for n in range(4)}


def test_topics_that_changed_while_nobody_watched_are_found_on_loading() -> None:
    rig = rig_with()
    rig.join("a", ["t"])
    rig.topics.counts["t"] = 6
    rig.fail_over()
    assert rig.named(rig.beat("a", 2, owned=set())) == {("t", n) for n in range(6)}


def test_timers_are_set_again_after_a_fail_over() -> None:
    rig = rig_with(group_consumer_session_timeout_ms=10_000)
    rig.join("a", ["t"])
    rig.advance(9_000)
    rig.fail_over()
    rig.advance(9_999)
    assert not rig.group.is_empty
    rig.advance(1)
    assert rig.group.is_empty


def test_two_owners_of_one_partition_break_the_invariants() -> None:
    rig = rig_with()
    rig.join("a", ["t"])
    rig.join("b", ["t"])
    roster = rig.group.engine.roster
    stolen = roster.members["a"].progress.assigned
    with pytest.raises(InvariantBroken):
        roster.advance(roster.members["b"], Progress(epoch=1, assigned=stolen))


# -- moving between the protocols --------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "up", "down"),
    [
        ("disabled", False, False),
        ("upgrade", True, False),
        ("downgrade", False, True),
        ("bidirectional", True, True),
    ],
)
def test_the_policy_decides(policy: str, up: bool, down: bool) -> None:
    rig = rig_with(group_consumer_migration_policy=policy, group_initial_rebalance_delay_ms=0)
    rig.start(classic_join("", "i"), 5)
    code = rig.join("a", ["t"]).error_code
    assert code == (ErrorCode.NONE if up else ErrorCode.GROUP_ID_NOT_FOUND)
    assert rig.shard.groups[GROUP].group_type == ("consumer" if up else "classic")

    other = rig_with(group_consumer_migration_policy=policy)
    other.join("a", ["t"])
    other.send(classic_join("c"), 1)
    other.beat("a", -1)
    assert other.shard.groups[GROUP].group_type == ("classic" if down else "consumer")
    other.check_replay()


def test_a_group_of_no_consumers_cannot_be_upgraded() -> None:
    rig = rig_with(group_initial_rebalance_delay_ms=0)
    request = classic_join("", "i")
    request.protocol_type = "connect"
    rig.start(request, 5)
    assert rig.join("a", ["t"]).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert rig.shard.groups[GROUP].group_type == "classic"


def test_a_group_too_large_cannot_be_upgraded() -> None:
    rig = rig_with(group_initial_rebalance_delay_ms=0, group_consumer_max_size=1)
    rig.start(classic_join("", "i"), 5)
    assert rig.join("a", ["t"]).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert rig.shard.groups[GROUP].group_type == "classic"


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_classic_members_are_answered_in_their_version(version: int) -> None:
    rig = rig_with()
    rig.join("a", ["t"])
    generation = rig.send(classic_join("c", version=version), 4).generation_id
    rig.beat("a", 2, owned={("t", 0), ("t", 1)})
    rig.beat("a", 2, owned={("t", 0), ("t", 1)})
    rig.send(classic_join("c", version=version), 4)
    answer = rig.send(SyncGroupRequest(group_id=GROUP, generation_id=generation, member_id="c"), 3)
    assert answer.assignment[:2] == version.to_bytes(2, "big")
    assert assignment(answer.assignment) == {("t", 2), ("t", 3)}


@pytest.mark.parametrize("metadata", [b"", b"\x00", b"\x00\x01\x00\x00\x00\x09", b"\xff\xff\x00"])
def test_broken_metadata_of_a_classic_member_is_refused(metadata: bytes) -> None:
    rig = rig_with()
    rig.join("a", ["t"])
    request = classic_join("c")
    request.protocols[0].metadata = metadata
    assert rig.send(request, 4).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert list(rig.group.engine.roster.members) == ["a"]
