"""The scenario language: one command per line in, records and answers as lines out.

    > topic NAME PARTITIONS | drop NAME        make or grow a topic; delete it
    > MEMBER join TOPICS [KEY=VALUE ...]       ConsumerGroupHeartbeat with epoch 0
    > MEMBER beat [KEY=VALUE ...]              with the member's last epoch and partitions
    > MEMBER leave | away                      with epoch -1 or -2
    > MEMBER join-group TOPICS [KEY=VALUE ...] the classic protocol: JoinGroup, SyncGroup,
    > MEMBER sync | heartbeat | leave-group    Heartbeat, LeaveGroup
    > wait MS | fail-over | describe

TOPICS are names joined by commas, or /REGEX/. Keys: `epoch`, `owned` (`t-0,t-1`, `none` or `null`),
`instance`, `as` (another member id), `assignor`, `rack`, `topics`, `id`. A member gives up at once
what it is told to and reports it at its next beat, unless `owned` says otherwise.

Output: `+` a record, `-` a tombstone, `=` the answer (`...` if it waits), `~` the answer to an
earlier request. Run with `PENSTOCK_REWRITE=1` to write the present output into the files, then read
the difference.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.coordinator.reconcile import MemberState
from penstock.coordinator.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    GroupMetadataKey,
    decode,
)
from penstock.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from penstock.wire.messages.heartbeat import HeartbeatRequest
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from unit.coordinator_consumer.rig import GROUP, Owned, Rig, assignment, subscription

SESSION_MS = 10_000
REBALANCE_MS = 20_000


class Client:
    """What a member remembers."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.member_id = name
        self.instance: str | None = None
        self.topics: list[str] = []
        self.protocol = "cooperative-sticky"
        self.epoch = 0
        self.owned: Owned = set()


class Scenario:
    def __init__(self, **settings: Any) -> None:
        self.rig = Rig(
            group_consumer_session_timeout_ms=SESSION_MS,
            group_initial_rebalance_delay_ms=0,
            **settings,
        )
        self.clients: dict[str, Client] = {}
        self.waiting: dict[int, str] = {}

    def run(self, line: str) -> Iterator[str]:
        first, *words = shlex.split(line)
        written = len(self.rig.log)
        answer = self._command(first, words)
        yield from (self._record(r.key, r.value) for r in self.rig.log[written:])
        if answer is not None:
            yield f"= {answer}"
        for token in [t for t in self.waiting if t in self.rig.answers]:
            name = self.waiting.pop(token)
            yield f"~ {name}: {self._classic_answer(self.clients[name], self.rig.answers[token])}"

    def _command(self, first: str, words: list[str]) -> str | None:
        rig = self.rig
        if first == "topic":
            exists = words[0] in rig.topics.counts
            (rig.grow if exists else rig.create)(words[0], int(words[1]))
        elif first == "drop":
            rig.delete(words[0])
        elif first == "wait":
            rig.advance(int(words[0]))
        elif first == "fail-over":
            rig.fail_over()
        elif first == "describe":
            return self._describe()
        else:
            client = self.clients.setdefault(first, Client(first))
            options = dict(word.split("=", 1) for word in words if "=" in word)
            plain = [word for word in words if "=" not in word]
            verb = plain[0].replace("-", "_")
            return str(getattr(self, f"_{verb}")(client, plain[1:], options))
        return None

    # -- the consumer protocol -----------------------------------------------------------------

    def _join(self, client: Client, words: list[str], options: dict[str, str]) -> str:
        client.epoch, client.owned = 0, set()
        client.instance = options.get("instance")
        fields = self._subscription(words[0] if words else "")
        return self._send(client, options, rebalance_timeout_ms=REBALANCE_MS, **fields)

    def _beat(self, client: Client, words: list[str], options: dict[str, str]) -> str:
        fields = self._subscription(options["topics"]) if "topics" in options else {}
        return self._send(client, options, **fields)

    def _leave(self, client: Client, words: list[str], options: dict[str, str]) -> str:
        return self._send(client, {**options, "epoch": "-1", "owned": "null"})

    def _away(self, client: Client, words: list[str], options: dict[str, str]) -> str:
        return self._send(client, {**options, "epoch": "-2", "owned": "null"})

    def _send(self, client: Client, options: dict[str, str], **fields: Any) -> str:
        owned: Owned | None = client.owned
        if options.get("owned") == "null":
            owned = None
        elif "owned" in options:
            owned = set(parse_partitions(options["owned"]))
        response = self.rig.beat(
            options.get("as", client.member_id),
            int(options.get("epoch", client.epoch)),
            owned=owned,
            instance_id=client.instance,
            server_assignor=options.get("assignor"),
            rack_id=options.get("rack"),
            **fields,
        )
        if response.error_code:
            return f"{ErrorCode(response.error_code).name}: {response.error_message}"
        client.epoch = response.member_epoch
        given = self.rig.named(response)
        if given is not None:
            client.owned = given
        shown = "" if given is None else f" {partitions_text(given)}"
        return f"epoch {response.member_epoch}{shown}"

    def _subscription(self, text: str) -> dict[str, Any]:
        if text.startswith("/"):
            return {"subscribed_topic_regex": text.strip("/")}
        return {"subscribed_topic_names": [t for t in text.split(",") if t]}

    # -- the classic protocol ------------------------------------------------------------------

    def _join_group(self, client: Client, words: list[str], options: dict[str, str]) -> str:
        if words:
            client.topics = words[0].split(",")
        if "owned" in options:
            client.owned = set(parse_partitions(options["owned"]))
        client.instance = options.get("instance", client.instance)
        client.protocol = options.get("protocol", client.protocol)
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=options.get("id", client.member_id),
            group_instance_id=client.instance,
            protocol_type="consumer",
            protocols=[
                JoinGroupRequestProtocol(
                    name=client.protocol,
                    metadata=subscription(client.topics, client.owned),
                )
            ],
        )
        return self._classic(client, request, 9)

    def _sync(self, client: Client, words: list[str], options: dict[str, str]) -> str:
        assignments = [
            SyncGroupRequestAssignment(member_id=self.clients[name].member_id, assignment=b"")
            for name in words
        ]
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=int(options.get("epoch", client.epoch)),
            member_id=client.member_id,
            group_instance_id=client.instance,
            protocol_type="consumer",
            protocol_name=client.protocol,
            assignments=assignments,
        )
        return self._classic(client, request, 5)

    def _heartbeat(self, client: Client, words: list[str], options: dict[str, str]) -> str:
        request = HeartbeatRequest(
            group_id=GROUP,
            generation_id=int(options.get("epoch", client.epoch)),
            member_id=client.member_id,
            group_instance_id=client.instance,
        )
        return self._classic(client, request, 4)

    def _leave_group(self, client: Client, words: list[str], options: dict[str, str]) -> str:
        identity = MemberIdentity(
            member_id=options.get("id", client.member_id), group_instance_id=client.instance
        )
        return self._classic(client, LeaveGroupRequest(group_id=GROUP, members=[identity]), 5)

    def _classic(self, client: Client, request: Any, version: int) -> str:
        token = self.rig.start(request, version)
        if token not in self.rig.answers:
            self.waiting[token] = client.name
            return "..."
        return self._classic_answer(client, self.rig.answers[token])

    def _classic_answer(self, client: Client, response: Any) -> str:
        code = ErrorCode(response.error_code).name
        kind = type(response).__name__
        if kind == "JoinGroupResponse":
            client.member_id = response.member_id or client.member_id
            if response.error_code == ErrorCode.NONE:
                client.epoch = response.generation_id
                lead = " leads" if response.leader == response.member_id else ""
                return f"{response.member_id} generation {response.generation_id}{lead}"
            return f"{code} {response.member_id}".rstrip()
        if kind == "SyncGroupResponse" and response.error_code == ErrorCode.NONE:
            client.owned = assignment(response.assignment) if response.assignment else set()
            return f"assigned {partitions_text(client.owned)}"
        if kind == "LeaveGroupResponse" and response.members:
            return ", ".join(
                f"{m.member_id} {ErrorCode(m.error_code).name}" for m in response.members
            )
        return code

    # -- what is shown -------------------------------------------------------------------------

    def _describe(self) -> str:
        response = self.rig.send(ConsumerGroupDescribeRequest(group_ids=[GROUP]), 1)
        (group,) = response.groups
        if group.error_code:
            return f"{ErrorCode(group.error_code).name}: {group.error_message}"
        members = "; ".join(
            f"{m.member_id} ({'classic' if m.member_type == 0 else 'consumer'}) epoch "
            f"{m.member_epoch} has {self._grouped(m.assignment.topic_partitions)} shall have "
            f"{self._grouped(m.target_assignment.topic_partitions)}"
            for m in group.members
        )
        return (
            f"{group.group_state} epoch {group.group_epoch} target {group.assignment_epoch} "
            f"by {group.assignor_name}: {members or 'nobody'}"
        )

    def _grouped(self, grouped: Iterable[Any]) -> str:
        topics = self.rig.topics
        found = {(topics.name_of(t.topic_id) or "?", n) for t in grouped for n in t.partitions}
        return partitions_text(found)

    def _record(self, raw_key: bytes, raw_value: bytes | None) -> str:
        decoded = decode(raw_key, raw_value)
        assert decoded is not None
        key: Any = decoded.key
        value: Any = decoded.value
        what = _KINDS[type(key)]
        name = getattr(key, "member_id", getattr(key, "regular_expression", ""))
        title = f"{what} {name}".rstrip()
        if value is None:
            return f"- {title}"
        return f"+ {title}: {getattr(self, f'_show_{what}')(value)}"

    def _show_epoch(self, value: Any) -> str:
        return str(value.epoch)

    def _show_member(self, value: Any) -> str:
        parts = [",".join(value.subscribed_topic_names)]
        if value.subscribed_topic_regex:
            parts.append(f"/{value.subscribed_topic_regex}/")
        if value.instance_id is not None:
            parts.append(f"instance={value.instance_id}")
        if value.rack_id is not None:
            parts.append(f"rack={value.rack_id}")
        if value.server_assignor is not None:
            parts.append(f"assignor={value.server_assignor}")
        if value.classic_member_metadata is not None:
            parts.append("classic")
        return " ".join(part for part in parts if part)

    def _show_target(self, value: Any) -> str:
        return self._grouped(value.topic_partitions)

    def _show_target_epoch(self, value: Any) -> str:
        return str(value.assignment_epoch)

    def _show_current(self, value: Any) -> str:
        state = MemberState(value.state).name
        text = f"epoch {value.member_epoch} (was {value.previous_member_epoch}) {state} has "
        text += self._grouped(value.assigned_partitions)
        if value.partitions_pending_revocation:
            text += f" gives up {self._grouped(value.partitions_pending_revocation)}"
        return text

    def _show_regex(self, value: Any) -> str:
        return ",".join(value.topics) or "nothing"

    def _show_classic(self, value: Any) -> str:
        members = ",".join(m.member_id for m in value.members)
        return f"generation {value.generation} of {members or 'nobody'}"


_KINDS: dict[type[Any], str] = {
    ConsumerGroupMetadataKey: "epoch",
    ConsumerGroupPartitionMetadataKey: "partition_metadata",
    ConsumerGroupMemberMetadataKey: "member",
    ConsumerGroupTargetAssignmentMemberKey: "target",
    ConsumerGroupTargetAssignmentMetadataKey: "target_epoch",
    ConsumerGroupCurrentMemberAssignmentKey: "current",
    ConsumerGroupRegularExpressionKey: "regex",
    GroupMetadataKey: "classic",
}


def parse_partitions(text: str) -> Iterator[tuple[str, int]]:
    for word in text.split(","):
        if word != "none":
            name, _, number = word.rpartition("-")
            yield name, int(number)


def partitions_text(partitions: Iterable[tuple[str, int]]) -> str:
    grouped: dict[str, list[str]] = {}
    for name, number in sorted(partitions):
        grouped.setdefault(name, []).append(str(number))
    return " ".join(f"{name}[{' '.join(n)}]" for name, n in grouped.items()) or "nothing"
