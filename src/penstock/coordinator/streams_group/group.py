"""`StreamsGroup`: a group whose members run the tasks of one topology (KIP-1071).

This module is the face towards the shard: requests, timers, loading, descriptions, offsets. A
streams group stays while it has members or offsets.

    state        means
    -----------  --------------------------------------------------------------
    Empty        no members
    NotReady     topics of the topology are missing, or do not fit it
    Assigning    there is no target for the present epoch yet
    Reconciling  some member has not come to the target
    Stable       all have
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final

from penstock.base.errors import ApiError, ErrorCode, invariant
from penstock.coordinator.classic import take_over
from penstock.coordinator.consumer.engine import ASSIGN, REBALANCE, SESSION
from penstock.coordinator.consumer.group import COMMIT_WITH_EPOCH_FROM
from penstock.coordinator.consumer.partitions import Partition
from penstock.coordinator.effects import Caller, CoordinatorRecord, Effects, Reply, TimerKey
from penstock.coordinator.group import STREAMS, Committer, Environment, Group
from penstock.coordinator.reconcile import LEAVE_EPOCH, MemberState
from penstock.coordinator.refusals import refuse
from penstock.coordinator.streams_group import describing, entries, heartbeat
from penstock.coordinator.streams_group.engine import Engine
from penstock.coordinator.streams_group.resolving import ResolvedTopic
from penstock.coordinator.streams_group.roster import FIRST_EPOCH, Member, Progress
from penstock.coordinator.streams_group.tasks import TaskType
from penstock.coordinator.streams_group_records import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMetadataKey,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTopologyKey,
)
from penstock.wire.messages import streams_group_describe as describe
from penstock.wire.messages.join_group import JoinGroupRequest
from penstock.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from penstock.wire.schema import Message


class StreamsGroup:
    """One streams group; an empty one until something happens to it."""

    __slots__ = ("engine", "group_id", "group_type", "successor")

    def __init__(self, group_id: str, environment: Environment) -> None:
        self.group_id = group_id
        self.group_type = STREAMS
        self.successor: Group | None = None
        self.engine = Engine(group_id, environment)

    @property
    def state_name(self) -> str:
        roster, engine = self.engine.roster, self.engine
        if not roster.members:
            return "Empty"
        if roster.topology is None or roster.topology.epoch != roster.validated_epoch:
            return "NotReady"
        if roster.epoch > roster.assignment_epoch:
            return "Assigning"
        reconciled = all(engine.is_reconciled(member) for member in roster.members.values())
        return "Stable" if reconciled else "Reconciling"

    @property
    def protocol_type(self) -> str:
        return STREAMS

    @property
    def is_empty(self) -> bool:
        return not self.engine.roster.members

    @property
    def member_count(self) -> int:
        return len(self.engine.roster.members)

    @property
    def missing_topics(self) -> Collection[ResolvedTopic]:
        """Internal topics that have to be created before tasks can be assigned."""
        resolved = self.engine.resolved
        return () if resolved is None else resolved.missing.values()

    # -- events --------------------------------------------------------------------------------

    def handle(self, request: Message, caller: Caller, now_ms: int) -> Effects:
        try:
            if isinstance(request, StreamsGroupHeartbeatRequest):
                return self._heartbeat(request, caller, now_ms)
            if isinstance(request, JoinGroupRequest) and self.is_empty:
                return take_over(self, self.engine.environment, request, caller, now_ms)
        except ApiError as e:
            return Effects.reply(caller, refuse(request, caller.version, e.code, e.message))
        # Members of the classic protocol have come to the wrong kind of group.
        code = ErrorCode.UNKNOWN_MEMBER_ID
        if isinstance(request, JoinGroupRequest):
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return Effects.reply(caller, refuse(request, caller.version, code))

    def _heartbeat(
        self, request: StreamsGroupHeartbeatRequest, caller: Caller, now_ms: int
    ) -> Effects:
        if request.member_epoch == LEAVE_EPOCH:
            return heartbeat.leave(self.engine, request, caller)
        return heartbeat.heartbeat(self.engine, request, caller, now_ms)

    def on_timer(self, key: TimerKey, now_ms: int) -> Effects:
        effects, engine = Effects(), self.engine
        if key[1] == ASSIGN:
            engine.assign_if_due(effects, now_ms)
            return effects
        invariant(key[1] in (SESSION, REBALANCE), f"nobody has set a timer {key}")
        member = engine.roster.members.get(key[2])
        if member is None:
            return effects
        if key[1] == SESSION or member.progress.state is MemberState.UNREVOKED_PARTITIONS:
            engine.leave(key[2], effects)
        return effects

    def topics_changed(self, names: frozenset[str], now_ms: int) -> Effects:
        topology = self.engine.roster.topology
        if topology is not None and not names.isdisjoint(topology.required_topics):
            self.engine.topics_changed()
        return Effects()

    def unpark(self, code: ErrorCode) -> list[Reply]:
        """Nothing waits in a streams group."""
        return []

    # -- loading -------------------------------------------------------------------------------

    def replay(self, key: Message, value: Message | None, timestamp: int) -> None:
        _REPLAYS[type(key)](self, key, value)

    def loaded(self, now_ms: int) -> Effects:
        effects, engine = Effects(), self.engine
        engine.roster.reindex()
        for member in engine.roster.members.values():
            engine.heard_from(member, effects, now_ms)
            engine.watch_revocation(member, effects, now_ms)
        return effects

    def _replay_group(self, key: StreamsGroupMetadataKey, value: Any) -> None:
        roster = self.engine.roster
        roster.epoch = value.epoch
        roster.metadata_hash = value.metadata_hash
        roster.validated_epoch = value.validated_topology_epoch
        roster.assignment_configs = {c.key: c.value for c in value.last_assignment_configs or ()}

    def _replay_topology(self, key: StreamsGroupTopologyKey, value: Any) -> None:
        self.engine.roster.topology = None if value is None else entries.topology_of(value)

    def _replay_target_epoch(
        self, key: StreamsGroupTargetAssignmentMetadataKey, value: Any
    ) -> None:
        roster = self.engine.roster
        roster.assignment_epoch = FIRST_EPOCH if value is None else value.assignment_epoch
        roster.assignment_ms = 0 if value is None else value.assignment_timestamp

    def _replay_profile(self, key: StreamsGroupMemberMetadataKey, value: Any) -> None:
        roster = self.engine.roster
        if value is None:
            roster.holders.clear()
            roster.members.pop(key.member_id, None)
            roster.target.pop(key.member_id, None)
        else:
            roster.member(key.member_id).profile = entries.profile_of(value)

    def _replay_progress(self, key: StreamsGroupCurrentMemberAssignmentKey, value: Any) -> None:
        """`holders` is derived when all records are here."""
        roster = self.engine.roster
        if value is not None:
            roster.member(key.member_id).progress = entries.progress_of(value)
        elif key.member_id in roster.members:
            roster.members[key.member_id].progress = Progress()

    def _replay_target(self, key: StreamsGroupTargetAssignmentMemberKey, value: Any) -> None:
        if value is None:
            self.engine.roster.target.pop(key.member_id, None)
        else:
            self.engine.roster.target[key.member_id] = entries.target_of(value)

    # -- descriptions --------------------------------------------------------------------------

    def describe_streams(self) -> describe.DescribedGroup:
        return describing.described(self.engine, self.state_name)

    # -- offsets -------------------------------------------------------------------------------

    def validate_offset_commit(
        self, committer: Committer, partitions: Collection[Partition]
    ) -> ErrorCode:
        member_id, instance_id, epoch, version, transactional = committer
        members = self.engine.roster.members
        if epoch < 0 and not members:
            return ErrorCode.NONE
        if transactional and epoch == -1 and not member_id and instance_id is None:
            return ErrorCode.NONE  # old versions of TxnOffsetCommit do not say who commits
        member = members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not transactional and version < COMMIT_WITH_EPOCH_FROM:
            return ErrorCode.UNSUPPORTED_VERSION
        present = member.progress.epoch
        if epoch == present or (epoch < present and self._held_since(member, epoch, partitions)):
            return ErrorCode.NONE
        return ErrorCode.STALE_MEMBER_EPOCH

    def _held_since(self, member: Member, epoch: int, partitions: Collection[Partition]) -> bool:
        """Whether the member has had the tasks of all `partitions` active since an epoch that it
        knew (KIP-1251): one that does not know the present epoch yet may still commit.
        """
        topics, topology = self.engine.environment.topics, self.engine.roster.topology
        progress = member.progress
        for topic_id, number in partitions:
            name = topics.name_of(topic_id)
            if topology is None or name is None:
                return False
            subtopology_id = topology.subtopology_of(name)
            if subtopology_id is None:
                return False
            task = (TaskType.ACTIVE, subtopology_id, number)
            since = progress.assigned.get(task, progress.revoking.get(task))
            if since is None or since > epoch:
                return False
        return True

    def offsets_committed(self, member_id: str, now_ms: int) -> Effects:
        """Nothing: only heartbeats keep a session."""
        return Effects()

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        if member_id is None and member_epoch < 0:
            return ErrorCode.NONE
        member = self.engine.roster.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member.progress.epoch != member_epoch:
            return ErrorCode.STALE_MEMBER_EPOCH
        return ErrorCode.NONE

    def validate_offset_delete(self) -> ErrorCode:
        return ErrorCode.NONE

    def is_subscribed(self, topic: str) -> bool:
        topology = self.engine.roster.topology
        if self.is_empty or topology is None:
            return False
        return topology.subtopology_of(topic) is not None

    def expiration_base_ms(self, commit_ms: int) -> int | None:
        return commit_ms

    # -- the end -------------------------------------------------------------------------------

    def validate_delete(self) -> ErrorCode:
        return ErrorCode.NONE if self.is_empty else ErrorCode.NON_EMPTY_GROUP

    def tombstones(self) -> list[CoordinatorRecord]:
        return entries.group_tombstones(self.group_id, self.engine.roster.members)

    def invariants(self) -> None:
        self.engine.roster.invariants()


_REPLAYS: Final[dict[type[Message], Callable[[StreamsGroup, Any, Any], None]]] = {
    StreamsGroupMetadataKey: StreamsGroup._replay_group,
    StreamsGroupTopologyKey: StreamsGroup._replay_topology,
    StreamsGroupTargetAssignmentMetadataKey: StreamsGroup._replay_target_epoch,
    StreamsGroupMemberMetadataKey: StreamsGroup._replay_profile,
    StreamsGroupCurrentMemberAssignmentKey: StreamsGroup._replay_progress,
    StreamsGroupTargetAssignmentMemberKey: StreamsGroup._replay_target,
}
