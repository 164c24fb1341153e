"""A client of the classic protocol with cooperative rebalancing, inside a consumer group."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.wire.messages.heartbeat import HeartbeatRequest
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.wire.messages.sync_group import SyncGroupRequest
from unit.coordinator_consumer.rig import GROUP, Owned, Rig, assignment, subscription

JOIN, SYNC, STEADY = "join", "sync", "steady"


@dataclass
class ClassicMember:
    """It gives up what SyncGroup no longer lists, and joins again to say so."""

    names: list[str]
    session_ms: int
    rebalance_ms: int
    member_id: str = ""
    epoch: int = 0
    owned: Owned = field(default_factory=set)
    phase: str = JOIN
    paused_until_ms: int = 0
    answers_lost: int = 0
    instance_id: str | None = None

    def beat(self, rig: Rig) -> str:
        """Send what is next; returns a line for the trace."""
        sent = self.phase
        answer = {JOIN: self._join, SYNC: self._sync, STEADY: self._heartbeat}[sent](rig)
        code = ErrorCode(answer.error_code)
        if self.answers_lost:
            self.answers_lost -= 1
            return f"{sent} {self.member_id} -> {code.name} LOST"
        self._take(sent, code, answer)
        return f"{sent} {self.member_id} -> {code.name} {self.epoch} {sorted(self.owned)}"

    def leave(self, rig: Rig) -> None:
        identity = MemberIdentity(member_id=self.member_id)
        rig.send(LeaveGroupRequest(group_id=GROUP, members=[identity]), 5)

    def resubscribe(self, names: list[str]) -> None:
        self.names = names
        self.phase = JOIN

    def _take(self, sent: str, code: ErrorCode, answer: Any) -> None:
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            if code is ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
            self.epoch, self.owned, self.phase = 0, set(), JOIN
        elif code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
        elif code is ErrorCode.REBALANCE_IN_PROGRESS:
            self.phase = JOIN
        else:
            assert code is ErrorCode.NONE, code
            if sent == JOIN:
                self.epoch, self.phase = answer.generation_id, SYNC
            elif sent == SYNC:
                given = assignment(answer.assignment)
                self.phase = JOIN if self.owned - given else STEADY
                self.owned = given

    def _join(self, rig: Rig) -> Any:
        protocol = JoinGroupRequestProtocol(
            name="cooperative-sticky", metadata=subscription(self.names, self.owned)
        )
        return rig.send(
            JoinGroupRequest(
                group_id=GROUP,
                session_timeout_ms=self.session_ms,
                rebalance_timeout_ms=self.rebalance_ms,
                member_id=self.member_id,
                protocol_type="consumer",
                protocols=[protocol],
            ),
            9,
        )

    def _sync(self, rig: Rig) -> Any:
        request = SyncGroupRequest(
            group_id=GROUP, generation_id=self.epoch, member_id=self.member_id
        )
        return rig.send(request, 5)

    def _heartbeat(self, rig: Rig) -> Any:
        request = HeartbeatRequest(
            group_id=GROUP, generation_id=self.epoch, member_id=self.member_id
        )
        return rig.send(request, 4)
