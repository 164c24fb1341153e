"""`ShareGroup`: a group whose members share partitions, record by record (KIP-932).

This module is the face towards the shard: requests, timers, loading, descriptions. A share group
has no committed offsets: what was consumed is kept by the share coordinator. So requests about
offsets find no group here. It stays when its last member has left, until it is deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final

from penstock.base.errors import ApiError, ErrorCode, invariant
from penstock.coordinator.consumer.engine import ASSIGN, SESSION
from penstock.coordinator.consumer.partitions import Partition, by_topic
from penstock.coordinator.effects import Caller, CoordinatorRecord, Effects, Reply, TimerKey
from penstock.coordinator.group import SHARE, Committer, Environment, Group
from penstock.coordinator.java_order import timeline_map_order
from penstock.coordinator.refusals import refuse
from penstock.coordinator.share_group import entries, heartbeat
from penstock.coordinator.share_group.assignor import SIMPLE
from penstock.coordinator.share_group.engine import Engine
from penstock.coordinator.share_group.roster import LEAVE_EPOCH, Member, Progress
from penstock.coordinator.share_group.states import StatePartitions
from penstock.coordinator.share_group_records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupMemberMetadataKey,
    ShareGroupMetadataKey,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMetadataKey,
)
from penstock.wire.messages import share_group_describe as describe
from penstock.wire.messages.join_group import JoinGroupRequest
from penstock.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from penstock.wire.schema import Message


class ShareGroup:
    """One share group; an empty one until something happens to it."""

    __slots__ = ("engine", "group_id", "group_type", "successor")

    def __init__(self, group_id: str, environment: Environment) -> None:
        self.group_id = group_id
        self.group_type = SHARE
        self.successor: Group | None = None
        self.engine = Engine(group_id, environment)

    @property
    def state_name(self) -> str:
        return "Empty" if self.is_empty else "Stable"

    @property
    def protocol_type(self) -> str:
        return SHARE

    @property
    def is_empty(self) -> bool:
        return not self.engine.roster.members

    @property
    def member_count(self) -> int:
        return len(self.engine.roster.members)

    @property
    def states(self) -> StatePartitions:
        """Which partitions have a state at the share coordinator."""
        return self.engine.roster.states

    # -- events --------------------------------------------------------------------------------

    def handle(self, request: Message, caller: Caller, now_ms: int) -> Effects:
        try:
            if isinstance(request, ShareGroupHeartbeatRequest):
                return self._heartbeat(request, caller, now_ms)
        except ApiError as e:
            return Effects.reply(caller, refuse(request, caller.version, e.code, e.message))
        # Members of the classic protocol have come to the wrong kind of group.
        code = ErrorCode.UNKNOWN_MEMBER_ID
        if isinstance(request, JoinGroupRequest):
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return Effects.reply(caller, refuse(request, caller.version, code))

    def _heartbeat(
        self, request: ShareGroupHeartbeatRequest, caller: Caller, now_ms: int
    ) -> Effects:
        if request.member_epoch == LEAVE_EPOCH:
            return heartbeat.leave(self.engine, request, caller)
        return heartbeat.heartbeat(self.engine, request, caller, now_ms)

    def on_timer(self, key: TimerKey, now_ms: int) -> Effects:
        effects = Effects()
        if key[1] == ASSIGN:
            self.engine.assign_if_due(effects, now_ms)
            return effects
        invariant(key[1] == SESSION, f"nobody has set a timer {key}")
        if key[2] in self.engine.roster.members:
            self.engine.leave(key[2], effects)
        return effects

    def topics_changed(self, names: frozenset[str], now_ms: int) -> Effects:
        effects = Effects()
        states = self.states
        known = {
            state.name for state in (*states.initializing.values(), *states.initialized.values())
        }
        known |= set(states.deleting.values()) | self.engine.roster.topic_names()
        if not names.isdisjoint(known):
            self.engine.topics_changed(effects)
        return effects

    def initialized(
        self, done: Collection[Partition], refused: Collection[Partition], now_ms: int
    ) -> Effects:
        """The share coordinator has answered an `Initialize`."""
        effects = Effects()
        self.engine.initialized(done, refused, effects, now_ms)
        return effects

    def unpark(self, code: ErrorCode) -> list[Reply]:
        """Nothing waits in a share group."""
        return []

    # -- loading -------------------------------------------------------------------------------

    def replay(self, key: Message, value: Message | None, timestamp: int) -> None:
        _REPLAYS[type(key)](self, key, value, timestamp)

    def loaded(self, now_ms: int) -> Effects:
        effects = Effects()
        for member in self.engine.roster.members.values():
            self.engine.heard_from(member, effects, now_ms)
        # Topics may have changed while nobody was watching.
        self.engine.topics_changed(effects)
        return effects

    def _replay_group(self, key: ShareGroupMetadataKey, value: Any, _: int) -> None:
        self.engine.roster.epoch = value.epoch
        self.engine.roster.metadata_hash = value.metadata_hash

    def _replay_target_epoch(
        self, key: ShareGroupTargetAssignmentMetadataKey, value: Any, _: int
    ) -> None:
        roster = self.engine.roster
        roster.assignment_epoch = 0 if value is None else value.assignment_epoch
        roster.assignment_ms = 0 if value is None else value.assignment_timestamp

    def _replay_profile(self, key: ShareGroupMemberMetadataKey, value: Any, _: int) -> None:
        roster = self.engine.roster
        if value is None:
            roster.remove(key.member_id)
        else:
            roster.member(key.member_id).profile = entries.profile_of(value)

    def _replay_progress(
        self, key: ShareGroupCurrentMemberAssignmentKey, value: Any, _: int
    ) -> None:
        roster = self.engine.roster
        if value is not None:
            roster.member(key.member_id).progress = entries.progress_of(value)
        elif key.member_id in roster.members:
            roster.members[key.member_id].progress = Progress()

    def _replay_target(self, key: ShareGroupTargetAssignmentMemberKey, value: Any, _: int) -> None:
        if value is None:
            self.engine.roster.target.pop(key.member_id, None)
        else:
            self.engine.roster.target[key.member_id] = entries.target_of(value)

    def _replay_states(
        self, key: ShareGroupStatePartitionMetadataKey, value: Any, timestamp: int
    ) -> None:
        roster = self.engine.roster
        roster.states = StatePartitions() if value is None else entries.states_of(value, timestamp)

    # -- descriptions --------------------------------------------------------------------------

    def describe_share(self) -> describe.DescribedGroup:
        roster = self.engine.roster
        return describe.DescribedGroup(
            group_id=self.group_id,
            group_state=self.state_name,
            group_epoch=roster.epoch,
            assignment_epoch=roster.assignment_epoch,
            assignor_name=SIMPLE,
            members=[
                self._describe_member(roster.members[member_id])
                for member_id in timeline_map_order(roster.members, roster.members_max)
            ],
        )

    def _describe_member(self, member: Member) -> describe.Member:
        profile, topics = member.profile, self.engine.environment.topics
        named = (
            (topic_id, topics.name_of(topic_id), numbers)
            for topic_id, numbers in by_topic(member.progress.assigned).items()
        )
        return describe.Member(
            member_id=member.member_id,
            rack_id=profile.rack_id,
            member_epoch=member.progress.epoch,
            client_id=profile.client_id,
            client_host=profile.client_host,
            subscribed_topic_names=list(profile.topic_names),
            assignment=describe.Assignment(
                topic_partitions=[
                    describe.TopicPartitions(topic_id=id_, topic_name=name, partitions=numbers)
                    for id_, name, numbers in named
                    if name is not None
                ]
            ),
        )

    # -- offsets, which other kinds of groups have ---------------------------------------------

    def validate_offset_commit(
        self, committer: Committer, partitions: Collection[Partition]
    ) -> ErrorCode:
        return ErrorCode.GROUP_ID_NOT_FOUND

    def offsets_committed(self, member_id: str, now_ms: int) -> Effects:
        return Effects()

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        return ErrorCode.GROUP_ID_NOT_FOUND

    def validate_offset_delete(self) -> ErrorCode:
        return ErrorCode.GROUP_ID_NOT_FOUND

    def is_subscribed(self, topic: str) -> bool:
        return topic in self.engine.roster.topic_names()

    def expiration_base_ms(self, commit_ms: int) -> int | None:
        return commit_ms

    # -- the end -------------------------------------------------------------------------------

    def validate_delete(self) -> ErrorCode:
        return ErrorCode.NONE if self.is_empty else ErrorCode.NON_EMPTY_GROUP

    def tombstones(self) -> list[CoordinatorRecord]:
        return entries.group_tombstones(self.group_id, self.engine.roster.members)

    def invariants(self) -> None:
        self.engine.roster.invariants()


_REPLAYS: Final[dict[type[Message], Callable[[ShareGroup, Any, Any, int], None]]] = {
    ShareGroupMetadataKey: ShareGroup._replay_group,
    ShareGroupTargetAssignmentMetadataKey: ShareGroup._replay_target_epoch,
    ShareGroupMemberMetadataKey: ShareGroup._replay_profile,
    ShareGroupCurrentMemberAssignmentKey: ShareGroup._replay_progress,
    ShareGroupTargetAssignmentMemberKey: ShareGroup._replay_target,
    ShareGroupStatePartitionMetadataKey: ShareGroup._replay_states,
}
