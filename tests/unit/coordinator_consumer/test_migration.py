"""Both protocols in one group, as Kafka's ConsumerProtocolMigrationTest and LeaveGroupRequestTest
expect it.
"""

from __future__ import annotations

import struct
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.wire.messages.consumer_protocol import (
    AssignedTopicPartition,
    ConsumerProtocolAssignment,
)
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from unit.coordinator_consumer.rig import GROUP, Rig, subscription

INTERVAL_MS = 1_000
PARTITIONS = 3


def rig_with(**settings: Any) -> Rig:
    rig = Rig(group_initial_rebalance_delay_ms=0, **settings)
    rig.create("t", PARTITIONS)
    return rig


def classic_join(member_id: str, instance_id: str | None = None) -> JoinGroupRequest:
    protocol = JoinGroupRequestProtocol(name="range", metadata=subscription(["t"]))
    return JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=20_000,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type="consumer",
        protocols=[protocol],
    )


def stable_classic_group(rig: Rig, user_data: bytes | None = None) -> None:
    """A classic group whose only member has all partitions."""
    token = rig.start(classic_join("", "i"), 9)
    rig.advance(1)
    joined: Any = rig.answers[token]
    handed_out = ConsumerProtocolAssignment(
        assigned_partitions=[AssignedTopicPartition(topic="t", partitions=[*range(PARTITIONS)])],
        user_data=user_data,
    )
    assignment = struct.pack(">h", 1) + handed_out.encode(1)
    member_id: str = joined.member_id
    request = SyncGroupRequest(
        group_id=GROUP,
        generation_id=joined.generation_id,
        member_id=member_id,
        group_instance_id="i",
        protocol_type="consumer",
        protocol_name="range",
        assignments=[SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)],
    )
    assert rig.send(request, 5).error_code == ErrorCode.NONE


def test_the_first_target_after_an_upgrade_does_not_wait_for_the_interval() -> None:
    rig = rig_with(group_consumer_assignment_interval_ms=INTERVAL_MS)
    stable_classic_group(rig)
    joined = rig.join("a", ["t"])
    roster = rig.group.engine.roster
    assert roster.assignment_epoch == roster.epoch == joined.member_epoch
    assert rig.group.state_name == "Reconciling"
    rig.check_replay()


def test_the_second_target_waits_for_the_interval() -> None:
    rig = rig_with(group_consumer_assignment_interval_ms=INTERVAL_MS)
    stable_classic_group(rig)
    rig.join("a", ["t"])
    rig.join("b", ["t"])
    roster = rig.group.engine.roster
    assert roster.assignment_epoch == roster.epoch - 1
    rig.advance(INTERVAL_MS)
    assert roster.assignment_epoch == roster.epoch


def test_what_a_custom_assignor_keeps_in_assignments_forbids_the_upgrade() -> None:
    rig = rig_with()
    stable_classic_group(rig, user_data=b"\x00")
    answer = rig.join("a", ["t"])
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "unsupported custom assignor" in (answer.error_message or "")
    assert rig.shard.groups[GROUP].group_type == "classic"


def test_without_migration_no_classic_member_comes_to_a_consumer_group() -> None:
    rig = rig_with(group_consumer_migration_policy="disabled")
    rig.join("a", ["t"], instance_id="i")
    for member_id, instance_id in (("", None), ("c", None), ("", "other"), ("", "i")):
        answer = rig.send(classic_join(member_id, instance_id), 9)
        assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert list(rig.group.engine.roster.members) == ["a"]


def test_a_classic_member_that_is_refused_is_not_named() -> None:
    rig = rig_with()
    rig.join("a", ["t"])
    request = classic_join("c")
    request.protocol_type = "connect"
    answer = rig.send(request, 9)
    assert (answer.error_code, answer.member_id) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")


def test_members_of_the_consumer_protocol_are_removed_by_leave_group() -> None:
    rig = rig_with()
    for name in ("a", "b", "c"):
        rig.join(name, ["t"], instance_id=f"i-{name}")
    named = [("", "i-a"), ("b", "i-b"), ("c", None), ("a", "i-b"), ("stranger", None)]
    members = [MemberIdentity(member_id=m, group_instance_id=i) for m, i in named]
    answer = rig.send(LeaveGroupRequest(group_id=GROUP, members=members), 5)
    assert [(m.member_id, m.group_instance_id) for m in answer.members] == named
    assert [ErrorCode(m.error_code) for m in answer.members] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert rig.group.is_empty
    rig.check_replay()
