"""The simulated coordinator: a classic group, its timers, its log, and what must always hold.

Records take time to commit, and answers wait for all records that were written before them. A crash
loses the answers that wait and some of the records that are not committed; the group is then
rebuilt from what is left. After every step, what the group did is held against what it may do.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.base.errors import ErrorCode
from penstock.coordinator.classic import ClassicGroup, State
from penstock.coordinator.classic.machine import NEW_MEMBER_JOIN_TIMEOUT_MS
from penstock.coordinator.config import GroupConfig
from penstock.coordinator.effects import (
    Caller,
    CoordinatorRecord,
    Effects,
    Reply,
    SetTimer,
    TimerKey,
)
from penstock.coordinator.group import Environment
from penstock.coordinator.records import GroupMetadataValue, decode
from penstock.wire.messages.join_group import JoinGroupRequest
from penstock.wire.messages.leave_group import LeaveGroupRequest
from penstock.wire.messages.sync_group import SyncGroupResponse
from penstock.wire.schema import Message
from unit.coordinator_classic.rig import GROUP, NoTopics, replayed

SESSION_MS = 3_000
REBALANCE_MS = 5_000
INITIAL_DELAY_MS = 500
COMMIT_MS_MAX = 40
SIGNS_OF_LIFE = (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
"""A member that is told anything else is not known by what it said."""


class SeededRng:
    """Chance for the group, drawn from the seed."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def uuid(self) -> bytes:
        return self._chance.randbytes(16)

    def below(self, n: int) -> int:
        return self._chance.randrange(n)


class Batch(NamedTuple):
    """What one event wrote and will answer, once it is committed."""

    commit_at: int
    records: list[CoordinatorRecord]
    replies: list[Reply]


class Standing(NamedTuple):
    """How a member stood before a step."""

    waits: bool
    owes_sync: bool
    is_static: bool


@dataclass
class Checks:
    """What was seen so far, to hold the next step against."""

    last_sign: dict[str, int] = field(default_factory=dict)
    """When the group last heard of a member, or gave it an answer that it had waited for."""
    phase_since: int = 0
    phase_limit_ms: int = 0
    """The longest rebalance timeout of those who were members when the phase began."""
    parked: dict[int, int] = field(default_factory=dict)
    """Since when each request waits inside the group."""
    generation: int = 0
    generation_since: int = 0
    generation_limit_ms: int = 0
    committed_generation: int = 0
    assigned: set[int] = field(default_factory=set)
    """Generations of this incarnation whose leader has spoken."""


class Coordinator:
    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        config = GroupConfig(
            group_min_session_timeout_ms=0, group_initial_rebalance_delay_ms=INITIAL_DELAY_MS
        )
        self._environment = Environment(config, NoTopics(), SeededRng(chance))
        self.group = ClassicGroup(GROUP, self._environment)
        self.timers: dict[TimerKey, int] = {}
        self.log: list[CoordinatorRecord] = []
        self.up = True
        self.crashes = 0
        self._uncommitted: deque[Batch] = deque()
        self._checks = Checks()

    # -- events --------------------------------------------------------------------------------

    def handle(self, request: Message, caller: Caller, now: int) -> list[Reply]:
        before = self._before()
        effects = self.group.handle(request, caller, now)
        answer = next((r.response for r in effects.replies if r.token == caller.token), None)
        if answer is None:
            self._checks.parked[caller.token] = now
        if answer is None or getattr(answer, "error_code", None) in SIGNS_OF_LIFE:
            self._checks.last_sign[getattr(request, "member_id", "")] = now
        leave = isinstance(request, LeaveGroupRequest | JoinGroupRequest)
        self._check(effects, before, now, may_go=leave, key=None)
        return self._apply(effects, now)

    def run_until(self, now: int) -> list[Reply]:
        """Fire the timers and commit the batches that are due at `now`."""
        replies: list[Reply] = []
        for key in [k for k, deadline in self.timers.items() if deadline <= now]:
            if self.timers.get(key, now + 1) <= now:
                del self.timers[key]
                before = self._before()
                effects = self.group.on_timer(key, now)
                self._check(effects, before, now, may_go=False, key=key)
                replies += self._apply(effects, now)
        while self._uncommitted and self._uncommitted[0].commit_at <= now:
            replies += self._commit(self._uncommitted.popleft())
        return replies

    def next_event(self) -> int | None:
        times = list(self.timers.values())
        if self._uncommitted:
            times.append(self._uncommitted[0].commit_at)
        return min(times, default=None)

    def crash(self) -> None:
        """Lose the memory, every answer, and the end of what is not committed."""
        survive = self._chance.randint(0, len(self._uncommitted))
        for _ in range(survive):
            self._commit(self._uncommitted.popleft())
        self._uncommitted.clear()
        self.timers.clear()
        self.up = False
        self.crashes += 1

    def restart(self, now: int) -> None:
        self.up = True
        self.group = replayed(self.log, self._environment)
        checks = Checks(committed_generation=self._checks.committed_generation)
        assert self.group.generation == checks.committed_generation
        checks.generation = self.group.generation
        checks.phase_since = now
        checks.last_sign = dict.fromkeys(self.group.roster.members, now)
        self._checks = checks
        assert not self._apply(self.group.loaded(now), now)

    # -- the driver ----------------------------------------------------------------------------

    def _apply(self, effects: Effects, now: int) -> list[Reply]:
        for timer in effects.timers:
            if isinstance(timer, SetTimer):
                self.timers[timer.key] = timer.deadline_ms
            else:
                self.timers.pop(timer.key, None)
        self._check_timers()
        if not effects.records and not self._uncommitted:
            return effects.replies
        last = self._uncommitted[-1].commit_at if self._uncommitted else now
        delay = self._chance.randint(1, COMMIT_MS_MAX) if effects.records else 0
        self._uncommitted.append(Batch(max(last, now + delay), effects.records, effects.replies))
        return []

    def _commit(self, batch: Batch) -> list[Reply]:
        for record in batch.records:
            self.log.append(record)
            decoded = decode(*record)
            assert decoded is not None
            assert isinstance(decoded.value, GroupMetadataValue)
            generation = decoded.value.generation
            assert generation >= self._checks.committed_generation, "a generation went back"
            self._checks.committed_generation = generation
        return batch.replies

    # -- what must hold ------------------------------------------------------------------------

    def _before(self) -> dict[str, Standing]:
        """How each member stands before a step."""
        roster = self.group.roster
        return {
            m.member_id: Standing(m.waits, m.member_id in roster.pending_sync, m.is_static)
            for m in roster
        }

    def _check(
        self,
        effects: Effects,
        before: dict[str, Standing],
        now: int,
        *,
        may_go: bool,
        key: TimerKey | None,
    ) -> None:
        group, checks = self.group, self._checks
        group.invariants()
        gone = before.keys() - group.roster.members.keys()
        if gone and not may_go:
            assert key is not None, f"{gone} went away without leaving"
            for member_id in gone:
                self._check_gone(member_id, before[member_id], key, now)
        if group.generation != checks.generation:
            assert group.generation == checks.generation + 1, "a generation was left out"
            checks.generation = group.generation
            checks.generation_since = now
            checks.generation_limit_ms = group.roster.rebalance_timeout_ms
            checks.last_sign.update(dict.fromkeys(group.roster.members, now))
        if group.state_since_ms == now:
            checks.phase_since = now
            checks.phase_limit_ms = group.roster.rebalance_timeout_ms
        if any(isinstance(r.response, SyncGroupResponse) for r in effects.replies):
            self._check_one_leader(effects)
        for reply in effects.replies:
            checks.parked.pop(reply.token, None)
        self._note_answers(effects, before, now)
        self._check_silence(now)
        self._check_waiting(now)

    def _check_one_leader(self, effects: Effects) -> None:
        """The assignment of a generation is written once, by its leader's SyncGroup."""
        if effects.records and self.group.state is State.STABLE:
            generation = self.group.generation
            assert generation not in self._checks.assigned, "two leaders assigned"
            self._checks.assigned.add(generation)

    def _check_gone(self, member_id: str, before: Standing, key: TimerKey, now: int) -> None:
        """A member may be dropped for silence, for not joining, or for not syncing; no sooner."""
        checks = self._checks
        in_phase = now - checks.phase_since
        if key[1] == "session":
            assert key[2] == member_id, f"{member_id} went with the session of {key[2]}"
            assert not before.waits, f"{member_id} was dropped while it waited"
            silence = now - checks.last_sign[member_id]
            assert silence >= SESSION_MS, f"{member_id} was dropped after {silence} ms"
        elif key[1] == "join":
            assert not before.is_static, f"{member_id} may be away"
            assert in_phase >= checks.phase_limit_ms, f"join phase cut to {in_phase} ms"
            assert not before.waits, f"{member_id} had joined and was dropped"
        else:
            assert before.owes_sync, f"{member_id} had synced and was dropped"
            # The phase may have ended with the leader's SyncGroup, but its time goes on.
            assert now - checks.generation_since >= checks.generation_limit_ms, "sync phase cut"

    def _note_answers(self, effects: Effects, before: dict[str, Standing], now: int) -> None:
        """Whoever waited and was answered has its whole session before it."""
        if effects.replies:
            for member in self.group.roster:
                stood = before.get(member.member_id)
                if stood is not None and stood.waits and not member.waits:
                    self._checks.last_sign[member.member_id] = now

    def _check_silence(self, now: int) -> None:
        for member in self.group.roster:
            if member.waits:
                continue
            limit = NEW_MEMBER_JOIN_TIMEOUT_MS if member.is_new else SESSION_MS
            since = self._checks.last_sign.setdefault(member.member_id, now)
            silence = now - since
            assert silence <= limit, f"{member.member_id} is silent for {silence} ms and still in"

    def _check_waiting(self, now: int) -> None:
        waiting = {
            caller.token
            for member in self.group.roster
            for caller in (member.join, member.sync)
            if caller is not None
        }
        for token, since in self._checks.parked.items():
            assert token in waiting, f"request {token} was forgotten"
            waited = now - since
            assert waited <= REBALANCE_MS + INITIAL_DELAY_MS, f"{token} waits {waited} ms"

    def _check_timers(self) -> None:
        """Each timer that the state calls for runs, so that nothing can hang."""
        group = self.group
        joining = group.state is State.PREPARING_REBALANCE
        assert ((GROUP, "join") in self.timers) == joining, "the join timer disagrees"
        owing = bool(group.roster.pending_sync)
        assert ((GROUP, "sync") in self.timers) == owing, "the sync timer disagrees"
        for member in group.roster:
            key = (GROUP, "session", member.member_id)
            assert member.waits or key in self.timers, f"nobody watches {member.member_id}"
        for member_id in group.roster.pending:
            assert (GROUP, "session", member_id) in self.timers, f"nobody watches {member_id}"
