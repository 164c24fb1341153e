"""The scenario language: one command per line in, records and answers as lines out.

    > topic NAME PARTITIONS | drop NAME        make or grow a topic; delete it
    > MEMBER join TOPICS [KEY=VALUE ...]       ShareGroupHeartbeat with epoch 0
    > MEMBER beat [KEY=VALUE ...]              with the member's last epoch
    > MEMBER leave                             with epoch -1
    > answer [PARTITIONS]                      the share coordinator answers, and refuses these
    > move TOPIC-N=OFFSET ... | forget TOPICS  AlterShareGroupOffsets; DeleteShareGroupOffsets
    > delete                                   what comes before DeleteGroups, and that
    > MEMBER consumer | MEMBER join-group      members of other protocols
    > commit | fetch | offset-delete           requests about committed offsets
    > wait MS | fail-over | describe | list

TOPICS are names joined by commas. Keys: `epoch`, `topics`, `rack`, `as` (another member id).

Output: `+` a record, `-` a tombstone, `?` what the share coordinator is asked, `=` the answer. Run
with `PENSTOCK_REWRITE=1` to write the present output into the files, then read the difference.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from typing import Any

from penstock.base.errors import ApiError, ErrorCode
from penstock.coordinator.effects import Effects
from penstock.coordinator.records import decode
from penstock.coordinator.share_group import admin
from penstock.coordinator.share_group_records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupMemberMetadataKey,
    ShareGroupMetadataKey,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMetadataKey,
)
from penstock.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
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
from penstock.wire.messages.offset_delete import OffsetDeleteRequest
from penstock.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from penstock.wire.messages.share_group_describe import ShareGroupDescribeRequest
from scenario.groups_consumer.scenario import parse_partitions, partitions_text
from unit.coordinator_consumer.rig import GROUP
from unit.coordinator_share.rig import ShareRig

SESSION_MS = 10_000


class Scenario:
    def __init__(self, **settings: Any) -> None:
        self.rig = ShareRig(share_session_timeout_ms=SESSION_MS, **settings)
        self.epochs: dict[str, int] = {}

    def run(self, line: str) -> Iterator[str]:
        first, *words = shlex.split(line)
        written, asked = len(self.rig.log), len(self.rig.asked)
        answer = self._command(first, words)
        yield from (self._record(r.key, r.value) for r in self.rig.log[written:])
        for action in self.rig.asked[asked:]:
            yield f"? epoch {action.state_epoch}: {self._named(action.starts)}"
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
        elif first == "answer":
            rig.answer(set(parse_partitions(words[0])) if words else None)
        elif first in _OF_GROUP:
            return str(getattr(self, f"_{first.replace('-', '_')}")(words))
        else:
            options = dict(word.split("=", 1) for word in words if "=" in word)
            plain = [word for word in words if "=" not in word]
            verb = plain[0].replace("-", "_")
            return str(getattr(self, f"_{verb}")(first, plain[1:], options))
        return None

    # -- members -------------------------------------------------------------------------------

    def _join(self, member: str, words: list[str], options: dict[str, str]) -> str:
        self.epochs[member] = 0
        topics = words[0].split(",") if words else None
        return self._send(member, options, subscribed_topic_names=topics)

    def _beat(self, member: str, words: list[str], options: dict[str, str]) -> str:
        topics = options["topics"].split(",") if "topics" in options else None
        return self._send(member, options, subscribed_topic_names=topics)

    def _leave(self, member: str, words: list[str], options: dict[str, str]) -> str:
        return self._send(member, {**options, "epoch": "-1"})

    def _send(self, member: str, options: dict[str, str], **fields: Any) -> str:
        response = self.rig.share_beat(
            options.get("as", member),
            int(options.get("epoch", self.epochs.get(member, 0))),
            rack_id=options.get("rack"),
            **fields,
        )
        if response.error_code:
            return _failed(response)
        self.epochs[member] = response.member_epoch
        given = self.rig.given(response)
        shown = "" if given is None else f" {partitions_text(given)}"
        return f"epoch {response.member_epoch}{shown}"

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

    def _commit(self, words: list[str]) -> str:
        topic = OffsetCommitRequestTopic(
            name="t", partitions=[OffsetCommitRequestPartition(partition_index=0)]
        )
        answer = self.rig.send(OffsetCommitRequest(group_id=GROUP, topics=[topic]), 9)
        return ErrorCode(answer.topics[0].partitions[0].error_code).name

    def _fetch(self, words: list[str]) -> str:
        asked = OffsetFetchRequestGroup(group_id=GROUP, topics=None)
        (group,) = self.rig.send(OffsetFetchRequest(groups=[asked]), 8).groups
        return f"{ErrorCode(group.error_code).name}, {len(group.topics)} topics"

    def _offset_delete(self, words: list[str]) -> str:
        answer = self.rig.send(OffsetDeleteRequest(group_id=GROUP), 0)
        return ErrorCode(answer.error_code).name

    # -- administrators ------------------------------------------------------------------------

    def _move(self, words: list[str]) -> str:
        by_name: dict[str, list[AlterShareGroupOffsetsRequestPartition]] = {}
        for word in words:
            place, _, offset = word.partition("=")
            ((name, number),) = parse_partitions(place)
            by_name.setdefault(name, []).append(
                AlterShareGroupOffsetsRequestPartition(
                    partition_index=number, start_offset=int(offset)
                )
            )
        topics = [
            AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=found)
            for name, found in by_name.items()
        ]
        effects = Effects()
        try:
            group = self.rig.shard.share_group_or_new(GROUP)
            moved = admin.move(group, topics, effects, self.rig.now_ms)
        except ApiError as e:
            return f"{e.code.name}: {e.message}"
        self.rig.shard.keep(group, effects)
        self.rig.apply(effects)
        self.rig.apply(
            self.rig.shard.initialized(GROUP, list(moved.starts), [], self.rig.now_ms)
        )
        codes = [
            f"{topic.topic_name}-{p.partition_index} {ErrorCode(p.error_code).name}"
            for topic in moved.topics
            for p in topic.partitions
        ]
        starts = sorted(moved.starts.values())
        return f"epoch {moved.state_epoch} starts {starts}; {', '.join(codes)}"

    def _forget(self, words: list[str]) -> str:
        effects = Effects()
        try:
            plan = admin.forget_topics(self.rig.share, words[0].split(","), effects)
        except ApiError as e:
            return f"{e.code.name}: {e.message}"
        self.rig.apply(effects)
        shown = self._named(plan.partitions)
        if "unanswered" not in words:
            effects = Effects()
            admin.forgotten(self.rig.share, plan.names, effects)
            self.rig.apply(effects)
        refused = ", ".join(f"{t.topic_name}: {t.error_message}" for t in plan.refused)
        return "; ".join(part for part in (f"asks to delete {shown}", refused) if part)

    def _delete(self, words: list[str]) -> str:
        effects = Effects()
        try:
            partitions = admin.forget_all(self.rig.share, effects)
        except ApiError as e:
            return f"{e.code.name}: {e.message}"
        self.rig.apply(effects)
        shown = f"asks to delete {self._named(partitions)}"
        if "unanswered" in words:
            return shown
        answer = self.rig.send(DeleteGroupsRequest(groups_names=[GROUP]), 2)
        return f"{shown}, {ErrorCode(answer.results[0].error_code).name}"

    # -- what is shown -------------------------------------------------------------------------

    def _list(self, words: list[str]) -> str:
        response = self.rig.send(ListGroupsRequest(types_filter=["Share"]), 5)
        return ", ".join(
            f"{g.group_id} {g.group_type} {g.protocol_type} {g.group_state}"
            for g in response.groups
        )

    def _describe(self, words: list[str]) -> str:
        response = self.rig.send(ShareGroupDescribeRequest(group_ids=[GROUP]), 1)
        (group,) = response.groups
        if group.error_code:
            return _failed(group)
        members = "; ".join(
            f"{m.member_id} epoch {m.member_epoch} wants {','.join(m.subscribed_topic_names)} has "
            f"{self._grouped(m.assignment.topic_partitions)}"
            for m in group.members
        )
        return (
            f"{group.group_state} epoch {group.group_epoch} target {group.assignment_epoch} "
            f"by {group.assignor_name}: {members or 'nobody'}"
        )

    def _grouped(self, grouped: Iterable[Any]) -> str:
        return self._named((t.topic_id, n) for t in grouped for n in t.partitions)

    def _named(self, partitions: Iterable[tuple[bytes, int]]) -> str:
        topics = self.rig.topics
        return partitions_text((topics.name_of(id_) or "?", n) for id_, n in partitions)

    def _record(self, raw_key: bytes, raw_value: bytes | None) -> str:
        decoded = decode(raw_key, raw_value)
        assert decoded is not None
        key: Any = decoded.key
        what = _KINDS.get(type(key))
        if what is None:
            return f"+ {type(key).__name__}"  # of a group of another kind
        title = f"{what} {getattr(key, 'member_id', '')}".rstrip()
        if decoded.value is None:
            return f"- {title}"
        return f"+ {title}: {getattr(self, f'_show_{what}')(decoded.value)}"

    def _show_epoch(self, value: Any) -> str:
        return str(value.epoch)

    def _show_member(self, value: Any) -> str:
        rack = "" if value.rack_id is None else f" rack={value.rack_id}"
        return ",".join(value.subscribed_topic_names) + rack

    def _show_target(self, value: Any) -> str:
        return self._grouped(value.topic_partitions)

    def _show_target_epoch(self, value: Any) -> str:
        return str(value.assignment_epoch)

    def _show_current(self, value: Any) -> str:
        return (
            f"epoch {value.member_epoch} (was {value.previous_member_epoch}) has "
            f"{self._grouped(value.assigned_partitions)}"
        )

    def _show_states(self, value: Any) -> str:
        stages = [
            ("initializing", value.initializing_topics),
            ("initialized", value.initialized_topics),
        ]
        parts = [
            f"{what} "
            + partitions_text((topic.topic_name, n) for topic in topics for n in topic.partitions)
            for what, topics in stages
            if topics
        ]
        if value.deleting_topics:
            parts.append("deleting " + ",".join(t.topic_name for t in value.deleting_topics))
        return "; ".join(parts) or "nothing"


def _failed(response: Any) -> str:
    return f"{ErrorCode(response.error_code).name}: {response.error_message}"


_OF_GROUP = (
    "move", "forget", "delete", "describe", "list", "commit", "fetch", "offset-delete",
)  # fmt: skip
_KINDS: dict[type[Any], str] = {
    ShareGroupMetadataKey: "epoch",
    ShareGroupMemberMetadataKey: "member",
    ShareGroupTargetAssignmentMemberKey: "target",
    ShareGroupTargetAssignmentMetadataKey: "target_epoch",
    ShareGroupCurrentMemberAssignmentKey: "current",
    ShareGroupStatePartitionMetadataKey: "states",
}
