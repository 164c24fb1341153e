"""Generations of a classic group: the join phase, the sync phase, and every timer.

The state of a group changes only here, by `_become`, which holds it to the table in `states.py`.
What follows goes into the `Effects` that is handed in.

Timers, by key after the group's id:

* `join`: the end of the join phase, also of the initial delay of a group that was empty. Set
  exactly in PreparingRebalance.
* `sync`: members that have not sent SyncGroup by then are dropped. Set exactly while some have not.
* `session MEMBER`: the member, or one that was given an id and has not joined, has been silent for
  too long. Runs out without effect while a request of an old member waits here, and is set again
  when that is answered.

Invariants: JoinGroups wait only in PreparingRebalance, SyncGroups only in CompletingRebalance; the
generation only grows; a record is written when a generation gets its assignment, when the group
becomes empty, and when a static member is replaced in a stable group. A generation without an
assignment is not written: nobody owns anything by it, and after a fail-over its number is given
again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.base.errors import ErrorCode, invariant
from penstock.base.ids import NO_TIMESTAMP
from penstock.coordinator.classic.member import ClassicMember
from penstock.coordinator.classic.responses import join_error, joined
from penstock.coordinator.classic.roster import Roster
from penstock.coordinator.classic.states import MOVES, State
from penstock.coordinator.classic.subscriptions import subscribed_topics
from penstock.coordinator.effects import Caller, CoordinatorRecord, Effects, TimerKey
from penstock.coordinator.group import CONSUMER_PROTOCOL_TYPE, Environment
from penstock.coordinator.records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    encode,
)
from penstock.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from penstock.wire.messages.sync_group import SyncGroupResponse

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60_000
"""How long a new member's JoinGroup may wait. Its client may have given up long ago without notice:
it sends no heartbeats yet.
"""

JOIN: Final = "join"
SYNC: Final = "sync"
SESSION: Final = "session"


@dataclass(slots=True)
class InitialDelay:
    """The first join phase of a group that was empty: it is drawn out while members come."""

    delay_ms: int
    """The part that runs now."""
    remaining_ms: int
    """What further parts may take in all."""
    member_came: bool = False


class GroupMachine:
    """The part of `ClassicGroup` that moves between states."""

    __slots__ = (
        "_initial",
        "environment",
        "generation",
        "group_id",
        "protocol_name",
        "protocol_type",
        "roster",
        "state",
        "state_since_ms",
        "subscribed",
    )

    def __init__(self, group_id: str, environment: Environment) -> None:
        self.group_id = group_id
        self.environment = environment
        self._initial: InitialDelay | None = None
        self.state = State.EMPTY
        self.state_since_ms = NO_TIMESTAMP
        self.generation = 0
        self.protocol_type = ""
        """Kept when the last member goes; empty before the first came."""
        self.protocol_name: str | None = None
        self.roster = Roster()
        self.subscribed: frozenset[str] | None = None
        """Topics of the generation's members; None where the protocol type does not show them."""

    # -- the join phase ------------------------------------------------------------------------

    def prepare_rebalance(self, fx: Effects, now_ms: int) -> None:
        """Ask all members to join again; those that wait for an assignment come back at once."""
        if self.state is State.COMPLETING_REBALANCE:
            for member in self.roster:
                member.assignment = b""
            self._answer_syncs(fx, ErrorCode.REBALANCE_IN_PROGRESS, now_ms)
        if self.roster.pending_sync:
            self.roster.pending_sync.clear()
            fx.cancel_timer(self._key(SYNC))
        was_empty = self.state is State.EMPTY
        self._become(State.PREPARING_REBALANCE, now_ms)
        if was_empty:
            delay_ms = self.environment.config.group_initial_rebalance_delay_ms
            remaining_ms = max(self.roster.rebalance_timeout_ms - delay_ms, 0)
            self._initial = InitialDelay(delay_ms, remaining_ms)
            fx.set_timer(self._key(JOIN), now_ms + delay_ms)
        elif self.roster.all_joined:
            self._complete_join(fx, now_ms)
        else:
            fx.set_timer(self._key(JOIN), now_ms + self.roster.rebalance_timeout_ms)

    def _rebalance_or_complete_join(self, fx: Effects, now_ms: int) -> None:
        """Members or what they offer have changed."""
        if State.PREPARING_REBALANCE in MOVES[self.state]:
            self.prepare_rebalance(fx, now_ms)
        elif self._initial is None:
            self._complete_join_early(fx, now_ms)

    def _complete_join_early(self, fx: Effects, now_ms: int) -> None:
        """Nobody is left to wait for: the join phase need not run its time."""
        if self.state is State.PREPARING_REBALANCE and self.roster.all_joined:
            fx.cancel_timer(self._key(JOIN))
            self._complete_join(fx, now_ms)

    def _join_timer(self, fx: Effects, now_ms: int) -> None:
        if self.state is not State.PREPARING_REBALANCE:
            return
        initial = self._initial
        if initial is None or not initial.member_came or not initial.remaining_ms:
            self._complete_join(fx, now_ms)
            return
        whole_ms = self.environment.config.group_initial_rebalance_delay_ms
        delay_ms = min(whole_ms, initial.remaining_ms)
        self._initial = InitialDelay(delay_ms, max(initial.remaining_ms - initial.delay_ms, 0))
        fx.set_timer(self._key(JOIN), now_ms + delay_ms)

    def _complete_join(self, fx: Effects, now_ms: int) -> None:
        """Begin the next generation with the members that have joined; static members may be
        absent.
        """
        roster = self.roster
        for member in [m for m in roster if m.join is None and not m.is_static]:
            self._drop(fx, member)
        if len(roster) and not roster.elect_joined_leader():
            # Only static members are left, all of them away: their sessions decide.
            fx.set_timer(self._key(JOIN), now_ms + roster.rebalance_timeout_ms)
            return
        self.generation += 1
        self._initial = None
        self.protocol_name = roster.vote() if len(roster) else None
        self.subscribed = self._subscribed_topics()
        if not len(roster):
            self._become(State.EMPTY, now_ms)
            fx.records.append(self.record())
            return
        self._become(State.COMPLETING_REBALANCE, now_ms)
        for member in roster:
            caller = roster.take_join(member)
            if caller is not None:
                fx.answer(caller, self._joined(caller, member))
            member.is_new = False
            self._restart_session(fx, member, now_ms)
        roster.pending_sync.update(roster.members)
        fx.set_timer(self._key(SYNC), now_ms + roster.rebalance_timeout_ms)

    def _joined(
        self,
        caller: Caller,
        member: ClassicMember,
        *,
        leader: str | None = None,
        skip: bool = False,
    ) -> JoinGroupResponse:
        """The present generation for `member`; its leader sees all members."""
        leader = leader or self.roster.leader_id or ""
        members = []
        if leader == member.member_id:
            name = self.protocol_name or ""
            members = [
                JoinGroupResponseMember(
                    member_id=m.member_id,
                    group_instance_id=m.instance_id,
                    metadata=m.protocols.get(name, b""),
                )
                for m in self.roster
            ]
        return joined(
            caller,
            member_id=member.member_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=leader,
            members=members,
            skip_assignment=skip,
        )

    # -- the sync phase ------------------------------------------------------------------------

    def _assign(self, fx: Effects, assignments: dict[str, bytes], now_ms: int) -> None:
        """The leader has sent the assignment; members that it left out get nothing."""
        for member in self.roster:
            member.assignment = assignments.get(member.member_id, b"")
        fx.records.append(self.record())
        self._become(State.STABLE, now_ms)
        self.environment.rebalances.classic += 1
        self._answer_syncs(fx, ErrorCode.NONE, now_ms)

    def _answer_syncs(self, fx: Effects, code: ErrorCode, now_ms: int) -> None:
        for member in self.roster:
            caller, member.sync = member.sync, None
            if caller is not None:
                fx.answer(caller, self._synced(member, code))
                self._restart_session(fx, member, now_ms)

    def _synced(self, member: ClassicMember, code: ErrorCode) -> SyncGroupResponse:
        if code is not ErrorCode.NONE:
            return SyncGroupResponse(error_code=code)
        return SyncGroupResponse(
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            assignment=member.assignment,
        )

    def _sync_expected_no_more(self, fx: Effects, member: ClassicMember) -> None:
        pending = self.roster.pending_sync
        if member.member_id in pending:
            pending.remove(member.member_id)
            if not pending:
                fx.cancel_timer(self._key(SYNC))

    def _sync_timer(self, fx: Effects, now_ms: int) -> None:
        late = [m for m in self.roster if m.member_id in self.roster.pending_sync]
        for member in late:
            self._drop(fx, member)
        if late:
            self.prepare_rebalance(fx, now_ms)

    # -- members that go -----------------------------------------------------------------------

    def _session_timer(self, fx: Effects, member_id: str, now_ms: int) -> None:
        if member_id in self.roster.pending:
            self.roster.remove(member_id)
            self._complete_join_early(fx, now_ms)
            return
        member = self.roster.members.get(member_id)
        if member is None or member.waits:
            return
        self._drop(fx, member)
        if self.state is State.PREPARING_REBALANCE:
            self._complete_join_early(fx, now_ms)
        else:
            self.prepare_rebalance(fx, now_ms)

    def _drop(self, fx: Effects, member: ClassicMember) -> None:
        """Remove a member. A client that still waits for an answer learns that it is unknown."""
        self._answer_waiting(fx, member, ErrorCode.UNKNOWN_MEMBER_ID, "")
        self._sync_expected_no_more(fx, member)
        self.roster.remove(member.member_id)
        fx.cancel_timer(self._key(SESSION, member.member_id))

    def _answer_waiting(
        self, fx: Effects, member: ClassicMember, code: ErrorCode, member_id: str
    ) -> None:
        """Answer the requests of `member` that wait with an error."""
        caller = self.roster.take_join(member)
        if caller is not None:
            fx.answer(caller, join_error(caller, code, member_id))
        caller, member.sync = member.sync, None
        if caller is not None:
            fx.answer(caller, self._synced(member, code))

    # -- state, timers, records ----------------------------------------------------------------

    def _become(self, state: State, now_ms: int) -> None:
        invariant(
            state in MOVES[self.state],
            f"group {self.group_id} may not go from {self.state.value} to {state.value}",
        )
        self.state = state
        self.state_since_ms = now_ms

    def _key(self, *parts: str) -> TimerKey:
        return (self.group_id, *parts)

    def _restart_session(self, fx: Effects, member: ClassicMember, now_ms: int) -> None:
        """A sign of life: restart the member's session timer."""
        limit_ms = NEW_MEMBER_JOIN_TIMEOUT_MS if member.is_new else member.session_timeout_ms
        fx.set_timer(self._key(SESSION, member.member_id), now_ms + limit_ms)

    def _subscribed_topics(self) -> frozenset[str] | None:
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        name = self.protocol_name
        if name is None and len(self.roster):
            return None
        return subscribed_topics(m.protocols[name or ""] for m in self.roster)

    def record(self) -> CoordinatorRecord:
        """The group as it is now."""
        name = self.protocol_name
        value = GroupMetadataValue(
            protocol_type=self.protocol_type,
            generation=self.generation,
            protocol=name,
            leader=self.roster.leader_id,
            current_state_timestamp=self.state_since_ms,
            members=[
                MemberMetadata(
                    member_id=m.member_id,
                    group_instance_id=m.instance_id,
                    client_id=m.client_id,
                    client_host=m.client_host,
                    rebalance_timeout=m.rebalance_timeout_ms,
                    session_timeout=m.session_timeout_ms,
                    subscription=m.protocols.get(name or "", b""),
                    assignment=m.assignment,
                )
                for m in self.roster
            ],
        )
        return encode(GroupMetadataKey(group=self.group_id), value)
