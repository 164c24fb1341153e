"""A simulated consumer process: it follows the classic protocol as Kafka's own clients do.

It joins, assigns if it leads, syncs, sends heartbeats, gives everything up when it is told to join
again, tries again when an answer does not come, and may be killed, paused or restarted at any time.
A stalled one sends heartbeats, but does nothing that its user's own loop would have to do.
"""

from __future__ import annotations

import random
from typing import Protocol

from penstock.base.errors import ErrorCode
from penstock.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from penstock.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from penstock.wire.schema import Message
from sim.classic.coordinator import REBALANCE_MS, SESSION_MS
from unit.coordinator_classic.rig import GROUP, join_request, subscription

PARTITIONS = range(8)
HEARTBEAT_MS = SESSION_MS // 3
BACKOFF_MS = 100
REQUEST_TIMEOUT_MS = 1_000
JOIN_TIMEOUT_MS = REBALANCE_MS + 1_000


class World(Protocol):
    """What a process can do to the world around it."""

    chance: random.Random
    now: int

    def transmit(self, member: Member, request: Message, version: int) -> None: ...
    def wake(self, member: Member, delay_ms: int, what: str) -> None: ...
    def owns(self, member: Member, generation: int, partitions: frozenset[int]) -> None: ...
    def fenced(self, member: Member) -> None: ...


class Member:
    """One process, or a row of them behind one static id."""

    def __init__(self, world: World, name: str, instance: str | None, version: int) -> None:
        self.world = world
        self.name = name
        self.instance = instance
        self.version = version
        self.life = 0
        """Counts restarts and changes of mind: whatever comes for an older life is ignored."""
        self.starts = 0
        self.alive = False
        self.paused_until = 0
        self.stalled_until = 0
        self.topics = ["a"]
        self._forget()

    def _forget(self) -> None:
        self.member_id = ""
        self.generation = -1
        self.owned: frozenset[int] | None = None
        self.request: Message | None = None
        self.next_sync: SyncGroupRequest | None = None

    @property
    def is_stalled(self) -> bool:
        return self.world.now < self.stalled_until

    @property
    def is_settled(self) -> bool:
        """It has an assignment and was not told otherwise."""
        return self.alive and self.owned is not None

    # -- what happens to it --------------------------------------------------------------------

    def start(self) -> None:
        self._forget()
        self.alive = True
        self.starts += 1
        self.life += 1
        self.join()

    def ghost(self) -> Member:
        """The same process seen from another world: it goes on when this one is restarted."""
        other = Member(self.world, self.name, self.instance, self.version)
        other.alive = self.alive
        other.member_id, other.generation = self.member_id, self.generation
        other.owned, other.topics = self.owned, self.topics
        self.world.wake(other, HEARTBEAT_MS, "heartbeat")
        return other

    def kill(self) -> None:
        self.alive = False
        self.life += 1
        self.owned = None

    def leave(self) -> None:
        """Go with a word; a static member goes without, as Kafka's clients do."""
        if self.member_id and self.instance is None:
            goodbye = LeaveGroupRequest(
                group_id=GROUP, members=[MemberIdentity(member_id=self.member_id)]
            )
            self.world.transmit(self, goodbye, 5)
        self.kill()

    def due(self, what: str) -> None:
        """Something that `wake` was asked for."""
        if what == "join":
            self.join()
        elif what == "heartbeat":
            self._send(self._heartbeat(), REQUEST_TIMEOUT_MS)
        elif what == "sync" and self.next_sync is not None:
            self._sync_or_stall(self.next_sync)
        elif what == "timeout" and self.request is not None:
            self._send(self.request, self._patience(self.request))

    # -- requests ------------------------------------------------------------------------------

    def join(self) -> None:
        """Join (again), with nothing in hand."""
        self.owned = self.next_sync = None
        request = join_request(
            self.member_id,
            protocols={"range": subscription(self.topics)},
            instance=self.instance,
            session_ms=SESSION_MS,
            rebalance_ms=REBALANCE_MS,
        )
        self._send(request, JOIN_TIMEOUT_MS)

    def _heartbeat(self) -> HeartbeatRequest:
        return HeartbeatRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
        )

    def _patience(self, request: Message) -> int:
        return JOIN_TIMEOUT_MS if isinstance(request, JoinGroupRequest) else REQUEST_TIMEOUT_MS

    def _send(self, request: Message, patience_ms: int) -> None:
        self.life += 1
        self.request = request
        version = self.version if isinstance(request, JoinGroupRequest) else request.VERSIONS[-1]
        self.world.transmit(self, request, version)
        self.world.wake(self, patience_ms, "timeout")

    # -- answers -------------------------------------------------------------------------------

    def receive(self, answer: Message) -> None:
        self.request = None
        self.life += 1
        if isinstance(answer, JoinGroupResponse):
            self._on_join(answer)
        elif isinstance(answer, SyncGroupResponse):
            self._on_sync(answer)
        elif isinstance(answer, HeartbeatResponse):
            self._on_heartbeat(ErrorCode(answer.error_code))

    def _on_heartbeat(self, code: ErrorCode) -> None:
        stays = code is ErrorCode.REBALANCE_IN_PROGRESS and self.is_stalled
        if code is ErrorCode.NONE or stays:
            what = "heartbeat" if self.next_sync is None else "sync"
            self.world.wake(self, HEARTBEAT_MS, what)
        else:
            self._start_over(code)

    def _on_join(self, answer: JoinGroupResponse) -> None:
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self.join()
            return
        if code is not ErrorCode.NONE:
            self._start_over(code)
            return
        self.member_id, self.generation = answer.member_id, answer.generation_id
        leads = answer.leader == answer.member_id and not answer.skip_assignment
        assert leads == bool(answer.members) or answer.skip_assignment
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocol_name=answer.protocol_name,
            assignments=self._assign([m.member_id for m in answer.members]) if leads else [],
        )
        self._sync_or_stall(request)

    def _sync_or_stall(self, request: SyncGroupRequest) -> None:
        if self.is_stalled:
            self.next_sync = request
            self._send(self._heartbeat(), REQUEST_TIMEOUT_MS)
        else:
            self.next_sync = None
            self._send(request, REQUEST_TIMEOUT_MS)

    def _assign(self, members: list[str]) -> list[SyncGroupRequestAssignment]:
        """Deal the partitions out in an order of its own."""
        self.world.chance.shuffle(members)
        return [
            SyncGroupRequestAssignment(
                member_id=m, assignment=bytes(PARTITIONS[place :: len(members)])
            )
            for place, m in enumerate(members)
        ]

    def _on_sync(self, answer: SyncGroupResponse) -> None:
        if answer.error_code != ErrorCode.NONE:
            self._start_over(ErrorCode(answer.error_code))
            return
        self.owned = frozenset(answer.assignment)
        self.world.owns(self, self.generation, self.owned)
        self.world.wake(self, HEARTBEAT_MS, "heartbeat")

    def _start_over(self, code: ErrorCode) -> None:
        """What Kafka's clients do about an error."""
        self.owned = self.next_sync = None
        if code is ErrorCode.FENCED_INSTANCE_ID:
            self.world.fenced(self)
            self.kill()
            return
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self._forget()
        else:
            expected = (
                ErrorCode.REBALANCE_IN_PROGRESS,
                ErrorCode.ILLEGAL_GENERATION,
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
            )
            assert code in expected, f"{self.name} was told {code.name}"
        self.world.wake(self, self.world.chance.randint(0, BACKOFF_MS), "join")
