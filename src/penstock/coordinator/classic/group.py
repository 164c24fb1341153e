"""`ClassicGroup`: a group whose members agree on their assignment among themselves.

The coordinator keeps the list of members, lets them join in generations, has one of them (the
leader) make the assignment, and drops silent members. Metadata and assignments of members are
stored and passed on, not interpreted (except for the topics of consumers, which protect offsets
from expiry). Cooperative rebalancing needs nothing more.

Answers are Kafka's for each state and version. On three points this group is more lenient than
Kafka, which no client notices as an error:

* A request whose place is taken by a later one of the same member is answered
  (REBALANCE_IN_PROGRESS), and so is the SyncGroup of a member that is dropped (UNKNOWN_MEMBER_ID).
  Kafka leaves both to the client's time-out.
* Every request of a known member counts as a sign of life.
* When a group is over `group.max.size`, the join phase ends with the refusal of the last one that
  is too many.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final, cast

from penstock.base.errors import ErrorCode, invariant
from penstock.base.ids import NO_TIMESTAMP, Uuid
from penstock.coordinator.classic.joining import JoiningGroup
from penstock.coordinator.classic.machine import JOIN, SESSION, SYNC
from penstock.coordinator.classic.member import ClassicMember
from penstock.coordinator.classic.responses import (
    leavers,
    left,
    member_left,
)
from penstock.coordinator.classic.roster import Roster
from penstock.coordinator.classic.states import WITH_MEMBERS, State
from penstock.coordinator.effects import Caller, CoordinatorRecord, Effects, Reply, TimerKey
from penstock.coordinator.group import (
    CLASSIC,
    CONSUMER_PROTOCOL_TYPE,
    Committer,
    Environment,
    Group,
)
from penstock.coordinator.records import GroupMetadataKey, GroupMetadataValue, encode
from penstock.coordinator.refusals import refuse
from penstock.wire.messages import describe_groups
from penstock.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.wire.messages.join_group import JoinGroupRequest
from penstock.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from penstock.wire.schema import Message

SYNC_PROTOCOL_FROM: Final = 5
"""From this version of SyncGroup on, a member must say in which protocol it believes to be."""


class ClassicGroup(JoiningGroup):
    """One classic group; an empty one until something happens to it."""

    __slots__ = ("group_type", "successor")

    def __init__(self, group_id: str, environment: Environment) -> None:
        super().__init__(group_id, environment)
        self.group_type = CLASSIC
        self.successor: Group | None = None

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return self.state is State.EMPTY and not self.roster.pending

    @property
    def member_count(self) -> int:
        return len(self.roster)

    @property
    def is_of_consumers(self) -> bool:
        """Whether the members are consumers, which could speak the consumer protocol as well."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    # -- events --------------------------------------------------------------------------------

    def handle(self, request: Message, caller: Caller, now_ms: int) -> Effects:
        return _HANDLERS[type(request)](self, request, caller, now_ms)

    def on_timer(self, key: TimerKey, now_ms: int) -> Effects:
        """A timer is due; one from the group's life in the other protocol means nothing here."""
        fx = Effects()
        match key[1:]:
            case (kind,) if kind == JOIN:
                self._join_timer(fx, now_ms)
            case (kind,) if kind == SYNC:
                self._sync_timer(fx, now_ms)
            case (kind, member_id) if kind == SESSION:
                self._session_timer(fx, member_id, now_ms)
        return fx

    def topics_changed(self, names: frozenset[str], now_ms: int) -> Effects:
        """Nothing: the leader watches the topics and joins again when it must."""
        return Effects()

    def unpark(self, code: ErrorCode) -> list[Reply]:
        fx = Effects()
        for member in self.roster:
            self._answer_waiting(fx, member, code, member.member_id)
        self._become(State.DEAD, self.state_since_ms)
        return fx.replies

    # -- SyncGroup, Heartbeat, LeaveGroup ------------------------------------------------------

    def sync_group(self, request: SyncGroupRequest, caller: Caller, now_ms: int) -> Effects:
        fx = Effects()
        code = self._check_sync(request, caller.version)
        if code is not ErrorCode.NONE:
            fx.answer(caller, SyncGroupResponse(error_code=code))
            return fx
        member = self.roster.members[request.member_id]
        if self.state is State.COMPLETING_REBALANCE:
            self._park_sync(fx, member, caller)
            if member.member_id == self.roster.leader_id:
                assignments = {a.member_id: a.assignment for a in request.assignments}
                self._assign(fx, assignments, now_ms)
                self._written = True
            return fx
        self._restart_session(fx, member, now_ms)
        if self.state is State.STABLE:
            self._sync_expected_no_more(fx, member)
            fx.answer(caller, self._synced(member, ErrorCode.NONE))
        else:
            fx.answer(caller, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        return fx

    def _park_sync(self, fx: Effects, member: ClassicMember, caller: Caller) -> None:
        before, member.sync = member.sync, caller
        if before is not None:
            fx.answer(before, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        self._sync_expected_no_more(fx, member)

    def _check_sync(self, request: SyncGroupRequest, version: int) -> ErrorCode:
        if version >= SYNC_PROTOCOL_FROM and None in (request.protocol_type, request.protocol_name):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        code = self._check_member(
            request.member_id, request.group_instance_id, request.generation_id
        )
        if code is ErrorCode.NONE and (
            request.protocol_type not in (None, self.protocol_type)
            or request.protocol_name not in (None, self.protocol_name)
        ):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return code

    def heartbeat(self, request: HeartbeatRequest, caller: Caller, now_ms: int) -> Effects:
        code = self._check_member(
            request.member_id, request.group_instance_id, request.generation_id
        )
        fx = Effects()
        if code is ErrorCode.NONE:
            self._restart_session(fx, self.roster.members[request.member_id], now_ms)
            if self.state is State.PREPARING_REBALANCE:
                code = ErrorCode.REBALANCE_IN_PROGRESS
        fx.answer(caller, HeartbeatResponse(error_code=code))
        return fx

    def leave_group(self, request: LeaveGroupRequest, caller: Caller, now_ms: int) -> Effects:
        if self.state is State.DEAD:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            return Effects.reply(caller, refuse(request, caller.version, code))
        fx = Effects()
        answers = [member_left(m, self._leave(fx, m)) for m in leavers(request, caller)]
        fx.answer(caller, left(caller, answers))
        if any(a.error_code == ErrorCode.NONE for a in answers) and self.state in WITH_MEMBERS:
            self._rebalance_or_complete_join(fx, now_ms)
        return fx

    def _leave(self, fx: Effects, leaver: MemberIdentity) -> ErrorCode:
        """Remove a member, which may be named by its static id alone."""
        member_id, instance_id = leaver.member_id, leaver.group_instance_id
        if not member_id:
            found = self.roster.static_ids.get(instance_id) if instance_id is not None else None
            if found is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = found
        elif member_id in self.roster.pending:
            self._forget_pending(fx, member_id)
            return ErrorCode.NONE
        code = self._check_member(member_id, instance_id)
        if code is ErrorCode.NONE:
            self._drop(fx, self.roster.members[member_id])
        return code

    # -- loading -------------------------------------------------------------------------------

    def replay(self, key: Message, value: Message | None, timestamp: int) -> None:
        invariant(
            isinstance(key, GroupMetadataKey) and isinstance(value, GroupMetadataValue),
            f"classic group {self.group_id} was handed a record {type(key).__name__}",
        )
        value = cast(GroupMetadataValue, value)
        self.restore(
            [
                ClassicMember(
                    m.member_id,
                    m.group_instance_id,
                    m.client_id,
                    m.client_host,
                    m.session_timeout if m.rebalance_timeout == -1 else m.rebalance_timeout,
                    m.session_timeout,
                    {value.protocol or "": m.subscription},
                    m.assignment,
                )
                for m in value.members
            ],
            generation=value.generation,
            protocol_type=value.protocol_type,
            protocol_name=value.protocol,
            leader_id=value.leader,
            since_ms=value.current_state_timestamp,
        )

    def restore(
        self,
        members: Iterable[ClassicMember],
        *,
        generation: int,
        protocol_type: str,
        protocol_name: str | None,
        leader_id: str | None,
        since_ms: int,
    ) -> None:
        """Become a group with these members and assignments: stable, or empty without members.

        Without `protocol_name` the members vote; without `leader_id` the first one leads.
        """
        self.roster = Roster()
        for member in members:
            self.roster.add(member)
        if leader_id in self.roster.members:
            self.roster.leader_id = leader_id
        self._written = True
        self._initial = None
        self.state = State.STABLE if len(self.roster) else State.EMPTY
        self.state_since_ms = since_ms
        self.generation = generation
        self.protocol_type = protocol_type
        self.protocol_name = protocol_name
        if protocol_name is None and len(self.roster):
            self.protocol_name = self.roster.vote()
        self.subscribed = self._subscribed_topics()

    def loaded(self, now_ms: int) -> Effects:
        fx = Effects()
        for member in self.roster:
            self._restart_session(fx, member, now_ms)
        if len(self.roster) > self.environment.config.group_max_size:
            # The limit is lower than it was: the last to join is refused, after it could commit.
            self.prepare_rebalance(fx, now_ms)
        return fx

    # -- descriptions --------------------------------------------------------------------------

    def describe_classic(self) -> describe_groups.DescribedGroup:
        stable = self.state is State.STABLE
        name = (self.protocol_name or "") if stable else ""
        return describe_groups.DescribedGroup(
            group_id=self.group_id,
            group_state=self.state.value,
            protocol_type=self.protocol_type,
            protocol_data=name,
            members=[
                describe_groups.DescribedGroupMember(
                    member_id=m.member_id,
                    group_instance_id=m.instance_id,
                    client_id=m.client_id,
                    client_host=m.client_host,
                    member_metadata=m.protocols.get(name, b"") if stable else b"",
                    member_assignment=m.assignment,
                )
                for m in self.roster.in_described_order()
            ],
        )

    # -- offsets -------------------------------------------------------------------------------

    def validate_offset_commit(
        self, committer: Committer, partitions: Collection[tuple[Uuid, int]]
    ) -> ErrorCode:
        member_id, instance_id, epoch, _, transactional = committer
        if self.state is State.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if self.state is State.EMPTY and epoch < 0:
            return ErrorCode.NONE
        if epoch < 0 and not member_id and instance_id is None:
            # Old versions of TxnOffsetCommit do not say who commits.
            return ErrorCode.NONE if transactional else ErrorCode.UNKNOWN_MEMBER_ID
        code = self._check_member(member_id, instance_id, epoch)
        if code is ErrorCode.NONE and self.state is State.COMPLETING_REBALANCE:
            # What it consumed belongs to the generation before, which is over. A transaction that
            # the member has begun may still be ended by it.
            return ErrorCode.NONE if transactional else ErrorCode.REBALANCE_IN_PROGRESS
        return code

    def offsets_committed(self, member_id: str, now_ms: int) -> Effects:
        fx = Effects()
        member = self.roster.members.get(member_id)
        if member is not None and self.state in (State.STABLE, State.PREPARING_REBALANCE):
            self._restart_session(fx, member, now_ms)
        return fx

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        return self._unless_dead(ErrorCode.NONE)

    def validate_offset_delete(self) -> ErrorCode:
        if self.state in WITH_MEMBERS and not self.is_of_consumers:
            return ErrorCode.NON_EMPTY_GROUP
        return self._unless_dead(ErrorCode.NONE)

    def is_subscribed(self, topic: str) -> bool:
        if self.subscribed is None:
            return self.is_of_consumers
        return topic in self.subscribed

    def expiration_base_ms(self, commit_ms: int) -> int | None:
        if not self.protocol_type:
            return commit_ms
        if self.state is State.EMPTY:
            return commit_ms if self.state_since_ms == NO_TIMESTAMP else self.state_since_ms
        if self.state is State.STABLE and self.subscribed is not None:
            return commit_ms
        return None

    # -- the end -------------------------------------------------------------------------------

    def validate_delete(self) -> ErrorCode:
        if self.state in WITH_MEMBERS:
            return ErrorCode.NON_EMPTY_GROUP
        return self._unless_dead(ErrorCode.NONE)

    def tombstones(self) -> list[CoordinatorRecord]:
        return [encode(GroupMetadataKey(group=self.group_id), None)]

    def _unless_dead(self, code: ErrorCode) -> ErrorCode:
        return ErrorCode.GROUP_ID_NOT_FOUND if self.state is State.DEAD else code

    def invariants(self) -> None:
        roster, state = self.roster, self.state
        roster.invariants()
        invariant(
            not roster.joins or state is State.PREPARING_REBALANCE, "a JoinGroup waits in vain"
        )
        invariant(
            state is State.COMPLETING_REBALANCE or all(m.sync is None for m in roster),
            "a SyncGroup waits in vain",
        )
        invariant(state is not State.EMPTY or not len(roster), "an empty group has members")
        invariant(
            state not in (State.COMPLETING_REBALANCE, State.STABLE)
            or (len(roster) > 0 and self.protocol_name == roster.vote()),
            "a generation without members or with a protocol that was not voted for",
        )
        invariant(
            not roster.pending_sync or state in (State.COMPLETING_REBALANCE, State.STABLE),
            "a SyncGroup is expected outside of a generation",
        )
        invariant(
            self._initial is None or state is State.PREPARING_REBALANCE, "a stale initial delay"
        )


_HANDLERS: Final[dict[type[Message], Callable[[ClassicGroup, Any, Caller, int], Effects]]] = {
    JoinGroupRequest: ClassicGroup.join_group,
    SyncGroupRequest: ClassicGroup.sync_group,
    HeartbeatRequest: ClassicGroup.heartbeat,
    LeaveGroupRequest: ClassicGroup.leave_group,
}
