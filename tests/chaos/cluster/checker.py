"""Judges a history, in the manner of Jepsen's Kafka workload: every check is a pure function.

A check takes a `History` and returns the violations that it finds; `CHECKS` is the table of all of
them, and `check` runs it. What may be: a message that was sent and never answered may be there or
not. What may not be is said by each check's first line. `tests/chaos/test_cluster_checker.py` shows
for each of them a history that it refuses.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import NamedTuple

from .history import (
    Acked,
    Committed,
    Created,
    Described,
    Failed,
    Fault,
    Fetched,
    History,
    Offsets,
    Owned,
    Partition,
    Read,
    Sent,
    Trouble,
)
from .order import Highest
from .share_checker import SHARE_CHECKS
from .txn_checker import TXN_CHECKS

# After a fault is over, every partition takes writes again within this time.
HEAL_SECONDS_MAX = 20.0


class Violation(NamedTuple):
    """One broken promise."""

    check: str
    text: str


def lost(history: History) -> Iterator[str]:
    """An acknowledged message is in the log for good, at its offset if one was told."""
    stored = {where: dict(records) for where, records in history.final.items()}
    values = {where: set(of.values()) for where, of in stored.items()}
    for ack in history.of(Acked):
        if ack.offset < 0:
            if ack.value not in values.get(ack.partition, ()):
                yield f"{ack.partition}: {ack.value} acknowledged, and nowhere stored"
            continue
        found = stored.get(ack.partition, {}).get(ack.offset)
        if found != ack.value:
            yield f"{_place(ack.partition, ack.offset)}: {ack.value} acknowledged, {found} stored"


def unseen(history: History) -> Iterator[str]:
    """What is in the log, every reader that read beyond it has seen."""
    seen: dict[tuple[str, Partition], set[int]] = defaultdict(set)
    for read in history.of(Read):
        seen[read.reader, read.partition].add(read.offset)
    for (reader, partition), offsets in seen.items():
        low, high = min(offsets), max(offsets)
        for offset, value in history.final.get(partition, []):
            if low <= offset <= high and offset not in offsets:
                yield f"{_place(partition, offset)}: {reader} never saw {value}"


def unread(history: History) -> Iterator[str]:
    """What is in the log, somebody who follows the partition has read by the end."""
    newest: dict[Partition, int] = defaultdict(lambda: -1)
    for read in history.of(Read):
        newest[read.partition] = max(newest[read.partition], read.offset)
    for partition, records in history.final.items():
        if records and newest[partition] < records[-1][0]:
            yield f"{_place(partition, records[-1][0])}: read only up to {newest[partition]}"


def inconsistent(history: History) -> Iterator[str]:
    """An offset has one value, whoever looks and whenever."""
    values: dict[tuple[Partition, int], set[str]] = defaultdict(set)
    for ack in history.of(Acked):
        if ack.offset >= 0:
            values[ack.partition, ack.offset].add(ack.value)
    for read in history.of(Read):
        values[read.partition, read.offset].add(read.value)
    for partition, records in history.final.items():
        for offset, value in records:
            values[partition, offset].add(value)
    for (partition, offset), found in values.items():
        if len(found) > 1:
            yield f"{_place(partition, offset)} has been {', '.join(sorted(found))}"


def duplicates(history: History) -> Iterator[str]:
    """A message of an idempotent producer is in the log once in an epoch of its producer."""
    for partition, records in history.final.items():
        first: dict[tuple[str, tuple[int, int]], int] = {}
        for offset, value in records:
            key = (value, history.writer(partition, offset))
            if first.setdefault(key, offset) != offset:
                yield f"{partition}: {value} at {first[key]} and at {offset}"


def reordered(history: History) -> Iterator[str]:
    """The messages of one producer, in one epoch of it, lie in a partition in the order of their
    sending.
    """
    numbers = {sent.value: (sent.producer, sent.number) for sent in history.of(Sent)}
    for partition, records in history.final.items():
        newest: dict[tuple[str, tuple[int, int]], int] = {}
        for offset, value in records:
            if value not in numbers:
                continue
            producer, number = numbers[value]
            key = (producer, history.writer(partition, offset))
            if number < newest.get(key, -1):
                yield f"{_place(partition, offset)}: {value} after number {newest[key]}"
            newest[key] = max(number, newest.get(key, -1))


def unsent(history: History) -> Iterator[str]:
    """Nothing is in the log that nobody sent."""
    known = {sent.value for sent in history.of(Sent)}
    known |= {failed.value for failed in history.of(Failed)}
    for partition, records in history.final.items():
        for offset, value in records:
            if value not in known:
                yield f"{_place(partition, offset)}: nobody sent {value}"


def zombies(history: History) -> Iterator[str]:
    """What was refused for certain is not in the log: neither now nor was it ever read."""
    refused = {failed.value: failed.error for failed in history.of(Failed) if failed.surely}
    for partition, records in history.final.items():
        for offset, value in records:
            if value in refused:
                yield f"{_place(partition, offset)}: {value} was refused with {refused[value]}"
    for read in history.of(Read):
        if read.value in refused:
            yield f"{_place(read.partition, read.offset)}: {read.reader} read refused {read.value}"


def backward_polls(history: History) -> Iterator[str]:
    """A reader's offsets only grow."""
    newest: dict[tuple[str, Partition], int] = {}
    for read in history.of(Read):
        key = (read.reader, read.partition)
        if read.offset <= newest.get(key, -1):
            where = _place(read.partition, read.offset)
            yield f"{read.reader} got {where} after offset {newest[key]}"
        newest[key] = max(read.offset, newest.get(key, -1))


def backward_high_watermark(history: History) -> Iterator[str]:
    """The high watermark is never below what it was, what was read, or what was acknowledged."""
    known: dict[Partition, list[tuple[float, int]]] = defaultdict(list)
    for seen in history.of(Offsets):
        known[seen.partition].append((seen.at, seen.high_watermark))
    for read in history.of(Read):
        known[read.partition].append((read.at, read.offset + 1))
    for ack in history.of(Acked):
        known[ack.partition].append((ack.at, ack.offset + 1))
    highest = {partition: Highest(points) for partition, points in known.items()}
    for seen in history.of(Offsets):
        had = highest[seen.partition].before(seen.called)
        if seen.high_watermark < had:
            yield f"{seen.partition}: {seen.high_watermark} after {had}, at {seen.called:.3f}"


def backward_log_start(history: History) -> Iterator[str]:
    """The log start offset never goes back."""
    known: dict[Partition, list[tuple[float, int]]] = defaultdict(list)
    for seen in history.of(Offsets):
        known[seen.partition].append((seen.at, seen.log_start))
    highest = {partition: Highest(points) for partition, points in known.items()}
    for seen in history.of(Offsets):
        had = highest[seen.partition].before(seen.called)
        if seen.log_start < had:
            yield f"{seen.partition}: {seen.log_start} after {had}, at {seen.called:.3f}"


def backward_commits(history: History) -> Iterator[str]:
    """A committed offset is never below one that was committed, or seen, before."""
    known: dict[tuple[str, Partition], list[tuple[float, int]]] = defaultdict(list)
    for commit in history.of(Committed):
        known[commit.group, commit.partition].append((commit.at, commit.offset))
    for fetched in history.of(Fetched):
        known[fetched.group, fetched.partition].append((fetched.at, fetched.offset))
    highest = {key: Highest(points) for key, points in known.items()}
    for fetched in history.of(Fetched):
        had = highest[fetched.group, fetched.partition].before(fetched.called)
        if fetched.offset < had:
            yield f"{fetched.group} {fetched.partition}: {fetched.offset} after {had}"


def two_owners(history: History) -> Iterator[str]:
    """A partition has one owner in a group: in what the coordinator says, and in whose commits
    it accepts.

    A member may believe for a while that it owns what the group has given to another; its commits
    must be refused from then on.
    """
    for described in history.of(Described):
        owner: dict[Partition, str] = {}
        for member, partition in described.owners:
            if owner.setdefault(partition, member) != member:
                yield f"{described.group} {partition}: {owner[partition]} and {member}"
    turns: dict[tuple[str, Partition], list[Owned]] = defaultdict(list)
    for owned in history.of(Owned):
        turns[owned.group, owned.partition].append(owned)
    for commit in history.of(Committed):
        other = _other_owner(turns[commit.group, commit.partition], commit)
        if other is not None:
            yield (
                f"{commit.group} {commit.partition}: {commit.member} committed {commit.offset} "
                f"{commit.called - other.at:.3f} s after {other.member} had got the partition"
            )


def _other_owner(turns: list[Owned], commit: Committed) -> Owned | None:
    """Another member that held the partition for the whole of a commit."""
    holder: Owned | None = None
    for turn in sorted(turns):
        if turn.at < commit.called:
            if not turn.until:
                holder = turn
            elif holder is not None and holder.member == turn.member:
                holder = None
        elif turn.at <= commit.at:
            return None
    return holder if holder is not None and holder.member != commit.member else None


def lost_topics(history: History) -> Iterator[str]:
    """A topic whose creation was acknowledged exists."""
    for created in history.of(Created):
        if created.topic not in history.topics:
            yield f"{created.topic} was created and is gone"


def trouble(history: History) -> Iterator[str]:
    """No client is told that data it relies on is gone, or that it cannot go on at all."""
    for told in history.of(Trouble):
        yield f"{told.who} at {told.at:.3f}: {told.text}"


def dead_after_healing(history: History) -> Iterator[str]:
    """When a fault is over, every partition takes writes again within HEAL_SECONDS_MAX."""
    acked: dict[Partition, list[float]] = defaultdict(list)
    for ack in history.of(Acked):
        acked[ack.partition].append(ack.at)
    for times in acked.values():
        times.sort()
    for fault in history.of(Fault):
        for partition in history.expected:
            times = acked[partition]
            place = bisect.bisect_left(times, fault.healed)
            if place == len(times) or times[place] > fault.healed + HEAL_SECONDS_MAX:
                yield f"{partition}: no write within {HEAL_SECONDS_MAX} s after {fault.name} healed"


def _place(partition: Partition, offset: int) -> str:
    return f"{partition[0]}-{partition[1]}@{offset}"


CHECKS: dict[str, Callable[[History], Iterator[str]]] = {
    "lost": lost,
    "unseen": unseen,
    "unread": unread,
    "inconsistent offsets": inconsistent,
    "duplicates": duplicates,
    "order": reordered,
    "unsent": unsent,
    "zombies": zombies,
    "backward polls": backward_polls,
    "backward high watermark": backward_high_watermark,
    "backward log start": backward_log_start,
    "backward commits": backward_commits,
    "two owners": two_owners,
    "lost topics": lost_topics,
    "trouble": trouble,
    "dead after healing": dead_after_healing,
    **TXN_CHECKS,
    **SHARE_CHECKS,
}


def check(history: History) -> list[Violation]:
    """All violations of all checks."""
    return [Violation(name, text) for name, rule in CHECKS.items() for text in rule(history)]
