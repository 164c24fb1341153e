"""What scenario files cannot show well: versions, records, offsets' rules, the end of a group."""

from __future__ import annotations

import pytest

from penstock.base.errors import ErrorCode, InvariantBroken
from penstock.coordinator.classic import ClassicGroup, State
from penstock.coordinator.classic.states import MOVES
from penstock.coordinator.effects import Caller, CoordinatorRecord
from penstock.coordinator.group import Committer
from penstock.coordinator.records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    decode,
)
from penstock.wire.messages.heartbeat import HeartbeatRequest
from penstock.wire.messages.join_group import JoinGroupRequest
from penstock.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.wire.messages.sync_group import SyncGroupRequest
from unit.coordinator_classic.rig import (
    GROUP,
    Rig,
    join_request,
    replayed,
    snapshot,
    subscription,
)


def code_of(answer: object) -> ErrorCode:
    return ErrorCode(answer.error_code)  # type: ignore[attr-defined]


# -- versions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", JoinGroupRequest.VERSIONS)
def test_every_version_of_join_group_leads_to_a_generation(version: int) -> None:
    rig = Rig()
    first = rig.join(version=version)
    if version >= 4:
        assert code_of(first) is ErrorCode.MEMBER_ID_REQUIRED
        assert first.generation_id == -1
        assert first.protocol_name == (None if version >= 7 else "")
        first = rig.join(first.member_id, version=version)
    assert first in rig.waiting
    rig.advance(3_000)
    joined = rig.answers[first]
    assert code_of(joined) is ErrorCode.NONE
    assert (joined.generation_id, joined.protocol_name) == (1, "range")
    assert joined.protocol_type == ("consumer" if version >= 7 else None)
    assert joined.leader == joined.member_id == joined.members[0].member_id
    assert joined.members[0].metadata == subscription(["a"])


def test_version_0_has_one_timeout_for_both() -> None:
    rig = Rig()
    rig.join(version=0, session_ms=7_000, rebalance_ms=-1)
    (member,) = rig.group.roster
    assert member.rebalance_timeout_ms == 7_000


@pytest.mark.parametrize("version", SyncGroupRequest.VERSIONS)
def test_every_version_of_sync_group_brings_the_assignment(version: int) -> None:
    rig = Rig()
    (member_id,) = rig.stable(1)
    answer = rig.sync(member_id, version=version)
    assert answer.assignment == f"of {member_id}".encode()
    assert answer.protocol_name == ("range" if version >= 5 else None)


def test_sync_group_must_name_its_protocol_from_version_5_on() -> None:
    rig = Rig()
    (member_id,) = rig.stable(1)
    for parts in ({"protocol_type": None}, {"protocol_name": None}):
        answer = rig.sync(member_id, version=5, **parts)
        assert code_of(answer) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert code_of(rig.sync(member_id, version=4, **parts)) is ErrorCode.NONE


@pytest.mark.parametrize("version", HeartbeatRequest.VERSIONS)
def test_every_version_of_heartbeat_keeps_a_member(version: int) -> None:
    rig = Rig()
    (member_id,) = rig.stable(1)
    for _ in range(5):
        rig.advance(9_999)
        request = HeartbeatRequest(group_id=GROUP, generation_id=1, member_id=member_id)
        assert code_of(rig.ask(request, version)) is ErrorCode.NONE
    rig.advance(9_999)
    assert rig.group.state is State.STABLE
    rig.advance(1)
    assert rig.group.state is State.EMPTY


@pytest.mark.parametrize("version", LeaveGroupRequest.VERSIONS)
def test_every_version_of_leave_group_lets_members_go(version: int) -> None:
    rig = Rig()
    first, second = rig.stable(2)
    if version < 3:
        request = LeaveGroupRequest(group_id=GROUP, member_id=second)
    else:
        request = LeaveGroupRequest(
            group_id=GROUP,
            members=[MemberIdentity(member_id=second), MemberIdentity(member_id="ghost")],
        )
    answer = rig.ask(request, version)
    assert code_of(answer) is ErrorCode.NONE
    codes = [code_of(m) for m in answer.members]
    assert codes == ([] if version < 3 else [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID])
    assert list(rig.group.roster.members) == [first]
    assert rig.group.state is State.PREPARING_REBALANCE


# -- JoinGroup ---------------------------------------------------------------------------------


def test_the_same_protocols_in_another_order_are_another_offer() -> None:
    rig = Rig()
    meta = subscription(["a"])
    _, second = rig.stable(2, protocols={"range": meta, "sticky": meta})
    assert rig.join(second, protocols={"range": meta, "sticky": meta}).generation_id == 1
    rig.join(second, protocols={"sticky": meta, "range": meta})
    assert rig.group.state is State.PREPARING_REBALANCE


def test_an_id_given_to_a_dynamic_member_is_not_for_a_static_one() -> None:
    rig = Rig()
    given = rig.join().member_id
    answer = rig.join(given, instance="one")
    assert code_of(answer) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert given in rig.group.roster.pending


def test_members_ids_begin_with_what_people_know() -> None:
    rig = Rig()
    assert rig.join(client="app").member_id == "app-00000000-0000-0000-0000-000000000001"
    rig.join(client="app", instance="node-7")
    assert list(rig.group.roster.members) == ["node-7-00000000-0000-0000-0000-000000000002"]


def test_a_member_that_the_leader_forgot_gets_nothing() -> None:
    rig = Rig()
    first, second = rig.stable(2)
    rig.join(first)
    rig.join(second)
    rig.sync(first, {first: b"all"})
    assert rig.sync(second).assignment == b""
    assert rig.group.roster.members[second].assignment == b""


def test_an_assignment_for_a_stranger_is_dropped() -> None:
    rig = Rig()
    (member_id,) = rig.stable(1)
    rig.join(member_id)
    rig.sync(member_id, {member_id: b"x", "ghost": b"y"})
    assert rig.group.state is State.STABLE
    assert list(rig.group.roster.members) == [member_id]


def test_the_sync_group_of_a_member_that_leaves_is_answered() -> None:
    rig = Rig()
    for _ in range(2):
        rig.join(version=3)
    rig.advance(6_000)
    _, follower = rig.group.roster.members
    token = rig.sync(follower)
    rig.leave(MemberIdentity(member_id=follower))
    assert code_of(rig.answers[token]) is ErrorCode.UNKNOWN_MEMBER_ID


# -- offsets -----------------------------------------------------------------------------------


def test_a_member_with_a_known_subscription_guards_its_topics() -> None:
    rig = Rig()
    rig.stable(2, protocols={"range": subscription(["a", "b"], version=3)})
    assert rig.group.is_subscribed("b")
    assert not rig.group.is_subscribed("c")
    assert rig.group.expiration_base_ms(5) == 5


@pytest.mark.parametrize("metadata", [b"", b"\x00", b"\x00\x00\x00\x00\x00\x09", b"\xff" * 20])
def test_a_subscription_that_cannot_be_read_guards_all_topics(metadata: bytes) -> None:
    rig = Rig()
    rig.stable(1, protocols={"range": metadata})
    assert rig.group.is_subscribed("whatever")
    assert rig.group.expiration_base_ms(5) is None


def test_members_of_another_protocol_guard_no_topics() -> None:
    rig = Rig()
    rig.stable(1, protocol_type="connect")
    assert not rig.group.is_subscribed("a")
    assert rig.group.expiration_base_ms(5) is None
    assert rig.group.validate_offset_delete() is ErrorCode.NON_EMPTY_GROUP


def test_the_offsets_of_an_empty_group_live_from_its_end() -> None:
    rig = Rig()
    assert rig.group.expiration_base_ms(5) == 5
    rig.stable(1)
    rig.advance(10_000)
    assert rig.group.state is State.EMPTY
    assert rig.group.expiration_base_ms(5) == rig.now
    assert rig.group.validate_offset_delete() is ErrorCode.NONE
    assert replayed(rig.log, rig.environment).expiration_base_ms(5) == rig.now


def test_a_commit_counts_as_a_sign_of_life() -> None:
    rig = Rig()
    (member_id,) = rig.stable(1)
    rig.advance(9_000)
    rig.apply(rig.group.offsets_committed(member_id, rig.now))
    rig.advance(9_000)
    assert rig.group.state is State.STABLE
    assert not rig.group.offsets_committed("ghost", rig.now)


# -- records -----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", GroupMetadataValue.VERSIONS)
def test_every_version_of_the_record_is_taken_up(version: int) -> None:
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=7,
        protocol="range",
        leader="m2",
        current_state_timestamp=99,
        members=[
            MemberMetadata(
                member_id=f"m{n}",
                group_instance_id=f"i{n}",
                client_id="c",
                client_host="h",
                rebalance_timeout=500,
                session_timeout=100,
                subscription=subscription(["a"]),
                assignment=bytes([n]),
            )
            for n in (1, 2)
        ],
    )
    rig = Rig()
    group = ClassicGroup(GROUP, rig.environment)
    stored = GroupMetadataValue.decode(value.encode(version), version)
    group.replay(GroupMetadataKey(group=GROUP), stored, 0)
    group.invariants()
    assert (group.state, group.generation, group.roster.leader_id) == (State.STABLE, 7, "m2")
    assert group.roster.members["m1"].rebalance_timeout_ms == (100 if version == 0 else 500)
    assert group.state_since_ms == (-1 if version < 2 else 99)
    assert list(group.roster.static_ids) == ([] if version < 3 else ["i1", "i2"])
    assert group.is_subscribed("a")
    timers = {t.key[1:]: t.deadline_ms for t in group.loaded(1_000).timers}  # type: ignore[union-attr]
    assert timers == {("session", "m1"): 1_100, ("session", "m2"): 1_100}


def test_a_stable_group_is_what_its_last_record_says() -> None:
    rig = Rig()
    rig.stable(3)
    assert snapshot(replayed(rig.log[-1:], rig.environment)) == snapshot(rig.group)


def test_only_what_must_be_known_after_a_fail_over_is_written() -> None:
    rig = Rig()
    ids = rig.stable(3)
    written = len(rig.log)
    assert written == 2  # the group is there; its first generation has an assignment
    for member_id in ids:
        rig.heartbeat(member_id)
        rig.join(member_id)
    assert rig.group.state is State.COMPLETING_REBALANCE
    for member_id in ids[1:]:
        rig.sync(member_id)
    assert len(rig.log) == written
    rig.sync(ids[0], {})
    assert len(rig.log) == written + 1


def test_a_group_that_is_deleted_takes_its_record_back() -> None:
    rig = Rig()
    rig.stable(1)
    assert rig.group.validate_delete() is ErrorCode.NON_EMPTY_GROUP
    rig.advance(10_000)
    assert rig.group.is_empty
    assert rig.group.validate_delete() is ErrorCode.NONE
    (record,) = rig.group.tombstones()
    assert record == CoordinatorRecord(rig.log[-1].key, None)
    decoded = decode(*record)
    assert decoded is not None
    assert decoded.key == GroupMetadataKey(group=GROUP)


# -- states ------------------------------------------------------------------------------------


def test_a_dead_group_sends_everybody_away() -> None:
    rig = Rig()
    (member_id,) = rig.stable(1)
    group = rig.group
    assert not group.unpark(ErrorCode.NOT_COORDINATOR)
    caller = Caller(1, 5, "c", "h")
    for request in (
        join_request(member_id),
        join_request(),
        SyncGroupRequest(
            group_id=GROUP,
            member_id=member_id,
            generation_id=1,
            protocol_type="consumer",
            protocol_name="range",
        ),
        HeartbeatRequest(group_id=GROUP, member_id=member_id, generation_id=1),
        LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id=member_id)]),
    ):
        (reply,) = group.handle(request, caller, 0).replies
        assert code_of(reply.response) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    commit = group.validate_offset_commit(Committer(member_id, None, 1, 9, False), [])
    assert commit is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert group.validate_offset_fetch(None, -1) is ErrorCode.GROUP_ID_NOT_FOUND
    assert group.validate_delete() is ErrorCode.GROUP_ID_NOT_FOUND


def test_who_waits_is_told_when_the_coordinator_goes() -> None:
    rig = Rig()
    joins = [rig.join(version=3) for _ in range(2)]
    replies = rig.group.unpark(ErrorCode.NOT_COORDINATOR)
    assert [r.token for r in replies] == joins
    assert {code_of(r.response) for r in replies} == {ErrorCode.NOT_COORDINATOR}

    rig = Rig()
    for _ in range(2):
        rig.join(version=3)
    rig.advance(6_000)
    _, follower = rig.group.roster.members
    token = rig.sync(follower)
    (reply,) = rig.group.unpark(ErrorCode.NOT_COORDINATOR)
    assert (reply.token, code_of(reply.response)) == (token, ErrorCode.NOT_COORDINATOR)


def test_the_table_of_moves_is_held() -> None:
    rig = Rig()
    for state, allowed in MOVES.items():
        for following in State:
            group = ClassicGroup(GROUP, rig.environment)
            group.state = state
            if following in allowed:
                group._become(following, 1)
                assert (group.state, group.state_since_ms) == (following, 1)
            else:
                with pytest.raises(InvariantBroken, match="may not go"):
                    group._become(following, 1)


def test_timers_that_come_late_do_nothing() -> None:
    rig = Rig()
    ids = rig.stable(2)
    before = snapshot(rig.group)
    for key in (
        (GROUP, "join"),
        (GROUP, "sync"),
        (GROUP, "session", "ghost"),
        (GROUP, "join", ids[0]),  # as a consumer group sets it
    ):
        assert not rig.group.on_timer(key, rig.now)
    assert snapshot(rig.group) == before
    assert list(rig.group.roster.members) == ids
