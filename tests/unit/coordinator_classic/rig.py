"""A classic group with a clock, timers and a log around it: the driver in a nutshell.

Requests and answers go through their encoding in the version of the caller, records through theirs,
so that nothing is accepted here that could not travel or be stored. Records commit at once.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.base.ids import Uuid
from penstock.coordinator.classic import ClassicGroup
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
from penstock.coordinator.records import decode
from penstock.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from penstock.wire.messages.heartbeat import HeartbeatRequest
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.wire.messages.leave_group import LeaveGroupRequest
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from penstock.wire.schema import Message

GROUP = "g"
SESSION_MS = 10_000
REBALANCE_MS = 60_000


class NoTopics:
    """A classic group never asks for topics."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"a classic group asked for {name}")


class CountingRng:
    def __init__(self) -> None:
        self.count = 0

    def uuid(self) -> Uuid:
        self.count += 1
        return self.count.to_bytes(16, "big")

    def below(self, n: int) -> int:
        return 0


def subscription(topics: list[str], version: int = 0) -> bytes:
    """The metadata of a consumer that wants `topics`."""
    message = ConsumerProtocolSubscription(topics=topics)
    return version.to_bytes(2, "big") + message.encode(version)


def join_request(
    member_id: str = "",
    *,
    protocols: dict[str, bytes] | None = None,
    instance: str | None = None,
    session_ms: int = SESSION_MS,
    rebalance_ms: int = REBALANCE_MS,
    protocol_type: str = "consumer",
) -> JoinGroupRequest:
    if protocols is None:
        protocols = {"range": subscription(["a"])}
    return JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type=protocol_type,
        protocols=[JoinGroupRequestProtocol(name=n, metadata=m) for n, m in protocols.items()],
    )


class Rig:
    """One group and everything around it."""

    def __init__(self, **config: Any) -> None:
        self.config = GroupConfig(**config)
        self.environment = Environment(self.config, NoTopics(), CountingRng())
        self.now = 0
        self.timers: dict[TimerKey, int] = {}
        self.log: list[CoordinatorRecord] = []
        self.waiting: dict[int, type[Message]] = {}
        """The callers' requests that have no answer yet."""
        self.versions: dict[int, int] = {}
        self.answers: dict[int, Any] = {}
        self.group = ClassicGroup(GROUP, self.environment)
        self.checked = True
        """Whether the group's invariants are checked after every step."""
        self._tokens = itertools.count(1)

    # -- requests ------------------------------------------------------------------------------

    def send(
        self, request: Message, version: int | None = None, client_id: str = "c"
    ) -> tuple[int, Effects]:
        """Hand a request in; returns its token and what the group asked for."""
        version = request.VERSIONS[-1] if version is None else version
        token = next(self._tokens)
        caller = Caller(token, version, client_id, "/127.0.0.1")
        self.waiting[token] = type(request)
        self.versions[token] = version
        decoded = type(request).decode(request.encode(version), version)
        return token, self.apply(self.group.handle(decoded, caller, self.now))

    def ask(self, request: Message, version: int | None = None, client_id: str = "c") -> Any:
        """The answer to a request; None while it waits."""
        token, _ = self.send(request, version, client_id)
        return self.answers.get(token)

    def join(
        self, member_id: str = "", *, version: int | None = None, client: str = "c", **parts: Any
    ) -> Any:
        """The answer to a JoinGroup, or its token while it waits."""
        token, _ = self.send(join_request(member_id, **parts), version, client)
        return self.answers.get(token, token)

    def sync(
        self,
        member_id: str,
        assignments: dict[str, bytes] | None = None,
        *,
        generation: int | None = None,
        version: int | None = None,
        **parts: Any,
    ) -> Any:
        """The answer to a SyncGroup, or its token while it waits."""
        parts = {
            "protocol_type": self.group.protocol_type,
            "protocol_name": self.group.protocol_name,
            **parts,
        }
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.group.generation if generation is None else generation,
            member_id=member_id,
            assignments=[
                SyncGroupRequestAssignment(member_id=m, assignment=a)
                for m, a in (assignments or {}).items()
            ],
            **parts,
        )
        token, _ = self.send(request, version)
        return self.answers.get(token, token)

    def heartbeat(
        self, member_id: str, *, generation: int | None = None, instance: str | None = None
    ) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=GROUP,
            generation_id=self.group.generation if generation is None else generation,
            member_id=member_id,
            group_instance_id=instance,
        )
        return ErrorCode(self.ask(request).error_code)

    def leave(self, *members: Any, version: int | None = None) -> Any:
        request = LeaveGroupRequest(group_id=GROUP, members=list(members))
        return self.ask(request, version)

    # -- what the driver does ------------------------------------------------------------------

    def apply(self, effects: Effects) -> Effects:
        self.log += effects.records
        for reply in effects.replies:
            self.reply(reply)
        for timer in effects.timers:
            if isinstance(timer, SetTimer):
                self.timers[timer.key] = timer.deadline_ms
            else:
                self.timers.pop(timer.key, None)
        if self.checked:
            self.group.invariants()
        return effects

    def reply(self, reply: Reply) -> None:
        del self.waiting[reply.token]
        version = self.versions[reply.token]
        self.answers[reply.token] = type(reply.response).decode(
            reply.response.encode(version), version
        )

    def next_timer(self) -> tuple[TimerKey, int] | None:
        """The timer that is due first."""
        return min(self.timers.items(), key=lambda item: (item[1], item[0]), default=None)

    def fire(self, key: TimerKey) -> Effects:
        del self.timers[key]
        return self.apply(self.group.on_timer(key, self.now))

    def advance(self, ms: int) -> None:
        """Let time pass, with every timer at its time."""
        end = self.now + ms
        while (timer := self.next_timer()) is not None and timer[1] <= end:
            self.now = max(self.now, timer[1])
            self.fire(timer[0])
        self.now = end

    def crash(self) -> Effects:
        """Throw the group away and build it anew from its records."""
        for reply in self.group.unpark(ErrorCode.NOT_COORDINATOR):
            self.reply(reply)
        self.timers.clear()
        self.group = replayed(self.log, self.environment)
        return self.apply(self.group.loaded(self.now))

    def set_config(self, **changes: Any) -> None:
        self.config = replace(self.config, **changes)
        self.environment.config = self.config

    # -- short ways ----------------------------------------------------------------------------

    def stable(self, count: int, **parts: Any) -> list[str]:
        """A stable group of `count` members that has used up its initial delay; their ids."""
        for number in range(count):
            self.join(version=3, client=f"m{number}", **parts)
        self.advance(self.config.group_initial_rebalance_delay_ms * (1 + (count > 1)))
        ids = list(self.group.roster.members)
        for member_id in ids[1:]:
            self.sync(member_id)
        self.sync(ids[0], {m: f"of {m}".encode() for m in ids})
        assert self.group.state_name == "Stable"
        return ids


def replayed(log: list[CoordinatorRecord], environment: Environment) -> ClassicGroup:
    """The group that the records describe."""
    group = ClassicGroup(GROUP, environment)
    for record in log:
        decoded = decode(*record)
        assert decoded is not None
        if decoded.value is None:
            group = ClassicGroup(GROUP, environment)
        else:
            group.replay(decoded.key, decoded.value, 0)
    return group


def snapshot(group: ClassicGroup) -> tuple[Any, ...]:
    """All that a record keeps of a group."""
    name = group.protocol_name or ""
    return (
        group.state,
        group.generation,
        group.protocol_type,
        group.protocol_name,
        group.roster.leader_id,
        group.subscribed,
        [
            (
                m.member_id,
                m.instance_id,
                m.client_id,
                m.client_host,
                m.rebalance_timeout_ms,
                m.session_timeout_ms,
                m.protocols[name],
                m.assignment,
            )
            for m in group.roster
        ],
    )
