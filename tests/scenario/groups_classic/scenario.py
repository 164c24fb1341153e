"""The scenario language of classic groups: one event per line in, effects as lines out.

An event is `t=MILLISECONDS VERB ...`; timers that are due before it go off first. Indented below it
stands what must come of it:

    ! timer             a timer went off, at the time that is given if it is not the event's
    NAME: answer        an answer to a client; `parked` if its request waits
    + record            a record that is written
    ~ timers            timers set (`@` deadline) and cancelled (`off`)
    = STATE gen=N       the state that the group is in, where it changed

A client remembers what it has sent and learned (version, protocols, timeouts, member id,
generation), so that later lines need only name what is different. Member ids are shown as
NAME#NUMBER.

    join NAME [vN] [PROTOCOL,PROTOCOL] [topics=a,b] [static=ID] [id=ID] [session=MS] [rebalance=MS]
         [type=TYPE]
    sync NAME [vN] [MEMBER=ASSIGNMENT ...] [gen=N] [id=ID] [static=ID] [type=TYPE] [protocol=NAME]
    heartbeat NAME [vN] [gen=N] [id=ID] [static=ID]
    leave NAME|static:ID|NAME/ID ... [vN]
    commit NAME [gen=N] [id=ID] [static=ID]
    forget NAME                 the client's process restarts: it knows no member id any more
    describe, crash, wait
    config SETTING=NUMBER ...

`-` as a value means none. Run with `PENSTOCK_REWRITE=1` to write the present output into the files,
then read the difference.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.coordinator.effects import CoordinatorRecord, Effects, SetTimer, TimerKey
from penstock.coordinator.group import Committer
from penstock.coordinator.records import GroupMetadataValue, decode
from penstock.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.wire.messages.join_group import JoinGroupResponse
from penstock.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from penstock.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from unit.coordinator_classic.rig import GROUP, Rig, join_request, replayed, snapshot, subscription

LONG_ID = re.compile(r"\b([\w.]+)-00000000-0000-0000-0000-0*([0-9a-f]+)\b")


def short(text: str) -> str:
    """Member ids as people read them."""
    return LONG_ID.sub(lambda found: f"{found[1]}#{int(found[2], 16)}", text)


@dataclass
class Client:
    """What one client has sent and learned."""

    member_id: str = ""
    generation: int = -1
    protocol: str = "range"
    join: dict[str, Any] = field(default_factory=dict)
    version: int | None = None


class Scenario:
    def __init__(self) -> None:
        self.rig = Rig()
        self.clients: dict[str, Client] = {}
        self.senders: dict[int, str] = {}
        self.shown: set[int] = set()
        self.state = ""

    def run(self, line: str) -> Iterator[str]:
        when, verb, *words = line.split()
        yield from self.let_time_pass(int(when.removeprefix("t=")))
        options = dict(word.split("=", 1) for word in words if "=" in word)
        rest = [word for word in words if "=" not in word]
        version = next((w for w in rest if re.fullmatch(r"v\d+", w)), None)
        if version is not None:
            rest.remove(version)
            options["version"] = version[1:]
        method: Callable[..., Iterator[str]] = getattr(self, f"do_{verb}")
        yield from map(short, method(rest, options))

    def let_time_pass(self, end: int) -> Iterator[str]:
        rig = self.rig
        assert end >= rig.now, f"time goes back to {end}"
        while (timer := rig.next_timer()) is not None and timer[1] <= end:
            key, rig.now = timer
            at = "" if rig.now == end else f" at {rig.now}"
            yield short(f"! {timer_name(key)}{at}")
            yield from map(short, self.effects(rig.fire(key)))
        rig.now = end

    # -- events --------------------------------------------------------------------------------

    def do_join(self, words: list[str], options: dict[str, str]) -> Iterator[str]:
        name, *protocols = words
        client = self.clients.setdefault(name, Client())
        known = client.join
        if protocols or "topics" in options:
            names = protocols[0].split(",") if protocols else list(known["protocols"])
            topics = options.get("topics", "a").split(",")
            known["protocols"] = {n: subscription(topics) for n in names}
        for option, part in (("session", "session_ms"), ("rebalance", "rebalance_ms")):
            if option in options:
                known[part] = int(options[option])
        if "static" in options:
            known["instance"] = none(options["static"])
        if "type" in options:
            known["protocol_type"] = none(options["type"]) or ""
        if "version" in options:
            client.version = int(options["version"])
        member_id = self.member_id(client, options)
        yield from self.send(name, join_request(member_id, **known), client.version)

    def do_sync(self, words: list[str], options: dict[str, str]) -> Iterator[str]:
        (name,) = words
        client = self.clients.setdefault(name, Client())
        named = {"gen", "id", "static", "type", "protocol", "version"}
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=int(options.get("gen", client.generation)),
            member_id=self.member_id(client, options),
            group_instance_id=self.static(client, options),
            protocol_type=none(options.get("type", client.join.get("protocol_type", "consumer"))),
            protocol_name=none(options.get("protocol", client.protocol)),
            assignments=[
                SyncGroupRequestAssignment(member_id=self.id_of(to), assignment=what.encode())
                for to, what in options.items()
                if to not in named
            ],
        )
        yield from self.send(name, request, version_of(options))

    def do_heartbeat(self, words: list[str], options: dict[str, str]) -> Iterator[str]:
        (name,) = words
        client = self.clients.setdefault(name, Client())
        request = HeartbeatRequest(
            group_id=GROUP,
            generation_id=int(options.get("gen", client.generation)),
            member_id=self.member_id(client, options),
            group_instance_id=self.static(client, options),
        )
        yield from self.send(name, request, version_of(options))

    def do_leave(self, words: list[str], options: dict[str, str]) -> Iterator[str]:
        version = version_of(options)
        if version is not None and version < 3:
            request = LeaveGroupRequest(group_id=GROUP, member_id=self.id_of(words[0]))
        else:
            request = LeaveGroupRequest(group_id=GROUP, members=[self.leaver(w) for w in words])
        yield from self.send("admin", request, version)

    def leaver(self, word: str) -> MemberIdentity:
        if word.startswith("static:"):
            return MemberIdentity(group_instance_id=word.removeprefix("static:"))
        name, _, instance = word.partition("/")
        return MemberIdentity(member_id=self.id_of(name), group_instance_id=instance or None)

    def do_commit(self, words: list[str], options: dict[str, str]) -> Iterator[str]:
        (name,) = words
        client = self.clients.setdefault(name, Client())
        member_id = self.member_id(client, options)
        generation = int(options.get("gen", client.generation))
        group = self.rig.group
        who = Committer(member_id, self.static(client, options), generation, 9, False)
        code = group.validate_offset_commit(who, [])
        yield f"{name}: {code.name}"
        if code is ErrorCode.NONE:
            yield from self.effects(
                self.rig.apply(group.offsets_committed(member_id, self.rig.now))
            )

    def do_forget(self, words: list[str], options: dict[str, str]) -> Iterator[str]:
        client = self.clients[words[0]]
        client.member_id, client.generation = "", -1
        yield from ()

    def do_describe(self, words: list[str], options: dict[str, str]) -> Iterator[str]:
        group = self.rig.group.describe_classic()
        yield f"{group.group_state} {group.protocol_type or '-'}/{group.protocol_data or '-'}"
        for m in group.members:
            static = f" static={m.group_instance_id}" if m.group_instance_id else ""
            yield (
                f"{m.member_id}{static} {m.client_id}@{m.client_host}"
                f" metadata={len(m.member_metadata)}B '{m.member_assignment.decode()}'"
            )

    def do_crash(self, words: list[str], options: dict[str, str]) -> Iterator[str]:
        effects = self.rig.crash()
        yield from self.new_answers()
        yield from self.effects(effects)

    def do_wait(self, words: list[str], options: dict[str, str]) -> Iterator[str]:
        yield from ()

    def do_config(self, words: list[str], options: dict[str, str]) -> Iterator[str]:
        self.rig.set_config(**{k.replace(".", "_"): int(v) for k, v in options.items()})
        yield from ()

    # -- clients -------------------------------------------------------------------------------

    def id_of(self, name: str) -> str:
        """The member id of a client, or `name` itself."""
        return self.clients[name].member_id if name in self.clients else name

    def member_id(self, client: Client, options: dict[str, str]) -> str:
        return (none(options["id"]) or "") if "id" in options else client.member_id

    def static(self, client: Client, options: dict[str, str]) -> str | None:
        return none(options["static"]) if "static" in options else client.join.get("instance")

    def send(self, name: str, request: Any, version: int | None) -> Iterator[str]:
        token, effects = self.rig.send(request, version, name)
        self.senders[token] = name
        if token in self.rig.waiting:
            yield f"{name}: parked"
        yield from self.effects(effects)

    # -- effects as text -----------------------------------------------------------------------

    def effects(self, effects: Effects) -> Iterator[str]:
        yield from self.new_answers()
        for record in effects.records:
            yield f"+ {record_text(record)}"
        timers = ", ".join(
            f"{timer_name(t.key)} " + (f"@{t.deadline_ms}" if isinstance(t, SetTimer) else "off")
            for t in effects.timers
        )
        if timers:
            yield f"~ {timers}"
        group = self.rig.group
        state = f"= {group.state_name} gen={group.generation}"
        if state != self.state:
            self.state = state
            yield state

    def new_answers(self) -> Iterator[str]:
        for token, answer in self.rig.answers.items():
            if token not in self.shown:
                self.shown.add(token)
                name = self.senders[token]
                yield f"{name}: {self.answer(name, answer)}"

    def answer(self, name: str, answer: Any) -> str:
        code = ErrorCode(answer.error_code).name
        if isinstance(answer, JoinGroupResponse):
            return self.join_answer(name, answer, code)
        if isinstance(answer, SyncGroupResponse):
            if answer.error_code:
                return code
            of = f" ({answer.protocol_type}/{answer.protocol_name})" if answer.protocol_name else ""
            return f"synced '{answer.assignment.decode()}'{of}"
        if isinstance(answer, LeaveGroupResponse):
            each = [
                f"{m.member_id or '-'}{'/' + m.group_instance_id if m.group_instance_id else ''}"
                f" {ErrorCode(m.error_code).name}"
                for m in answer.members
            ]
            return " ".join([code, *([f"({', '.join(each)})"] if each else [])])
        assert isinstance(answer, HeartbeatResponse)
        return code

    def join_answer(self, name: str, answer: JoinGroupResponse, code: str) -> str:
        client = self.clients[name]
        if answer.error_code:
            if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                client.member_id = answer.member_id
            return f"{code} id={answer.member_id or '-'}"
        client.member_id, client.generation = answer.member_id, answer.generation_id
        client.protocol = answer.protocol_name or "-"
        members = ",".join(m.member_id for m in answer.members)
        text = (
            f"joined id={answer.member_id} gen={answer.generation_id}"
            f" {answer.protocol_type or '-'}/{answer.protocol_name} leader={answer.leader}"
        )
        return (
            text
            + (f" members={members}" if members else "")
            + (" skip-assignment" if answer.skip_assignment else "")
        )

    def check_replay(self) -> None:
        """The records must describe the group wherever it is settled."""
        group = self.rig.group
        if group.state_name in ("Stable", "Empty") and self.rig.log:
            again = replayed(self.rig.log, self.rig.environment)
            if group.generation:
                assert snapshot(again) == snapshot(group)


def none(text: str) -> str | None:
    return None if text == "-" else text


def version_of(options: dict[str, str]) -> int | None:
    return int(options["version"]) if "version" in options else None


def timer_name(key: TimerKey) -> str:
    assert key[0] == GROUP
    return " ".join(key[1:])


def record_text(record: CoordinatorRecord) -> str:
    decoded = decode(*record)
    assert decoded is not None
    value = decoded.value
    if value is None:
        return "tombstone"
    assert isinstance(value, GroupMetadataValue)
    members = ", ".join(
        f"{m.member_id}{'/' + m.group_instance_id if m.group_instance_id else ''}"
        f" '{m.assignment.decode()}'"
        for m in value.members
    )
    return (
        f"group gen={value.generation} {value.protocol_type or '-'}/{value.protocol or '-'}"
        f" leader={value.leader or '-'} [{members}]"
    )
