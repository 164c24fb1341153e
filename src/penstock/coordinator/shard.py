"""One partition of `__consumer_offsets`: its groups and their committed offsets.

Duty: find, make and drop the groups of the partition, hand each event to the group it concerns,
answer admin requests, and keep the offsets. A group decides what happens inside it.

Invariants: a group id names one group, whatever its protocol; `replay` of the records this shard
has emitted, in order, builds an equal shard, but for groups that only stored offsets and have lost
them (they are forgotten by the next round of expiry). Every event may only concern group ids that
hash to this partition: the driver sees to that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from penstock.base.clock import Rng
from penstock.base.errors import ApiError, ErrorCode
from penstock.base.steps import at_once
from penstock.config.group_config import ShareGroupConfig, StreamsGroupConfig
from penstock.coordinator import describing
from penstock.coordinator.classic import ClassicGroup
from penstock.coordinator.commits import Commit
from penstock.coordinator.config import GroupConfig
from penstock.coordinator.consumer import ConsumerGroup, upgrade
from penstock.coordinator.consumer.partitions import Partition
from penstock.coordinator.describing import not_there
from penstock.coordinator.effects import (
    Caller,
    CoordinatorRecord,
    Effects,
    EndTxnMarker,
    Reply,
    TimerKey,
)
from penstock.coordinator.group import CONSUMER, SHARE, STREAMS, Environment, Group, RebalanceCounts
from penstock.coordinator.offsets import OffsetStore
from penstock.coordinator.records import (
    ConsumerGroupMetadataKey,
    GroupKey,
    GroupMetadataKey,
    OffsetCommitKey,
    OffsetCommitValue,
    ShareGroupKey,
    StreamsGroupKey,
    decode,
)
from penstock.coordinator.refusals import refuse
from penstock.coordinator.share_group import ShareGroup
from penstock.coordinator.share_group import heartbeat as share_members
from penstock.coordinator.share_group.roster import JOIN_EPOCH
from penstock.coordinator.share_group_records import ShareGroupMetadataKey
from penstock.coordinator.streams_group import StreamsGroup
from penstock.coordinator.streams_group import heartbeat as streams_members
from penstock.coordinator.streams_group_records import StreamsGroupMetadataKey
from penstock.coordinator.topics import TopicsView
from penstock.wire.messages import consumer_group_describe as consumer_describe
from penstock.wire.messages import describe_groups as describe
from penstock.wire.messages import share_group_describe as share_describe
from penstock.wire.messages import streams_group_describe as streams_describe
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from penstock.wire.messages.heartbeat import HeartbeatRequest
from penstock.wire.messages.join_group import JoinGroupRequest
from penstock.wire.messages.leave_group import LeaveGroupRequest
from penstock.wire.messages.list_groups import ListGroupsRequest
from penstock.wire.messages.offset_commit import OffsetCommitRequest
from penstock.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from penstock.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from penstock.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from penstock.wire.messages.sync_group import SyncGroupRequest
from penstock.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from penstock.wire.schema import Message

COMMIT_UNKNOWN_GROUP_FROM: Final = 9
"""From this version OffsetCommit says that a group is unknown; before, its generation is wrong."""
DOOMED_OFFSETS: Final[TimerKey] = ("", "offsets of deleted topics")
"""The timer that removes them; no group has it, since its id has no kind of this name."""
AT_ONCE_MS: Final = 0
_GROUP_KEYS: Final = (
    GroupMetadataKey,
    ConsumerGroupMetadataKey,
    ShareGroupMetadataKey,
    StreamsGroupMetadataKey,
)
"""The keys whose tombstones end a whole group."""
EXPIRED_RECORDS_MAX: Final = 10_000
"""How many offsets one round of expiry removes, so that its batch stays small."""


class GroupShard:
    def __init__(
        self,
        config: GroupConfig,
        topics: TopicsView,
        rng: Rng,
        overrides: Callable[[str], Mapping[str, str]] = lambda _: {},
        rebalances: RebalanceCounts | None = None,
        share_config: Callable[[str], ShareGroupConfig] = lambda _: ShareGroupConfig(),
        streams_config: Callable[[str], StreamsGroupConfig] = lambda _: StreamsGroupConfig(),
    ) -> None:
        """`overrides` returns a group's own settings, `share_config` and `streams_config` what is
        in force for a share or streams group.
        """
        self.environment = Environment(
            config,
            topics,
            rng,
            overrides,
            rebalances=rebalances or RebalanceCounts(),
            share_config=share_config,
            streams_config=streams_config,
        )
        self.groups: dict[str, Group] = {}
        self.offsets = OffsetStore(self.environment)

    # -- loading -------------------------------------------------------------------------------

    def replay(
        self, key: bytes, value: bytes | None, timestamp: int, producer_id: int | None = None
    ) -> None:
        """Apply a stored record; CorruptRecord if it cannot be read."""
        record = decode(key, value)
        if record is None:
            return
        found = record.key
        if isinstance(found, OffsetCommitKey):
            assert record.value is None or isinstance(record.value, OffsetCommitValue)
            self.offsets.take(found, record.value, producer_id)
            return
        group_id = found.group if isinstance(found, GroupMetadataKey) else found.group_id
        kind = _kind_of(found)
        group = self.groups.get(group_id)
        if record.value is None and (group is None or not isinstance(group, kind)):
            return  # a tombstone of what has moved to the other protocol since, or is gone
        if record.value is None and isinstance(found, _GROUP_KEYS):
            del self.groups[group_id]
            return
        if group is None or not isinstance(group, kind):
            group = kind(group_id, self.environment)
            self.groups[group_id] = group
        group.replay(found, record.value, timestamp)

    def replay_marker(self, producer_id: int, commit: bool) -> None:
        """The transaction of `producer_id` in this partition ended here."""
        self.offsets.end_transaction(producer_id, commit)

    def loaded(self, now_ms: int) -> Effects:
        """The partition has been replayed: timers for members that must be heard from."""
        for group_id in self.offsets.group_ids() + self.offsets.pending.group_ids():
            if group_id not in self.groups:
                self._make_simple(group_id)
        effects = Effects()
        for group in list(self.groups.values()):
            effects.extend(self._took_up(group, group.loaded(now_ms)))
        return effects

    def unload(self) -> list[Reply]:
        """Every request that waits inside a group, answered; the shard is given up."""
        replies = []
        for group in self.groups.values():
            replies += group.unpark(ErrorCode.NOT_COORDINATOR)
        return replies

    # -- events --------------------------------------------------------------------------------

    def handle(self, request: Message, caller: Caller, now_ms: int) -> Effects:
        """One request; OffsetFetch comes with the one group it is about, in the form of version 8
        and later, whatever its version.
        """
        return _HANDLERS[type(request)](self, request, caller, now_ms)

    def on_timer(self, key: TimerKey, now_ms: int) -> Effects:
        if key == DOOMED_OFFSETS:
            return self._remove_doomed()
        group = self.groups.get(key[0])
        if group is None:
            return Effects()
        return self._took_up(group, group.on_timer(key, now_ms))

    def end_transaction(self, marker: EndTxnMarker, now_ms: int) -> Effects:
        """The coordinator of a transaction ends it: its offsets count from now on, or never."""
        self.offsets.end_transaction(marker.producer_id, marker.commit)
        return Effects(marker=marker)

    def topics_changed(self, names: frozenset[str], now_ms: int) -> Effects:
        """These topics were created, deleted or have more partitions."""
        effects = Effects()
        for group in list(self.groups.values()):
            effects.extend(self._took_up(group, group.topics_changed(names, now_ms)))
        return effects

    def topics_deleted(self, names: frozenset[str]) -> Effects:
        """These topics are deleted: remove their offsets, the first now, others by a timer."""
        effects = Effects()
        self.offsets.topics_deleted(names, effects.records)
        effects.extend(self._remove_doomed())
        return effects

    def _remove_doomed(self) -> Effects:
        effects = Effects()
        if self.offsets.remove_doomed(effects.records):
            effects.set_timer(DOOMED_OFFSETS, AT_ONCE_MS)
        return effects

    def expire(self, now_ms: int) -> Effects:
        """Remove expired offsets, and groups that have nothing left; call again while it does."""
        effects = Effects()
        for group in list(self.groups.values()):
            if len(effects.records) >= EXPIRED_RECORDS_MAX:
                break
            self.offsets.expire(group, now_ms, effects.records)
            if isinstance(group, ShareGroup):
                continue  # it goes when it is deleted, with its state at the share coordinator
            if group.is_empty and not self.offsets.has_any(group.group_id):
                self._drop(group, effects.records)
        return effects

    def invariants(self) -> None:
        """Raise InvariantBroken if a group contradicts itself; for tests and the simulator."""
        for group in self.groups.values():
            group.invariants()

    # -- the table of groups -------------------------------------------------------------------

    def _make_simple(self, group_id: str) -> ClassicGroup:
        """A group that only stores offsets: a classic one without members or records."""
        group = self.groups[group_id] = ClassicGroup(group_id, self.environment)
        return group

    def _drop(self, group: Group, records: list[CoordinatorRecord]) -> None:
        records += group.tombstones()
        del self.groups[group.group_id]

    def _took_up(self, group: Group, effects: Effects) -> Effects:
        """After an event: put a group that moved to the other protocol in the place of the old."""
        if group.successor is not None:
            self.groups[group.group_id] = group.successor
        return effects

    def _hand_to_new(self, group: Group, request: Message, caller: Caller, now_ms: int) -> Effects:
        """The first event of a group, which is kept only if the event changed it."""
        effects = group.handle(request, caller, now_ms)
        if effects.records or not group.is_empty:
            self.groups[group.group_id] = group
        return effects

    # -- the protocols of members --------------------------------------------------------------

    def _join(self, request: JoinGroupRequest, caller: Caller, now_ms: int) -> Effects:
        config = self.environment.config
        low, high = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
        if not request.group_id:
            return _refused(request, caller, ErrorCode.INVALID_GROUP_ID)
        if not low <= request.session_timeout_ms <= high:
            return _refused(request, caller, ErrorCode.INVALID_SESSION_TIMEOUT)
        group = self.groups.get(request.group_id)
        if group is not None:
            return self._took_up(group, group.handle(request, caller, now_ms))
        if request.member_id:
            return _refused(request, caller, ErrorCode.UNKNOWN_MEMBER_ID)
        new = ClassicGroup(request.group_id, self.environment)
        return self._hand_to_new(new, request, caller, now_ms)

    def _by_member(
        self,
        request: SyncGroupRequest | HeartbeatRequest | LeaveGroupRequest,
        caller: Caller,
        now_ms: int,
    ) -> Effects:
        if not request.group_id:
            return _refused(request, caller, ErrorCode.INVALID_GROUP_ID)
        group = self.groups.get(request.group_id)
        if group is None:
            return _refused(request, caller, ErrorCode.UNKNOWN_MEMBER_ID)
        return self._took_up(group, group.handle(request, caller, now_ms))

    def _consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller, now_ms: int
    ) -> Effects:
        group = self.groups.get(request.group_id)
        if isinstance(group, ClassicGroup):
            return self._took_up(group, upgrade(group, request, caller, now_ms))
        if isinstance(group, ShareGroup | StreamsGroup):
            return _not_of_kind(request, caller, group, CONSUMER)
        if group is not None:
            return self._took_up(group, group.handle(request, caller, now_ms))
        new = ConsumerGroup(request.group_id, self.environment)
        return self._hand_to_new(new, request, caller, now_ms)

    def _share_heartbeat(
        self, request: ShareGroupHeartbeatRequest, caller: Caller, now_ms: int
    ) -> Effects:
        try:
            share_members.check_request(request)
        except ApiError as e:
            return _refused(request, caller, e.code, e.message)
        group = self.groups.get(request.group_id)
        if isinstance(group, ShareGroup):
            return group.handle(request, caller, now_ms)
        if group is not None or request.member_epoch != JOIN_EPOCH:
            return _not_of_kind(request, caller, group, SHARE)
        new = ShareGroup(request.group_id, self.environment)
        return self._hand_to_new(new, request, caller, now_ms)

    def _streams_heartbeat(
        self, request: StreamsGroupHeartbeatRequest, caller: Caller, now_ms: int
    ) -> Effects:
        try:
            streams_members.check_request(request)
        except ApiError as e:
            return _refused(request, caller, e.code, e.message)
        group = self.groups.get(request.group_id)
        if isinstance(group, StreamsGroup):
            return group.handle(request, caller, now_ms)
        may_begin = group is None or (isinstance(group, ClassicGroup) and group.is_empty)
        if request.member_epoch != JOIN_EPOCH or not may_begin:
            return _not_of_kind(request, caller, group, STREAMS)
        new = StreamsGroup(request.group_id, self.environment)
        effects = new.handle(request, caller, now_ms)
        if new.is_empty:
            return effects  # it was refused
        before = Effects(records=[] if group is None else group.tombstones())
        self.groups[request.group_id] = new
        return before + effects

    def share_group(self, group_id: str) -> ShareGroup:
        """ApiError unless there is a share group of this id."""
        group = self.groups.get(group_id)
        if not isinstance(group, ShareGroup):
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, not_there(group_id, group, SHARE))
        return group

    def share_group_or_new(self, group_id: str) -> ShareGroup:
        """The share group of this id, or an empty one, which is not kept yet."""
        if group_id in self.groups:
            return self.share_group(group_id)
        return ShareGroup(group_id, self.environment)

    def keep(self, group: ShareGroup, effects: Effects) -> None:
        """After an event of a group that may be new: it is kept if the event changed it."""
        if effects.records:
            self.groups[group.group_id] = group

    def initialized(
        self,
        group_id: str,
        done: Collection[Partition],
        refused: Collection[Partition],
        now_ms: int,
    ) -> Effects:
        """The share coordinator has begun, or refused, states of a group's partitions."""
        group = self.groups.get(group_id)
        if not isinstance(group, ShareGroup):
            return Effects()
        return group.initialized(done, refused, now_ms)

    # -- offsets -------------------------------------------------------------------------------

    def _commit(
        self, request: OffsetCommitRequest | TxnOffsetCommitRequest, caller: Caller, now_ms: int
    ) -> Effects:
        return self.commit(Commit(request, caller.version), caller, now_ms)

    def commit(self, commit: Commit, caller: Caller, now_ms: int) -> Effects:
        """Offsets to store, which may have been prepared before."""
        topics, limit = self.environment.topics, self.environment.config.offset_metadata_max_bytes
        if not commit.is_current(topics):
            at_once(commit.prepare(topics, limit, now_ms))
        effects = Effects(producer=commit.producer)
        code = self._validate_commit(commit) if commit.wanted else ErrorCode.NONE
        if code is not ErrorCode.NONE:
            commit.refuse_all(code)
        elif commit.wanted:
            self.offsets.commit(commit, effects.records)
            effects.extend(self._committed(commit, now_ms))
        effects.answer(caller, commit.response())
        return effects

    def _committed(self, commit: Commit, now_ms: int) -> Effects:
        """A commit was accepted: its sender is alive, and a group that was not there is made."""
        group = self.groups.get(commit.group_id)
        if group is None:
            if self.offsets.has_any(commit.group_id):
                self._make_simple(commit.group_id)
        elif commit.producer is None:
            return group.offsets_committed(commit.committer.member_id, now_ms)
        return Effects()

    def _validate_commit(self, commit: Commit) -> ErrorCode:
        committer = commit.committer
        if committer.transactional and not commit.group_id:
            return ErrorCode.INVALID_GROUP_ID
        group = self.groups.get(commit.group_id)
        if group is not None:
            code = group.validate_offset_commit(committer, commit.partitions)
            if committer.transactional and code is ErrorCode.STALE_MEMBER_EPOCH:
                return ErrorCode.ILLEGAL_GENERATION  # the one that producers know
            return code
        if committer.epoch < 0:
            return ErrorCode.NONE
        if not committer.transactional and committer.version >= COMMIT_UNKNOWN_GROUP_FROM:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return ErrorCode.ILLEGAL_GENERATION

    def _fetch(self, request: OffsetFetchRequest, caller: Caller, _: int) -> Effects:
        (wanted,) = request.groups
        answer = OffsetFetchResponseGroup(group_id=wanted.group_id)
        group = self.groups.get(wanted.group_id)
        code = ErrorCode.NONE
        if group is not None:
            code = group.validate_offset_fetch(wanted.member_id, wanted.member_epoch)
        # A group that is not there has no offsets, which is no error.
        if code in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
            answer.topics = self.offsets.fetch(wanted, caller.version, request.require_stable)
        else:
            answer.error_code = code
        return Effects.reply(caller, OffsetFetchResponse(groups=[answer]))

    def _delete_offsets(self, request: OffsetDeleteRequest, caller: Caller, _: int) -> Effects:
        if not request.group_id:
            return _refused(request, caller, ErrorCode.INVALID_GROUP_ID)
        group = self.groups.get(request.group_id)
        code = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.validate_offset_delete()
        if group is None or code is not ErrorCode.NONE:
            return _refused(request, caller, code)
        effects = Effects()
        topics = [self.offsets.delete(group, topic, effects.records) for topic in request.topics]
        effects.answer(caller, OffsetDeleteResponse(topics=topics))
        return effects

    # -- the admin -----------------------------------------------------------------------------

    def _list(self, request: ListGroupsRequest, caller: Caller, _: int) -> Effects:
        return Effects.reply(caller, describing.listed(self.groups, request))

    def _describe_classic(
        self, request: describe.DescribeGroupsRequest, caller: Caller, _: int
    ) -> Effects:
        answer = describing.described_classic(self.groups, request, caller.version)
        return Effects.reply(caller, answer)

    def _describe(self, request: Message, caller: Caller, _: int) -> Effects:
        return Effects.reply(caller, describing.described(self.groups, request))

    def _delete(self, request: DeleteGroupsRequest, caller: Caller, _: int) -> Effects:
        effects = Effects()
        results = []
        for group_id in request.groups_names:
            group = self.groups.get(group_id)
            code = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.validate_delete()
            if group is not None and code is ErrorCode.NONE:
                self.offsets.delete_all(group_id, effects.records)
                self._drop(group, effects.records)
            results.append(DeletableGroupResult(group_id=group_id, error_code=code))
        effects.answer(caller, DeleteGroupsResponse(results=results))
        return effects


def _kind_of(key: GroupKey) -> type[ClassicGroup | ConsumerGroup | ShareGroup | StreamsGroup]:
    """What kind of group has records with such keys."""
    if isinstance(key, GroupMetadataKey):
        return ClassicGroup
    if isinstance(key, StreamsGroupKey):
        return StreamsGroup
    return ShareGroup if isinstance(key, ShareGroupKey) else ConsumerGroup


def _not_of_kind(
    request: ConsumerGroupHeartbeatRequest
    | ShareGroupHeartbeatRequest
    | StreamsGroupHeartbeatRequest,
    caller: Caller,
    group: Group | None,
    wanted: str,
) -> Effects:
    """There is no such group, or it is of another kind."""
    message = not_there(request.group_id, group, wanted)
    return _refused(request, caller, ErrorCode.GROUP_ID_NOT_FOUND, message)


def _refused(
    request: Message, caller: Caller, code: ErrorCode, message: str | None = None
) -> Effects:
    return Effects.reply(caller, refuse(request, caller.version, code, message))


_HANDLERS: Final[Mapping[type[Message], Callable[[GroupShard, Any, Caller, int], Effects]]] = {
    JoinGroupRequest: GroupShard._join,
    SyncGroupRequest: GroupShard._by_member,
    HeartbeatRequest: GroupShard._by_member,
    LeaveGroupRequest: GroupShard._by_member,
    ConsumerGroupHeartbeatRequest: GroupShard._consumer_heartbeat,
    ShareGroupHeartbeatRequest: GroupShard._share_heartbeat,
    StreamsGroupHeartbeatRequest: GroupShard._streams_heartbeat,
    OffsetCommitRequest: GroupShard._commit,
    TxnOffsetCommitRequest: GroupShard._commit,
    OffsetFetchRequest: GroupShard._fetch,
    OffsetDeleteRequest: GroupShard._delete_offsets,
    ListGroupsRequest: GroupShard._list,
    describe.DescribeGroupsRequest: GroupShard._describe_classic,
    consumer_describe.ConsumerGroupDescribeRequest: GroupShard._describe,
    share_describe.ShareGroupDescribeRequest: GroupShard._describe,
    streams_describe.StreamsGroupDescribeRequest: GroupShard._describe,
    DeleteGroupsRequest: GroupShard._delete,
}
