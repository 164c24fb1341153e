"""JoinGroup: which members may join, under which id, and whether the others must join again.

A new dynamic member is given an id first (from version 4 on) and comes in when it joins with it.
A static member, known by its `group.instance.id`, comes in at once; when its process restarts, the
new process takes the place of the old one, which is fenced. A known member that joins again starts
a rebalance, unless nothing has changed for it.
"""

from __future__ import annotations

from typing import Final

from penstock.base.errors import ErrorCode
from penstock.coordinator.classic.machine import SESSION, GroupMachine
from penstock.coordinator.classic.member import ClassicMember, protocols_of
from penstock.coordinator.classic.responses import join_error
from penstock.coordinator.classic.states import WITH_MEMBERS, State
from penstock.coordinator.effects import Caller, Effects
from penstock.coordinator.group import Environment
from penstock.coordinator.records import GroupMetadataKey, GroupMetadataValue, encode
from penstock.wire.messages.join_group import JoinGroupRequest

MEMBER_ID_REQUIRED_FROM: Final = 4
"""From this version of JoinGroup on, a new dynamic member is first given an id to join with."""
SKIP_ASSIGNMENT_FROM: Final = 9
"""From this version of JoinGroup on, a leader can be told that nothing needs to be assigned."""
REBALANCE_TIMEOUT_FROM: Final = 1
"""Before this version of JoinGroup, the session timeout is also the rebalance timeout."""


class JoiningGroup(GroupMachine):
    """The part of `ClassicGroup` that lets members in."""

    __slots__ = ("_written",)

    def __init__(self, group_id: str, environment: Environment) -> None:
        super().__init__(group_id, environment)
        self._written = False
        """A record of this group exists, so that it outlives a fail-over."""

    def join_group(self, request: JoinGroupRequest, caller: Caller, now_ms: int) -> Effects:
        """A JoinGroup whose group id and session timeout have been checked."""
        fx = Effects()
        self._join(fx, request, caller, now_ms)
        if fx.records:
            self._written = True
        elif not self._written and not request.member_id:
            # The group exists from now on, though it has no generation yet.
            self._written = True
            self.state_since_ms = now_ms
            value = GroupMetadataValue(protocol=None, leader=None, current_state_timestamp=now_ms)
            fx.records.append(encode(GroupMetadataKey(group=self.group_id), value))
        return fx

    def _join(self, fx: Effects, request: JoinGroupRequest, caller: Caller, now_ms: int) -> None:
        member_id = request.member_id
        protocols = protocols_of(request.protocols)
        if not self._has_room(member_id):
            self._refuse(fx, member_id, caller, now_ms)
        elif self.state is State.DEAD:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            fx.answer(caller, join_error(caller, code, member_id))
        elif not self._can_work_with(request.protocol_type, protocols):
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            fx.answer(caller, join_error(caller, code, member_id))
        elif not member_id:
            self._join_unknown(fx, request, caller, now_ms)
        elif member_id in self.roster.pending:
            self._join_pending(fx, request, caller, now_ms)
        else:
            self._join_known(fx, request, protocols, caller, now_ms)

    def _has_room(self, member_id: str) -> bool:
        """In the join phase only joined members count, so that a group over its size shrinks."""
        limit = self.environment.config.group_max_size
        member = self.roster.members.get(member_id)
        if self.state is State.PREPARING_REBALANCE:
            return (member is not None and member.join is not None) or self.roster.joins < limit
        if self.state in WITH_MEMBERS:
            return member is not None or len(self.roster) < limit
        return True

    def _refuse(self, fx: Effects, member_id: str, caller: Caller, now_ms: int) -> None:
        fx.answer(caller, join_error(caller, ErrorCode.GROUP_MAX_SIZE_REACHED))
        if member_id in self.roster.pending:
            self._forget_pending(fx, member_id)
        elif member_id in self.roster.members:
            self._drop(fx, self.roster.members[member_id])
        if self._initial is None:
            self._complete_join_early(fx, now_ms)

    def _can_work_with(self, protocol_type: str, protocols: dict[str, bytes]) -> bool:
        if self.state is State.EMPTY:
            return bool(protocol_type and protocols)
        return protocol_type == self.protocol_type and self.roster.shares(protocols)

    def _join_unknown(
        self, fx: Effects, request: JoinGroupRequest, caller: Caller, now_ms: int
    ) -> None:
        """A JoinGroup without a member id: a new member, or a static one that has restarted."""
        instance_id = request.group_instance_id
        member_id = self._new_member_id(instance_id or caller.client_id)
        if instance_id is not None:
            old_id = self.roster.static_ids.get(instance_id)
            if old_id is None:
                self._add(fx, member_id, request, caller, now_ms)
            else:
                old = self.roster.members[old_id]
                self._replace_static(fx, old, member_id, request, caller, now_ms)
        elif caller.version < MEMBER_ID_REQUIRED_FROM:
            self._add(fx, member_id, request, caller, now_ms)
        else:
            self.roster.pending.add(member_id)
            deadline_ms = now_ms + request.session_timeout_ms
            fx.set_timer(self._key(SESSION, member_id), deadline_ms)
            fx.answer(caller, join_error(caller, ErrorCode.MEMBER_ID_REQUIRED, member_id))

    def _join_pending(
        self, fx: Effects, request: JoinGroupRequest, caller: Caller, now_ms: int
    ) -> None:
        if request.group_instance_id is None:
            self._add(fx, request.member_id, request, caller, now_ms)
        else:
            # Ids are given out in advance to dynamic members only: the client mixes up two members.
            fx.answer(caller, join_error(caller, ErrorCode.UNKNOWN_SERVER_ERROR))

    def _join_known(
        self,
        fx: Effects,
        request: JoinGroupRequest,
        protocols: dict[str, bytes],
        caller: Caller,
        now_ms: int,
    ) -> None:
        member_id = request.member_id
        code = self._check_member(member_id, request.group_instance_id)
        if code is not ErrorCode.NONE:
            fx.answer(caller, join_error(caller, code, member_id))
            return
        member = self.roster.members[member_id]
        leads = member_id == self.roster.leader_id
        same = member.offers(protocols)
        stays = {
            State.PREPARING_REBALANCE: False,
            # The answer to the JoinGroup of this generation may have been lost.
            State.COMPLETING_REBALANCE: same,
            # A leader joins again when topics have changed, which its metadata does not show.
            State.STABLE: same and not leads,
        }[self.state]
        if stays:
            fx.answer(caller, self._joined(caller, member))
            self._restart_session(fx, member, now_ms)
        else:
            self._update(member, request, protocols, caller)
            self._park_join(fx, member, caller, now_ms)
            self._rebalance_or_complete_join(fx, now_ms)

    def _add(
        self,
        fx: Effects,
        member_id: str,
        request: JoinGroupRequest,
        caller: Caller,
        now_ms: int,
    ) -> None:
        if not len(self.roster):
            self.protocol_type = request.protocol_type
        if self._initial is not None:
            self._initial.member_came = True
        member = ClassicMember(
            member_id,
            request.group_instance_id,
            caller.client_id,
            caller.client_host,
            _rebalance_timeout_ms(request, caller),
            request.session_timeout_ms,
            protocols_of(request.protocols),
            is_new=True,
            join=caller,
        )
        self.roster.add(member)
        self._restart_session(fx, member, now_ms)
        self._rebalance_or_complete_join(fx, now_ms)

    def _update(
        self,
        member: ClassicMember,
        request: JoinGroupRequest,
        protocols: dict[str, bytes],
        caller: Caller,
    ) -> None:
        self.roster.offer(member, protocols)
        member.rebalance_timeout_ms = _rebalance_timeout_ms(request, caller)
        member.session_timeout_ms = request.session_timeout_ms

    def _park_join(self, fx: Effects, member: ClassicMember, caller: Caller, now_ms: int) -> None:
        before = self.roster.park_join(member, caller)
        if before is not None:
            code = ErrorCode.REBALANCE_IN_PROGRESS
            fx.answer(before, join_error(before, code, member.member_id))
        self._restart_session(fx, member, now_ms)

    def _replace_static(
        self,
        fx: Effects,
        old: ClassicMember,
        member_id: str,
        request: JoinGroupRequest,
        caller: Caller,
        now_ms: int,
    ) -> None:
        """The process behind a static id is back under a new member id; the old one is fenced.

        A stable group continues without a rebalance as long as its protocol stays the same: the new
        process has the old one's assignment.
        """
        leader_before = self.roster.leader_id
        self._answer_waiting(fx, old, ErrorCode.FENCED_INSTANCE_ID, old.member_id)
        fx.cancel_timer(self._key(SESSION, old.member_id))
        member = self.roster.replace_static(old, member_id)
        self._update(member, request, protocols_of(request.protocols), caller)
        if self.state is not State.STABLE or self.roster.vote() != self.protocol_name:
            self._park_join(fx, member, caller, now_ms)
            self._rebalance_or_complete_join(fx, now_ms)
            return
        self._restart_session(fx, member, now_ms)
        self.subscribed = self._subscribed_topics()
        fx.records.append(self.record())
        if caller.version >= SKIP_ASSIGNMENT_FROM:
            skip = member_id == self.roster.leader_id
            fx.answer(caller, self._joined(caller, member, skip=skip))
        else:
            # An old client that finds itself to be the leader would assign again: it is shown the
            # id that it had.
            fx.answer(caller, self._joined(caller, member, leader=leader_before))

    def _new_member_id(self, prefix: str) -> str:
        raw = self.environment.rng.uuid().hex()
        return f"{prefix}-{raw[:8]}-{raw[8:12]}-{raw[12:16]}-{raw[16:20]}-{raw[20:]}"

    def _forget_pending(self, fx: Effects, member_id: str) -> None:
        self.roster.remove(member_id)
        fx.cancel_timer(self._key(SESSION, member_id))

    def _check_member(
        self, member_id: str, instance_id: str | None, generation: int | None = None
    ) -> ErrorCode:
        """Whether member id, instance id and generation of a request are right."""
        if self.state is State.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if instance_id is not None:
            known = self.roster.static_ids.get(instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        if member_id not in self.roster.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if generation is not None and generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.NONE


def _rebalance_timeout_ms(request: JoinGroupRequest, caller: Caller) -> int:
    if caller.version < REBALANCE_TIMEOUT_FROM:
        return request.session_timeout_ms
    return request.rebalance_timeout_ms
