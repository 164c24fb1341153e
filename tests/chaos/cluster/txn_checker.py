"""Judges what transactions did, in the manner of Jepsen's Kafka workload: pure functions.

They are part of the table in `checker`. A value says of itself which transaction it belongs to, how
many values that has, and what its writer was going to ask for (see `txn_worker`), so that readers'
records can be judged by themselves.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import NamedTuple

from .history import (
    CommittedRead,
    Ended,
    Ending,
    Fault,
    History,
    Initialised,
    Partition,
    Stable,
)
from .order import Highest

# An open transaction is over within its timeout, the coordinator's interval and some room.
STABLE_SECONDS_MAX = 30.0


class Value(NamedTuple):
    """What a value says of itself."""

    transaction: str
    total: int
    intent: str
    detail: str


def parse(text: str) -> Value:
    transaction, total, intent, detail = text.split("|")
    return Value(transaction, int(total), intent, detail)


def aborted_reads(history: History) -> Iterator[str]:
    """Nothing of an aborted transaction is ever read as committed."""
    aborted = {ended.transaction for ended in history.of(Ended) if not ended.committed}
    for where, text in _committed(history):
        value = parse(text)
        if value.intent == "abort" or value.transaction in aborted:
            yield f"{where}: {text}"


def precommitted_reads(history: History) -> Iterator[str]:
    """Nothing of a transaction is read as committed before somebody has asked for its commit."""
    asked = {e.transaction: e.at for e in history.of(Ending) if e.commit}
    for read in history.of(CommittedRead):
        value = parse(read.value)
        if read.at < asked.get(value.transaction, float("inf")) and value.intent != "abort":
            yield f"{read.reader} read {_place(read.partition, read.offset)}: {read.value}"


def torn_transactions(history: History) -> Iterator[str]:
    """A transaction is there whole or not at all, and what was read of one stays."""
    found: dict[str, list[str]] = defaultdict(list)
    for records in history.committed.values():
        for _, text in records:
            found[parse(text).transaction].append(text)
    for transaction, values in found.items():
        total = parse(values[0]).total
        if len(set(values)) != total:
            yield f"{transaction}: {len(set(values))} of {total} values are there"
    for read in history.of(CommittedRead):
        if parse(read.value).transaction not in found:
            yield f"{read.reader} read {read.value} at {read.offset}, and it is gone"


def lost_transactions(history: History) -> Iterator[str]:
    """A transaction whose commit was acknowledged is there."""
    there = {parse(text).transaction for of in history.committed.values() for _, text in of}
    for ended in history.of(Ended):
        if ended.committed and ended.transaction not in there:
            yield f"{ended.transaction} was committed and is not there"


def repeated_values(history: History) -> Iterator[str]:
    """A value is committed once."""
    for partition, records in history.committed.items():
        first: dict[str, int] = {}
        for offset, text in records:
            if first.setdefault(text, offset) != offset:
                yield f"{partition}: {text} at {first[text]} and at {offset}"


def zombie_transactions(history: History) -> Iterator[str]:
    """What a producer asks for after a newer one has its transactional id does not happen."""
    taken: dict[str, list[Initialised]] = defaultdict(list)
    for event in sorted(history.of(Initialised)):
        taken[event.transactional_id].append(event)
    there = {parse(text).transaction for of in history.committed.values() for _, text in of}
    for asked in history.of(Ending):
        if not asked.commit or asked.transaction not in there:
            continue
        runs = taken[asked.transactional_id]
        mine = [i for i, event in enumerate(runs) if event.run == asked.run]
        later = runs[mine[0] + 1 :] if mine else []
        if later and later[0].at < asked.at:
            yield (
                f"{asked.transaction} was committed, asked for {asked.at - later[0].at:.3f} s "
                f"after {later[0].run} had begun"
            )


def chain_once(history: History) -> Iterator[str]:
    """What a chain made is its input, once, up to the offsets that its group has committed."""
    made: dict[tuple[int, int], int] = defaultdict(int)
    for _, text in _final(history):
        if parse(text).intent == "chain":
            partition, _, offset = parse(text).detail.partition("@")
            made[int(partition), int(offset)] += 1
    if not history.chained:
        return
    for (topic, number), records in history.final.items():
        end = history.chained.get((topic, number), 0)
        for offset, _ in records:
            times = made.pop((number, offset), 0)
            if times != (offset < end):
                yield f"{_place((topic, number), offset)}, committed to {end}: made {times} times"
    for (number, offset), times in made.items():
        yield f"{number}@{offset} was made {times} times of nothing"


def chain_order(history: History) -> Iterator[str]:
    """What a chain made of a partition lies in its order."""
    for partition, records in history.committed.items():
        newest: dict[str, int] = {}
        for offset, text in records:
            value = parse(text)
            if value.intent == "chain":
                source, _, number = value.detail.partition("@")
                if int(number) <= newest.get(source, -1):
                    yield f"{_place(partition, offset)}: {text} after {newest[source]}"
                newest[source] = int(number)


def backward_stable(history: History) -> Iterator[str]:
    """The last stable offset is not above the high watermark, and what was readable stays so."""
    known: dict[Partition, list[tuple[float, int]]] = defaultdict(list)
    for seen in history.of(Stable):
        known[seen.partition].append((seen.at, seen.last_stable))
        if seen.last_stable > seen.high_watermark:
            yield f"{seen.partition}: {seen.last_stable} above {seen.high_watermark}"
    highest = {partition: Highest(points) for partition, points in known.items()}
    for seen in history.of(Stable):
        had = highest[seen.partition].before(seen.called)
        if seen.last_stable < had:
            yield f"{seen.partition}: {seen.last_stable} after {had}, at {seen.called:.3f}"


def stuck_stable(history: History) -> Iterator[str]:
    """The last stable offset reaches what is there, in bounded time after faults are healed."""
    by_partition: dict[Partition, list[Stable]] = defaultdict(list)
    for seen in history.of(Stable):
        by_partition[seen.partition].append(seen)
    faults = sorted((fault.began, fault.recovered) for fault in history.of(Fault))
    for partition, samples in by_partition.items():
        samples.sort(key=lambda sample: sample.at)
        reached = 0
        for seen in samples:
            while reached < len(samples) and samples[reached].last_stable < seen.high_watermark:
                reached += 1
            until = _deadline(seen.at, faults)
            end = samples[min(reached, len(samples) - 1)].at
            if end > until:
                yield (
                    f"{partition}: {seen.last_stable} of {seen.high_watermark} at {seen.at:.3f}, "
                    f"and still so {until - seen.at:.1f} s later"
                )
                break


def _deadline(at: float, faults: list[tuple[float, float]]) -> float:
    """When a transaction that is open at a time has to be over; faults give it more time."""
    until = at + STABLE_SECONDS_MAX
    for began, recovered in faults:
        if began <= until and recovered > at:
            until = max(until, recovered + STABLE_SECONDS_MAX)
    return until


def _committed(history: History) -> Iterator[tuple[str, str]]:
    """Where, and what, of everything that was given to somebody as committed."""
    for read in history.of(CommittedRead):
        yield f"{read.reader} at {_place(read.partition, read.offset)}", read.value
    yield from _final(history)


def _final(history: History) -> Iterator[tuple[str, str]]:
    for partition, records in history.committed.items():
        for offset, text in records:
            yield _place(partition, offset), text


def _place(partition: Partition, offset: int) -> str:
    return f"{partition[0]}-{partition[1]}@{offset}"


TXN_CHECKS: dict[str, Callable[[History], Iterator[str]]] = {
    "aborted read": aborted_reads,
    "precommitted read": precommitted_reads,
    "torn transaction": torn_transactions,
    "lost transaction": lost_transactions,
    "repeated in transactions": repeated_values,
    "zombie transaction": zombie_transactions,
    "chain, exactly once": chain_once,
    "chain, order": chain_order,
    "last stable offset": backward_stable,
    "stuck last stable offset": stuck_stable,
}
