"""The scenario language: one command per line in, records and answers as lines out.

    > topic NAME PARTITIONS | drop NAME       make or grow a topic; delete it
    > topology [EPOCH] SUBTOPOLOGY ...        what members that join tell from now on
    > setting NAME=VALUE                      of the group, without `streams.`, `_` for `.`
    > MEMBER join [KEY=VALUE ...]             StreamsGroupHeartbeat with epoch 0
    > MEMBER beat [own=TASKS] [KEY=VALUE ...] with the member's last epoch
    > MEMBER leave [shutdown]                 with epoch -1
    > MEMBER consumer | MEMBER join-group     members of other protocols
    > MEMBER commit EPOCH TOPIC-N | MEMBER fetch EPOCH | delete | offset-delete TOPIC
    > wait MS | fail-over | describe | list

A subtopology is its id and parts, as in `0:source,source:repartition<:>sink:!changelog`: `name<` is
a repartition topic that it reads (`name<=N` with a fixed count), `>name` one that it writes,
`!name` a changelog, `&a+b` topics that are joined.

TASKS are like `0_1,0_2;1_0`: active tasks, then after `;` standby tasks; `-` is none of either. A
member owns what it was given, unless a line says otherwise. Keys: `epoch`, `as` (another member
id), `instance`, `process`, `rack`, `endpoint=HOST/PORT`, `tags=K/V`, `seen=ENDPOINT-EPOCH`; words:
`shutdown`, `silent` (says nothing of what it owns).

Output: `+` a record, `-` a tombstone, `=` the answer. Run with `PENSTOCK_REWRITE=1` to write the
present output into the files, then read the difference.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.coordinator.records import decode
from penstock.coordinator.streams_group.resolving import StatusCode
from penstock.coordinator.streams_group_records import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMetadataKey,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTopologyKey,
)
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.wire.messages.delete_groups import DeleteGroupsRequest
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.wire.messages.list_groups import ListGroupsRequest
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from penstock.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from penstock.wire.messages.streams_group_describe import StreamsGroupDescribeRequest
from penstock.wire.messages.streams_group_heartbeat import (
    CopartitionGroup,
    Endpoint,
    KeyValue,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from unit.coordinator_consumer.rig import GROUP
from unit.coordinator_streams.rig import StreamsRig, Tasks, task_ids, tasks_of

SESSION_MS = 10_000
REBALANCE_MS = 60_000
STATES = {1: "stable", 2: "unrevoked", 3: "unreleased", 127: "unknown"}


class Scenario:
    def __init__(self) -> None:
        self.rig = StreamsRig(streams_session_timeout_ms=SESSION_MS)
        self.epochs: dict[str, int] = {}
        self.owned: dict[str, tuple[Tasks, Tasks]] = {}
        self.topology = Topology(epoch=1, subtopologies=[])

    def run(self, line: str) -> Iterator[str]:
        first, *words = shlex.split(line)
        written = len(self.rig.log)
        answer = self._command(first, words)
        yield from (self._record(r.key, r.value) for r in self.rig.log[written:])
        if answer is not None:
            yield f"= {answer}"

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
        elif first == "topology":
            epoch = int(words.pop(0)) if words[0].isdigit() else 1
            self.topology = Topology(epoch=epoch, subtopologies=[parsed(word) for word in words])
        elif first == "setting":
            name, _, value = words[0].partition("=")
            rig.own[f"streams_{name}"] = int(value)
        elif first in ("describe", "list", "delete", "offset-delete"):
            return str(getattr(self, f"_{first.replace('-', '_')}")(words))
        else:
            options = dict(word.split("=", 1) for word in words if "=" in word)
            plain = [word for word in words if "=" not in word]
            verb = plain[0].replace("-", "_")
            return str(getattr(self, f"_{verb}")(first, plain[1:], options))
        return None

    # -- members -------------------------------------------------------------------------------

    def _join(self, member: str, words: list[str], options: dict[str, str]) -> str:
        self.epochs[member], self.owned[member] = 0, (set(), set())
        options.setdefault("process", f"p{member[1:]}")
        return self._send(
            member, words, options, topology=self.topology, rebalance_timeout_ms=REBALANCE_MS
        )

    def _beat(self, member: str, words: list[str], options: dict[str, str]) -> str:
        if "own" in options:
            active, _, standby = options["own"].replace("-", "").partition(";")
            self.owned[member] = (parsed_tasks(active), parsed_tasks(standby))
        return self._send(member, words, options)

    def _leave(self, member: str, words: list[str], options: dict[str, str]) -> str:
        return self._send(member, [*words, "silent"], {**options, "epoch": "-1"})

    def _send(self, member: str, words: list[str], options: dict[str, str], **fields: Any) -> str:
        if "silent" not in words:
            active, standby = self.owned.get(member, (set(), set()))
            fields["active_tasks"] = task_ids(active)
            fields["standby_tasks"] = task_ids(standby)
            fields["warmup_tasks"] = []
        if "endpoint" in options:
            host, _, port = options["endpoint"].partition("/")
            fields["user_endpoint"] = Endpoint(host=host, port=int(port))
        if "tags" in options:
            key, _, value = options["tags"].partition("/")
            fields["client_tags"] = [KeyValue(key=key, value=value)]
        response = self.rig.streams_beat(
            options.get("as", member),
            int(options.get("epoch", self.epochs.get(member, 0))),
            rack_id=options.get("rack"),
            process_id=options.get("process"),
            instance_id=options.get("instance"),
            endpoint_information_epoch=int(options.get("seen", 0)),
            shutdown_application="shutdown" in words,
            **fields,
        )
        if response.error_code:
            return _failed(response)
        self.epochs[member] = response.member_epoch
        parts = [f"epoch {response.member_epoch}"]
        if response.active_tasks is not None:
            given = tasks_of(response.active_tasks), tasks_of(response.standby_tasks)
            self.owned[member] = given
            parts.append(f"has {shown(*given)}")
        for status in response.status or ():
            parts.append(f"[{StatusCode(status.status_code).name}: {status.status_detail}]")
        for found in response.partitions_by_user_endpoint or ():
            at = f"{found.user_endpoint.host}:{found.user_endpoint.port}"
            partitions = [
                ",".join(f"{t.topic}{t.partitions}" for t in of_type) or "-"
                for of_type in (found.active_partitions, found.standby_partitions)
            ]
            parts.append(f"{at} {';'.join(partitions)}")
        if response.endpoint_information_epoch:
            parts.append(f"endpoints {response.endpoint_information_epoch}")
        return " ".join(parts)

    def _consumer(self, member: str, words: list[str], options: dict[str, str]) -> str:
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=member,
            member_epoch=0,
            rebalance_timeout_ms=10_000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
        response = self.rig.send(request, 1)
        return _failed(response) if response.error_code else f"epoch {response.member_epoch}"

    def _join_group(self, member: str, words: list[str], options: dict[str, str]) -> str:
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=10_000,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        return ErrorCode(self.rig.send(request, 9).error_code).name

    # -- offsets -------------------------------------------------------------------------------

    def _commit(self, member: str, words: list[str], options: dict[str, str]) -> str:
        name, _, number = words[1].rpartition("-")
        topic = OffsetCommitRequestTopic(
            name=name, partitions=[OffsetCommitRequestPartition(partition_index=int(number))]
        )
        request = OffsetCommitRequest(
            group_id=GROUP,
            member_id="" if member == "nobody" else member,
            generation_id_or_member_epoch=int(words[0]),
            topics=[topic],
        )
        answer = self.rig.send(request, int(options.get("version", 9)))
        return ErrorCode(answer.topics[0].partitions[0].error_code).name

    def _fetch(self, member: str, words: list[str], options: dict[str, str]) -> str:
        asked = OffsetFetchRequestGroup(
            group_id=GROUP,
            member_id=None if member == "nobody" else member,
            member_epoch=int(words[0]),
            topics=None,
        )
        (group,) = self.rig.send(OffsetFetchRequest(groups=[asked]), 9).groups
        return f"{ErrorCode(group.error_code).name}, {len(group.topics)} topics"

    def _offset_delete(self, words: list[str]) -> str:
        topic = OffsetDeleteRequestTopic(
            name=words[0], partitions=[OffsetDeleteRequestPartition(partition_index=0)]
        )
        answer = self.rig.send(OffsetDeleteRequest(group_id=GROUP, topics=[topic]), 0)
        codes = [answer.error_code, *(p.error_code for t in answer.topics for p in t.partitions)]
        return ErrorCode(max(codes)).name

    # -- what is shown -------------------------------------------------------------------------

    def _delete(self, words: list[str]) -> str:
        answer = self.rig.send(DeleteGroupsRequest(groups_names=[GROUP]), 2)
        return ErrorCode(answer.results[0].error_code).name

    def _list(self, words: list[str]) -> str:
        response = self.rig.send(ListGroupsRequest(types_filter=["Streams"]), 5)
        return ", ".join(
            f"{g.group_id} {g.group_type} {g.protocol_type} {g.group_state}"
            for g in response.groups
        )

    def _describe(self, words: list[str]) -> str:
        response = self.rig.send(StreamsGroupDescribeRequest(group_ids=[GROUP]), 0)
        (group,) = response.groups
        if group.error_code:
            return _failed(group)
        members = "; ".join(
            f"{m.member_id} epoch {m.member_epoch} {m.process_id} has {_assigned(m.assignment)} "
            f"shall have {_assigned(m.target_assignment)}"
            for m in group.members
        )
        topics = " ".join(
            f"{one.subtopology_id}:{','.join(one.source_topics)}"
            + "".join(f":{t.name}<={t.partitions}" for t in one.repartition_source_topics)
            + "".join(f":!{t.name}={t.partitions}" for t in one.state_changelog_topics)
            for one in group.topology.subtopologies
        )
        return (
            f"{group.group_state} epoch {group.group_epoch} target {group.assignment_epoch} "
            f"topology {group.topology.epoch} {topics}: {members or 'nobody'}"
        )

    # -- records -------------------------------------------------------------------------------

    def _record(self, raw_key: bytes, raw_value: bytes | None) -> str:
        decoded = decode(raw_key, raw_value)
        assert decoded is not None
        key: Any = decoded.key
        what = _KINDS.get(type(key))
        if what is None:  # of a group of another kind, or an offset
            return f"{'-' if decoded.value is None else '+'} {type(key).__name__}"
        title = f"{what} {getattr(key, 'member_id', '')}".rstrip()
        if decoded.value is None:
            return f"- {title}"
        return f"+ {title}: {getattr(self, f'_show_{what}')(decoded.value)}"

    def _show_epoch(self, value: Any) -> str:
        configs = ",".join(f"{c.key}={c.value}" for c in value.last_assignment_configs)
        return f"{value.epoch} validated {value.validated_topology_epoch} {configs}"

    def _show_topology(self, value: Any) -> str:
        ids = ",".join(one.subtopology_id for one in value.subtopologies)
        return f"epoch {value.epoch} of {ids or 'nothing'}"

    def _show_member(self, value: Any) -> str:
        rack = "" if value.rack_id is None else f" rack={value.rack_id}"
        tags = "".join(f" {tag.key}/{tag.value}" for tag in value.client_tags)
        endpoint = value.user_endpoint
        at = "" if endpoint is None else f" at {endpoint.host}:{endpoint.port}"
        return f"{value.process_id} topology {value.topology_epoch}{rack}{at}{tags}"

    def _show_target(self, value: Any) -> str:
        return _assigned(value)

    def _show_target_epoch(self, value: Any) -> str:
        return str(value.assignment_epoch)

    def _show_current(self, value: Any) -> str:
        gives = shown(
            tasks_of(value.active_tasks_pending_revocation),
            tasks_of(value.standby_tasks_pending_revocation),
        )
        epochs = sorted({e for t in value.active_tasks for e in t.assignment_epochs})
        since = f" since {epochs}" if epochs else ""
        return (
            f"{STATES[value.state]} epoch {value.member_epoch} (was {value.previous_member_epoch})"
            f" has {_assigned(value)}{since}" + ("" if gives == "-" else f" gives up {gives}")
        )


def parsed(text: str) -> Subtopology:
    id_, *parts = text.split(":")
    one = Subtopology(subtopology_id=id_)
    for part in parts:
        if part.startswith(">"):
            one.repartition_sink_topics.append(part[1:])
        elif part.startswith("!"):
            name, _, count = part[1:].partition("=")
            one.state_changelog_topics.append(TopicInfo(name=name, partitions=int(count or 0)))
        elif part.startswith("&"):
            one.copartition_groups.append(_joined(one, part[1:].split("+")))
        elif "<" in part:
            name, _, count = part.partition("<")
            fixed = int(count.removeprefix("=") or 0)
            one.repartition_source_topics.append(TopicInfo(name=name, partitions=fixed))
        else:
            one.source_topics += filter(None, part.split(","))
    return one


def _joined(one: Subtopology, names: list[str]) -> CopartitionGroup:
    read = [topic.name for topic in one.repartition_source_topics]
    return CopartitionGroup(
        source_topics=[one.source_topics.index(n) for n in names if n in one.source_topics],
        repartition_source_topics=[read.index(n) for n in names if n in read],
    )


def parsed_tasks(text: str) -> Tasks:
    found = set()
    for word in filter(None, text.split(",")):
        subtopology, _, number = word.rpartition("_")
        found.add((subtopology, int(number)))
    return found


def shown(active: Tasks, standby: Tasks) -> str:
    texts = [",".join(f"{s}_{n}" for s, n in sorted(tasks)) for tasks in (active, standby)]
    return (f"{texts[0]};{texts[1]}" if texts[1] else texts[0]) or "-"


def _assigned(value: Any) -> str:
    found: Iterable[list[TaskIds]] = (value.active_tasks, value.standby_tasks)
    return shown(*(tasks_of(of_type) for of_type in found))


def _failed(response: Any) -> str:
    return f"{ErrorCode(response.error_code).name}: {response.error_message}"


_KINDS: dict[type[Any], str] = {
    StreamsGroupMetadataKey: "epoch",
    StreamsGroupTopologyKey: "topology",
    StreamsGroupMemberMetadataKey: "member",
    StreamsGroupTargetAssignmentMemberKey: "target",
    StreamsGroupTargetAssignmentMetadataKey: "target_epoch",
    StreamsGroupCurrentMemberAssignmentKey: "current",
}
