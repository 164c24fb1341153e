"""`ConsumerGroup`: a group whose assignment the coordinator makes (KIP-848).

Each member follows the group at its own pace: the group has an epoch, the target assignment is made
for an epoch, and each member has the epoch that it has reached. A partition goes from one member to
another without a stop of the others: the old owner gives it up at its own heartbeat, then the new
one gets it at its own.

This module is the face towards the shard: requests, timers, loading, descriptions, offsets' rules.
`engine` makes the changes, `heartbeat` and `classic_members` talk to members, `migration` moves a
group between the protocols.

Commits are strict: only the member's present epoch may commit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from penstock.base.errors import ApiError, ErrorCode, invariant
from penstock.coordinator.classic import take_over
from penstock.coordinator.classic.responses import join_error
from penstock.coordinator.consumer import classic_members, entries, migration
from penstock.coordinator.consumer import heartbeat as consumer_members
from penstock.coordinator.consumer.engine import ASSIGN, JOIN, REBALANCE, SESSION, SYNC, Engine
from penstock.coordinator.consumer.member import Member, Profile, Progress
from penstock.coordinator.consumer.partitions import Partition, by_topic
from penstock.coordinator.consumer.roster import ResolvedRegex
from penstock.coordinator.effects import Caller, CoordinatorRecord, Effects, Reply, TimerKey
from penstock.coordinator.group import (
    CONSUMER,
    CONSUMER_PROTOCOL_TYPE,
    Committer,
    Environment,
    Group,
)
from penstock.coordinator.java_order import timeline_map_order
from penstock.coordinator.reconcile import LEAVE_EPOCH, STATIC_LEAVE_EPOCH, MemberState
from penstock.coordinator.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)
from penstock.coordinator.refusals import refuse
from penstock.wire.messages import consumer_group_describe as describe
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.wire.messages.heartbeat import HeartbeatRequest
from penstock.wire.messages.join_group import JoinGroupRequest
from penstock.wire.messages.leave_group import LeaveGroupRequest
from penstock.wire.messages.sync_group import SyncGroupRequest
from penstock.wire.schema import Message

COMMIT_WITH_EPOCH_FROM: Final = 9
"""The first version of OffsetCommit that carries a member epoch."""
MEMBER_TYPE_CLASSIC: Final = 0
MEMBER_TYPE_CONSUMER: Final = 1


class ConsumerGroup:
    """One consumer group; an empty one until something happens to it."""

    __slots__ = ("engine", "group_id", "group_type", "successor")

    def __init__(self, group_id: str, environment: Environment) -> None:
        self.group_id = group_id
        self.group_type = CONSUMER
        self.successor: Group | None = None
        self.engine = Engine(group_id, environment)

    @property
    def state_name(self) -> str:
        roster = self.engine.roster
        if not roster.members:
            return "Empty"
        if roster.epoch > roster.assignment_epoch:
            return "Assigning"
        return "Stable" if self.engine.is_stable else "Reconciling"

    @property
    def protocol_type(self) -> str:
        return CONSUMER_PROTOCOL_TYPE

    @property
    def is_empty(self) -> bool:
        return not self.engine.roster.members

    @property
    def member_count(self) -> int:
        return len(self.engine.roster.members)

    # -- events --------------------------------------------------------------------------------

    def handle(self, request: Message, caller: Caller, now_ms: int) -> Effects:
        try:
            return _HANDLERS[type(request)](self, request, caller, now_ms)
        except ApiError as e:
            return Effects.reply(caller, refuse(request, caller.version, e.code, e.message))

    def on_timer(self, key: TimerKey, now_ms: int) -> Effects:
        effects = Effects()
        if key[1] == ASSIGN:
            self.engine.assign_if_due(effects, now_ms)
            return effects
        member = self.engine.roster.members.get(key[2]) if len(key) > 2 else None
        if member is None:
            return effects
        invariant(key[1] in (SESSION, REBALANCE, JOIN, SYNC), f"nobody has set a timer {key}")
        if key[1] != REBALANCE or member.progress.state is MemberState.UNREVOKED_PARTITIONS:
            self._depart([member], effects, now_ms)
        return effects

    def topics_changed(self, names: frozenset[str], now_ms: int) -> Effects:
        effects = Effects()
        self.engine.topics_changed(names, effects, now_ms)
        return effects

    def unpark(self, code: ErrorCode) -> list[Reply]:
        """Nothing waits in a consumer group."""
        return []

    def _heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller, now_ms: int
    ) -> Effects:
        engine = self.engine
        consumer_members.check_request(request, caller.version, engine.environment.config)
        exists = engine.roster.members or engine.roster.epoch
        if not exists and request.member_epoch:
            raise ApiError(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {self.group_id} not found."
            )
        if request.member_epoch not in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
            return consumer_members.heartbeat(engine, request, caller, now_ms)
        member = consumer_members.leaving_member(engine, request)
        effects = Effects()
        if request.member_epoch == STATIC_LEAVE_EPOCH:
            engine.leave_for_now(member, effects)
        else:
            self._depart([member], effects, now_ms)
        effects.answer(caller, consumer_members.left(request))
        return effects

    def _join(self, request: JoinGroupRequest, caller: Caller, now_ms: int) -> Effects:
        engine = self.engine
        if self.is_empty:
            return take_over(self, engine.environment, request, caller, now_ms)
        # The last member of the consumer protocol comes back as a classic one.
        last = migration.may_downgrade_by(engine, request.group_instance_id)
        try:
            effects = classic_members.join(engine, request, caller, now_ms, assign=not last)
        except ApiError as e:
            # As in Kafka, the answer does not name the member.
            return Effects.reply(caller, join_error(caller, e.code))
        if last:
            self.successor = migration.downgrade_in_place(engine, effects, now_ms)
        return effects

    def _sync(self, request: SyncGroupRequest, caller: Caller, now_ms: int) -> Effects:
        return classic_members.sync(self.engine, request, caller, now_ms)

    def _classic_heartbeat(self, request: HeartbeatRequest, caller: Caller, now_ms: int) -> Effects:
        return classic_members.heartbeat(self.engine, request, caller, now_ms)

    def _leave(self, request: LeaveGroupRequest, caller: Caller, now_ms: int) -> Effects:
        going, response = classic_members.leave(self.engine, request, caller)
        effects = Effects()
        if going:
            self._depart(going, effects, now_ms)
        effects.answer(caller, response)
        return effects

    def _depart(self, members: list[Member], effects: Effects, now_ms: int) -> None:
        """Members go, by their own will or because they were too slow."""
        if migration.may_downgrade(self.engine, members):
            self.successor = migration.downgrade(self.engine, members, effects, now_ms)
        else:
            self.engine.leave(members, effects, now_ms)

    # -- loading -------------------------------------------------------------------------------

    def replay(self, key: Message, value: Message | None, timestamp: int) -> None:
        _REPLAYS[type(key)](self, key, value)

    def loaded(self, now_ms: int) -> Effects:
        effects = Effects()
        engine = self.engine
        engine.roster.reindex()
        engine.watch(effects, now_ms)
        # Topics may have changed while nobody was watching.
        names = frozenset(engine.environment.topics.all_names()) | engine.subscriptions.all_names()
        engine.topics_changed(names, effects, now_ms)
        return effects

    def _replay_group(self, key: ConsumerGroupMetadataKey, value: Any) -> None:
        self.engine.roster.epoch = value.epoch
        self.engine.roster.metadata_hash = value.metadata_hash

    def _replay_partition_metadata(
        self, key: ConsumerGroupPartitionMetadataKey, value: Any
    ) -> None:
        self.engine.roster.has_partition_metadata = value is not None

    def _replay_target_epoch(
        self, key: ConsumerGroupTargetAssignmentMetadataKey, value: Any
    ) -> None:
        roster = self.engine.roster
        roster.assignment_epoch = 0 if value is None else value.assignment_epoch
        roster.assignment_ms = 0 if value is None else value.assignment_timestamp

    def _replay_profile(self, key: ConsumerGroupMemberMetadataKey, value: Any) -> None:
        roster = self.engine.roster
        if value is None:
            roster.owners.clear()
            member = roster.members.get(key.member_id)
            if member is not None:
                member.progress = Progress()
                roster.remove(key.member_id)
            return
        roster.set_profile(self._member(key.member_id), entries.profile_of(value))

    def _replay_progress(self, key: ConsumerGroupCurrentMemberAssignmentKey, value: Any) -> None:
        member = self.engine.roster.members.get(key.member_id)
        if value is not None:
            self._member(key.member_id).progress = entries.progress_of(value)
        elif member is not None:
            member.progress = Progress()

    def _replay_target(self, key: ConsumerGroupTargetAssignmentMemberKey, value: Any) -> None:
        if value is None:
            self.engine.roster.target.pop(key.member_id, None)
        else:
            self.engine.roster.target[key.member_id] = entries.target_of(value)

    def _replay_regex(self, key: ConsumerGroupRegularExpressionKey, value: Any) -> None:
        regexes = self.engine.roster.regexes
        if value is None:
            regexes.pop(key.regular_expression, None)
        else:
            regexes[key.regular_expression] = ResolvedRegex(
                frozenset(value.topics), value.version, value.timestamp
            )

    def _member(self, member_id: str) -> Member:
        """The member of a record; `owners` is derived when all records are here."""
        members = self.engine.roster.members
        if member_id not in members:
            self.engine.roster.add(Member(member_id, Profile(), Progress()))
        return members[member_id]

    # -- descriptions --------------------------------------------------------------------------

    def describe_consumer(self) -> describe.DescribedGroup:
        roster = self.engine.roster
        return describe.DescribedGroup(
            group_id=self.group_id,
            group_state=self.state_name,
            group_epoch=roster.epoch,
            assignment_epoch=roster.assignment_epoch,
            assignor_name=self.engine.assignor_name,
            members=[
                self._describe_member(roster.members[member_id])
                for member_id in timeline_map_order(roster.members, roster.members_max)
            ],
        )

    def _describe_member(self, member: Member) -> describe.Member:
        profile = member.profile
        return describe.Member(
            member_id=member.member_id,
            instance_id=profile.instance_id,
            rack_id=profile.rack_id,
            member_epoch=member.epoch,
            client_id=profile.client_id,
            client_host=profile.client_host,
            subscribed_topic_names=list(profile.topic_names),
            subscribed_topic_regex=profile.topic_regex,
            assignment=self._describe_partitions(
                [*member.progress.assigned, *member.progress.revoking]
            ),
            target_assignment=self._describe_partitions(
                self.engine.roster.target.get(member.member_id, frozenset())
            ),
            member_type=MEMBER_TYPE_CLASSIC if member.is_classic else MEMBER_TYPE_CONSUMER,
        )

    def _describe_partitions(self, partitions: Iterable[Partition]) -> describe.Assignment:
        """Partitions with the names of their topics; those of deleted topics are left out."""
        topics = self.engine.environment.topics
        described = []
        for topic_id, numbers in by_topic(partitions).items():
            name = topics.name_of(topic_id)
            if name is not None:
                described.append(
                    describe.TopicPartitions(topic_id=topic_id, topic_name=name, partitions=numbers)
                )
        return describe.Assignment(topic_partitions=described)

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
        says_epoch = transactional or version >= COMMIT_WITH_EPOCH_FROM
        if member is not None and not member.is_classic and not says_epoch:
            return ErrorCode.UNSUPPORTED_VERSION
        if member is not None and _held_since(member, epoch, partitions):
            return ErrorCode.NONE
        return self._check_epoch(member, epoch)

    def offsets_committed(self, member_id: str, now_ms: int) -> Effects:
        """Nothing: only heartbeats keep a session."""
        return Effects()

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        if member_id is None and member_epoch < 0:
            return ErrorCode.NONE
        return self._check_epoch(self.engine.roster.members.get(member_id or ""), member_epoch)

    def _check_epoch(self, member: Member | None, epoch: int) -> ErrorCode:
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member.epoch == epoch:
            return ErrorCode.NONE
        if member.is_classic:
            return ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.STALE_MEMBER_EPOCH

    def validate_offset_delete(self) -> ErrorCode:
        return ErrorCode.NONE

    def is_subscribed(self, topic: str) -> bool:
        return topic in self.engine.subscriptions.all_names()

    def expiration_base_ms(self, commit_ms: int) -> int | None:
        return commit_ms

    # -- the end -------------------------------------------------------------------------------

    def validate_delete(self) -> ErrorCode:
        return ErrorCode.NONE if self.is_empty else ErrorCode.NON_EMPTY_GROUP

    def tombstones(self) -> list[CoordinatorRecord]:
        return migration.tombstones(self.engine)

    def invariants(self) -> None:
        self.engine.roster.invariants()


def _held_since(member: Member, epoch: int, partitions: Collection[Partition]) -> bool:
    """Whether the member has held all `partitions` since an epoch that it knew (KIP-1251): one that
    does not know the present epoch yet may still commit what it consumes.
    """
    if epoch > member.epoch:
        return False
    progress = member.progress
    for partition in partitions:
        since = progress.assigned.get(partition, progress.revoking.get(partition))
        if since is None or since > epoch:
            return False
    return True


_HANDLERS: Final[dict[type[Message], Callable[[ConsumerGroup, Any, Caller, int], Effects]]] = {
    ConsumerGroupHeartbeatRequest: ConsumerGroup._heartbeat,
    JoinGroupRequest: ConsumerGroup._join,
    SyncGroupRequest: ConsumerGroup._sync,
    HeartbeatRequest: ConsumerGroup._classic_heartbeat,
    LeaveGroupRequest: ConsumerGroup._leave,
}

_REPLAYS: Final[dict[type[Message], Callable[[ConsumerGroup, Any, Any], None]]] = {
    ConsumerGroupMetadataKey: ConsumerGroup._replay_group,
    ConsumerGroupPartitionMetadataKey: ConsumerGroup._replay_partition_metadata,
    ConsumerGroupMemberMetadataKey: ConsumerGroup._replay_profile,
    ConsumerGroupTargetAssignmentMetadataKey: ConsumerGroup._replay_target_epoch,
    ConsumerGroupTargetAssignmentMemberKey: ConsumerGroup._replay_target,
    ConsumerGroupCurrentMemberAssignmentKey: ConsumerGroup._replay_progress,
    ConsumerGroupRegularExpressionKey: ConsumerGroup._replay_regex,
}
