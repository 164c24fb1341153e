"""A shard's table of groups: who is made, found, listed, described, dropped, and brought back."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from penstock.coordinator.effects import Effects, SetTimer
from penstock.coordinator.refusals import REFUSALS, refuse
from penstock.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.wire.messages.delete_groups import DeleteGroupsRequest
from penstock.wire.messages.describe_groups import DescribeGroupsRequest
from penstock.wire.messages.heartbeat import HeartbeatRequest
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.wire.messages.list_groups import ListGroupsRequest
from penstock.wire.messages.offset_delete import OffsetDeleteRequest
from penstock.wire.messages.offset_fetch import OffsetFetchRequest
from penstock.wire.messages.sync_group import SyncGroupRequest
from penstock.wire.schema import Message
from unit.coordinator.rig import ShardRig


def join_request(group: str, **fields: Any) -> JoinGroupRequest:
    request = {
        "group_id": group,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol(name="range", metadata=b"")],
    }
    return JoinGroupRequest(**{**request, **fields})


def first_timer(effects: Effects) -> SetTimer:
    set_ = [timer for timer in effects.timers if isinstance(timer, SetTimer)]
    return min(set_, key=lambda timer: timer.deadline_ms)


def joined(rig: ShardRig, group: str = "g") -> str:
    """A classic group whose only member has joined; its id."""
    effects = rig.send(join_request(group), version=2)
    while not effects.replies:
        timer = first_timer(effects)
        rig.now_ms = timer.deadline_ms
        effects = rig.take(rig.shard.on_timer(timer.key, rig.now_ms))
    [reply] = effects.replies
    response: Any = reply.response
    assert response.error_code == 0
    rig.ask(
        SyncGroupRequest(
            group_id=group, member_id=response.member_id, generation_id=response.generation_id
        ),
        version=0,
    )
    return str(response.member_id)


def heartbeat(rig: ShardRig, group: str, **fields: Any) -> Any:
    request = {"member_id": "", "member_epoch": 0, "rebalance_timeout_ms": 10_000}
    request |= {"subscribed_topic_names": ["t"], "topic_partitions": []}
    return rig.ask(ConsumerGroupHeartbeatRequest(group_id=group, **{**request, **fields}))


def listed(rig: ShardRig, **filters: list[str]) -> dict[str, tuple[str, str, str]]:
    answer = rig.ask(ListGroupsRequest(**filters))
    return {g.group_id: (g.group_type, g.group_state, g.protocol_type) for g in answer.groups}


# -- finding a group -------------------------------------------------------------------------------


def test_members_of_a_group_that_is_not_there() -> None:
    rig = ShardRig()
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.ask(join_request("g", member_id="m")).error_code == unknown
    assert rig.ask(SyncGroupRequest(group_id="g", member_id="m")).error_code == unknown
    assert rig.ask(HeartbeatRequest(group_id="g", member_id="m")).error_code == unknown
    assert rig.ask(LeaveGroupRequest(group_id="g", member_id="m"), version=2).error_code == unknown
    several = rig.ask(LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="m")]))
    assert (several.error_code, several.members[0].error_code) == (0, unknown)
    assert heartbeat(rig, "g", member_id="m", member_epoch=4).error_code != 0
    assert rig.shard.groups == {}


def test_requests_without_a_group() -> None:
    rig = ShardRig()
    invalid = ErrorCode.INVALID_GROUP_ID
    assert rig.ask(join_request("")).error_code == invalid
    assert rig.ask(HeartbeatRequest(member_id="m")).error_code == invalid
    assert rig.ask(OffsetDeleteRequest()).error_code == invalid
    # What only stores and reads offsets may do without a name, as it always could.
    assert rig.commit("", {("t", 0): 1}) == [0]
    [nameless] = rig.ask(DescribeGroupsRequest(groups=[""])).groups
    assert (nameless.error_code, nameless.group_state) == (0, "Empty")


@pytest.mark.parametrize("timeout_ms", [5_999, 1_800_001, -1])
def test_session_timeouts_out_of_bounds(timeout_ms: int) -> None:
    answer = ShardRig().ask(join_request("g", session_timeout_ms=timeout_ms))
    assert answer.error_code == ErrorCode.INVALID_SESSION_TIMEOUT


# -- both kinds beside each other ------------------------------------------------------------------


def test_groups_are_listed_by_state_and_type() -> None:
    rig = ShardRig()
    rig.commit("simple", {("t", 0): 1})
    joined(rig, "classic")
    assert heartbeat(rig, "consumer", member_id="m").error_code == 0
    every = listed(rig)
    assert every["simple"] == ("classic", "Empty", "")
    assert every["classic"] == ("classic", "Stable", "consumer")
    assert every["consumer"][0] == "consumer"
    assert every["consumer"][2] == "consumer"
    assert set(listed(rig, types_filter=["Classic"])) == {"simple", "classic"}
    assert set(listed(rig, types_filter=["consumer"])) == {"consumer"}
    assert set(listed(rig, states_filter=["empty"])) == {"simple"}
    assert set(listed(rig, states_filter=["Stable"], types_filter=["classic"])) == {"classic"}
    assert set(listed(rig, types_filter=["nonsense"])) == set()


def test_descriptions_ask_for_the_right_kind() -> None:
    rig = ShardRig()
    member = joined(rig, "classic")
    heartbeat(rig, "consumer", member_id="m")
    answer = rig.ask(DescribeGroupsRequest(groups=["classic", "consumer", "none"]))
    found, other, missing = answer.groups
    assert (found.error_code, found.group_state, found.members[0].member_id) == (
        0,
        "Stable",
        member,
    )
    for dead in (other, missing):
        assert dead.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert dead.group_state == "Dead"
    older = rig.ask(DescribeGroupsRequest(groups=["none"]), version=5).groups[0]
    assert (older.error_code, older.group_state) == (0, "Dead")
    answer = rig.ask(ConsumerGroupDescribeRequest(group_ids=["consumer", "classic", "none"]))
    found, other, missing = answer.groups
    assert (found.error_code, found.members[0].member_id) == (0, "m")
    assert other.error_code == missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_groups_with_members_are_not_deleted() -> None:
    rig = ShardRig()
    joined(rig, "classic")
    heartbeat(rig, "consumer", member_id="m")
    answer = rig.ask(DeleteGroupsRequest(groups_names=["classic", "consumer"]))
    assert {r.error_code for r in answer.results} == {ErrorCode.NON_EMPTY_GROUP}
    assert set(rig.shard.groups) == {"classic", "consumer"}


def test_members_of_both_kinds_commit_with_what_they_were_given() -> None:
    rig = ShardRig()
    member = joined(rig, "classic")
    good = {"member_id": member, "generation_id_or_member_epoch": 1}
    assert rig.commit("classic", {("t", 0): 1}, **good) == [0]
    assert rig.commit("classic", {("t", 0): 2}, **{**good, "generation_id_or_member_epoch": 7}) == [
        ErrorCode.ILLEGAL_GENERATION
    ]
    assert rig.commit("classic", {("t", 0): 2}, **{**good, "member_id": "x"}) == [
        ErrorCode.UNKNOWN_MEMBER_ID
    ]
    epoch = heartbeat(rig, "consumer", member_id="m").member_epoch
    good = {"member_id": "m", "generation_id_or_member_epoch": epoch}
    assert rig.commit("consumer", {("t", 0): 1}, **good) == [0]
    wrong = {**good, "generation_id_or_member_epoch": epoch + 3}
    assert rig.commit("consumer", {("t", 0): 2}, **wrong) == [ErrorCode.STALE_MEMBER_EPOCH]


# -- replay and the end ----------------------------------------------------------------------------


def test_a_replay_brings_back_both_kinds_and_their_timers() -> None:
    rig = ShardRig()
    member = joined(rig, "classic")
    heartbeat(rig, "consumer", member_id="m")
    rig.commit("simple", {("t", 0): 1})
    before = listed(rig)
    rig.shard = rig._new()
    for logged in rig.log:
        logged.replay(rig.shard)
    timers = {timer.key[0] for timer in rig.shard.loaded(rig.now_ms).timers}
    assert listed(rig) == before
    assert timers == {"classic", "consumer"}
    beat = HeartbeatRequest(group_id="classic", member_id=member, generation_id=1)
    assert rig.ask(beat).error_code == 0
    rig.shard.invariants()


def test_records_of_other_kinds_of_groups_are_left_alone() -> None:
    rig = ShardRig()
    rig.shard.replay(b"\x00\x7f" + b"unknown", b"\x00\x00", 0)
    assert rig.shard.groups == {}


def test_whoever_waits_is_answered_when_the_shard_is_given_up() -> None:
    rig = ShardRig()
    effects = rig.send(join_request("g"), version=2)
    assert not effects.replies
    [reply] = rig.shard.unload()
    response: Any = reply.response
    assert response.error_code == ErrorCode.NOT_COORDINATOR


def test_a_timer_of_a_group_that_is_gone_does_nothing() -> None:
    assert not ShardRig().shard.on_timer(("gone", "session", "m"), 0)


@pytest.mark.parametrize("request_type", REFUSALS, ids=lambda cls: cls.__name__)
def test_every_request_can_be_refused_in_every_version(request_type: type[Message]) -> None:
    for version in request_type.VERSIONS:
        answer = refuse(request_type(), version, ErrorCode.NOT_COORDINATOR)
        if request_type is not OffsetFetchRequest:  # brought into its version above the shard
            answer.encode(version)
