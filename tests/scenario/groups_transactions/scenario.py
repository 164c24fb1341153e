"""The scenario language of offsets in transactions: one command per line in, what follows out.

    > PRODUCER stores GROUP t-0=5 ... [KEY=VALUE ...]    TxnOffsetCommit
    > PRODUCER commits | aborts                          the marker of its transaction comes
    > commit GROUP t-0=5 ... [KEY=VALUE ...]             OffsetCommit
    > fetch GROUP [t-0 ...] [stable]                     OffsetFetch; without partitions: all
    > MEMBER joins GROUP | MEMBER beats GROUP TOPICS     the only member, classic or (KIP-848) not
    > delete GROUP | delete-offsets GROUP t-0 ...
    > drop TOPIC | list | wait MINUTES | fail-over

A producer is a name. Keys: `member`, `epoch` (generation or member epoch), `instance`, `version`.
There are the topics `t` with four partitions and `u` with two; offsets are kept for ten minutes
(`wait` has the old ones expire).

Output: `+` a record, with `(PRODUCER)` if it is part of a transaction, `-` a tombstone, `*` a
marker, `=` the answer. Run with `PENSTOCK_REWRITE=1` to write the present output into the files,
then read the difference.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.coordinator.config import MINUTE_MS
from penstock.coordinator.effects import EndTxnMarker
from penstock.coordinator.records import OffsetCommitKey, OffsetCommitValue, decode
from penstock.wire.messages.delete_groups import DeleteGroupsRequest
from penstock.wire.messages.list_groups import ListGroupsRequest
from unit.coordinator.rig import Logged, ShardRig, pending, stored
from unit.coordinator.test_offsets import delete_offsets
from unit.coordinator.test_shard import heartbeat, joined

RETENTION_MINUTES = 10
KEYS = {
    "member": "member_id",
    "epoch": "generation_id_or_member_epoch",
    "instance": "group_instance_id",
    "version": "version",
}
NUMBERS = ("epoch", "version")


class Scenario:
    def __init__(self) -> None:
        self.rig = ShardRig(offsets_retention_minutes=RETENTION_MINUTES)
        self._producers: dict[str, int] = {}
        self._members: dict[str, str] = {}

    def run(self, line: str) -> Iterator[str]:
        words = line.split()
        before = len(self.rig.log)
        if len(words) > 1 and words[1] in ("stores", "commits", "aborts", "joins", "beats"):
            answers = getattr(self, f"_{words[1]}")(words[0], *words[2:])
        else:
            answers = getattr(self, f"_{words[0].replace('-', '_')}")(*words[1:])
        answers = list(answers)
        yield from map(self._show, self._of_offsets(self.rig.log[before:]))
        yield from (f"= {answer}" for answer in answers)

    def check_replay(self) -> None:
        """What is written says the same as memory."""
        again = self.rig.replayed()
        assert stored(again) == stored(self.rig.shard)
        assert pending(again) == pending(self.rig.shard)

    # -- what follows --------------------------------------------------------------------------

    def _of_offsets(self, logged: list[Logged]) -> list[Logged]:
        """Leaves out what groups write about their members."""
        return [
            entry
            for entry in logged
            if entry.record is None
            or isinstance(getattr(decode(*entry.record), "key", None), OffsetCommitKey)
        ]

    def _show(self, entry: Logged) -> str:
        names = {number: name for name, number in self._producers.items()}
        if entry.marker is not None:
            what = "commit" if entry.marker.commit else "abort"
            return f"* {what} ({names[entry.marker.producer_id]})"
        assert entry.record is not None
        found = decode(*entry.record)
        assert found is not None
        assert isinstance(found.key, OffsetCommitKey)
        place = f"{found.key.group} {found.key.topic}-{found.key.partition}"
        if found.value is None:
            return f"- {place}"
        assert isinstance(found.value, OffsetCommitValue)
        of = "" if entry.producer_id is None else f" ({names[entry.producer_id]})"
        return f"+ {place}={found.value.offset}{of}"

    # -- commands ------------------------------------------------------------------------------

    def _stores(self, producer: str, group: str, *words: str) -> list[str]:
        offsets, how = self._read(words)
        if "generation_id_or_member_epoch" in how:
            how["generation_id"] = how.pop("generation_id_or_member_epoch")
        number = self._producers.setdefault(producer, len(self._producers) + 1)
        codes = self.rig.txn_commit(group, offsets, producer_id=number, **how)
        return [" ".join(ErrorCode(code).name for code in codes)]

    def _commits(self, producer: str) -> list[str]:
        return self._end(producer, commit=True)

    def _aborts(self, producer: str) -> list[str]:
        return self._end(producer, commit=False)

    def _end(self, producer: str, *, commit: bool) -> list[str]:
        marker = EndTxnMarker(self._producers[producer], 0, 0, commit)
        self.rig.take(self.rig.shard.end_transaction(marker, self.rig.now_ms))
        return []

    def _commit(self, group: str, *words: str) -> list[str]:
        offsets, how = self._read(words)
        codes = self.rig.commit(group, offsets, **how)
        return [" ".join(ErrorCode(code).name for code in codes)]

    def _fetch(self, group: str, *words: str) -> list[str]:
        wanted: dict[str, list[int]] | None = None
        for word in words:
            if word != "stable":
                topic, _, index = word.partition("-")
                wanted = wanted or {}
                wanted.setdefault(topic, []).append(int(index))
        found = self.rig.fetch(group, wanted, require_stable="stable" in words)
        if found.error_code:
            return [ErrorCode(found.error_code).name]
        said = [
            f"{t.name}-{p.partition_index}="
            + (ErrorCode(p.error_code).name if p.error_code else str(p.committed_offset))
            for t in found.topics
            for p in t.partitions
        ]
        return [" ".join(said) or "nothing"]

    def _joins(self, member: str, group: str) -> list[str]:
        self._members[member] = joined(self.rig, group)
        return []

    def _beats(self, member: str, group: str, topics: str) -> list[str]:
        self._members.setdefault(member, member)
        shard = self.rig.shard.groups.get(group)
        known = getattr(shard, "engine", None)
        found = known.roster.members.get(member) if known is not None else None
        answer = heartbeat(
            self.rig,
            group,
            member_id=member,
            member_epoch=found.epoch if found is not None else 0,
            subscribed_topic_names=topics.split(","),
            topic_partitions=None if found is not None else [],
        )
        assert answer.error_code == 0, answer.error_message
        return [f"epoch {answer.member_epoch}"]

    def _delete(self, group: str) -> list[str]:
        [result] = self.rig.ask(DeleteGroupsRequest(groups_names=[group])).results
        return [ErrorCode(result.error_code).name]

    def _delete_offsets(self, group: str, *places: str) -> list[str]:
        topic = places[0].partition("-")[0]
        indexes = [int(place.partition("-")[2]) for place in places]
        answer = delete_offsets(self.rig, group, topic, *indexes)
        return [" ".join(ErrorCode(p.error_code).name for p in answer.topics[0].partitions)]

    def _drop(self, topic: str) -> list[str]:
        del self.rig.topics.counts[topic]
        self.rig.take(self.rig.shard.topics_deleted(frozenset({topic})))
        return []

    def _list(self) -> list[str]:
        groups = self.rig.ask(ListGroupsRequest()).groups
        shown = sorted(f"{g.group_id} ({g.group_type}, {g.group_state})" for g in groups)
        return [" ".join(shown) or "none"]

    def _wait(self, minutes: str) -> list[str]:
        self.rig.now_ms += int(minutes) * MINUTE_MS
        while self.rig.take(self.rig.shard.expire(self.rig.now_ms)).records:
            continue
        return []

    def _fail_over(self) -> list[str]:
        self.rig.crash()
        return []

    def _read(self, words: tuple[str, ...]) -> tuple[dict[tuple[str, int], int], dict[str, Any]]:
        """Offsets by partition, and who commits them."""
        offsets: dict[tuple[str, int], int] = {}
        how: dict[str, Any] = {}
        for word in words:
            name, _, value = word.partition("=")
            if name in KEYS:
                how[KEYS[name]] = int(value) if name in NUMBERS else value
            else:
                topic, _, index = name.rpartition("-")
                offsets[topic, int(index)] = int(value)
        if "member_id" in how:
            how["member_id"] = self._members.get(how["member_id"], how["member_id"])
        return offsets, how
