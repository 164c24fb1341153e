"""What the logs themselves say of transactions, in the end: pure checks over parsed batches.

* In a log the epochs of a producer never go back, and a newer epoch begins only after the end of
  what an older one had open: nothing of a fenced producer follows what fenced it.
* What a log holds, the list of aborted transactions that every replica keeps says too.
* The coordinator's log and the partitions agree on every transaction: each partition of a decided
  transaction has a marker that says the same, a repetition of it at most, and no other.
* A decided transaction is over in the end: Complete follows Prepare.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from penstock.coordinator.transaction.records import decode
from penstock.wire.records import parse_end_txn_marker, parse_header, read_records

from .checks import holds
from .txn_history import Place

PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = 2, 3, 4, 5
FOLLOWS = {PREPARE_COMMIT: COMPLETE_COMMIT, PREPARE_ABORT: COMPLETE_ABORT}


class Data(NamedTuple):
    """A batch of a transaction."""

    first: int
    last: int
    producer_id: int
    epoch: int


class Marker(NamedTuple):
    """The end of a transaction in one partition."""

    offset: int
    producer_id: int
    epoch: int
    commit: bool


class Aborted(NamedTuple):
    """As in a replica's index."""

    producer_id: int
    first: int
    last: int


class State(NamedTuple):
    """A record of the coordinator's log."""

    transactional_id: str
    producer_id: int
    epoch: int
    status: int
    partitions: tuple[Place, ...]


Entry = Data | Marker


def parse(batches: Iterable[bytes]) -> list[Entry]:
    """What concerns transactions in a log."""
    found: list[Entry] = []
    for batch in batches:
        header = parse_header(batch)
        if header.is_control:
            marker = parse_end_txn_marker(read_records(batch)[0])
            found.append(
                Marker(header.base_offset, header.producer_id, header.producer_epoch, marker.commit)
            )
        elif header.is_transactional:
            found.append(
                Data(
                    header.base_offset,
                    header.last_offset,
                    header.producer_id,
                    header.producer_epoch,
                )
            )
    return found


def parse_states(batches: Iterable[bytes]) -> list[State]:
    """The coordinator's log, tombstones left out."""
    found = []
    for batch in batches:
        for record in read_records(batch):
            read = decode(record.key or b"", record.value)
            if read is None or read.value is None:
                continue
            value = read.value
            partitions = tuple(
                (of.topic, p) for of in value.transaction_partitions or () for p in of.partition_ids
            )
            found.append(
                State(
                    read.transactional_id,
                    value.producer_id,
                    value.producer_epoch,
                    value.transaction_status,
                    partitions,
                )
            )
    return found


def check_log(name: str, entries: Iterable[Entry]) -> list[Aborted]:
    """Hold what must be true within one log; the aborted transactions, as indexes have them."""
    epochs: dict[int, int] = {}
    open_: dict[int, Data] = {}
    aborted = []
    for entry in entries:
        pid = entry.producer_id
        at = entry.first if isinstance(entry, Data) else entry.offset
        holds(
            entry.epoch >= epochs.get(pid, -1),
            f"{name}@{at}: producer {pid} has epoch {entry.epoch} after {epochs.get(pid)}",
        )
        epochs[pid] = entry.epoch
        if isinstance(entry, Data):
            began = open_.setdefault(pid, entry)
            holds(
                began.epoch == entry.epoch,
                f"{name}@{at}: producer {pid} writes in epoch {entry.epoch}, and what it began at "
                f"{began.first} in epoch {began.epoch} has not ended",
            )
        elif pid in open_:
            first = open_.pop(pid).first
            if not entry.commit:
                aborted.append(Aborted(pid, first, entry.offset))
    holds(not open_, f"{name}: transactions are open: {list(open_.values())[:3]}")
    return aborted


def check_index(name: str, expected: list[Aborted], indexes: Mapping[int, list[Aborted]]) -> None:
    """Every replica's index of aborted transactions says what the log says."""
    for node, index in indexes.items():
        holds(
            sorted(index, key=lambda a: a.last) == expected,
            f"{name}: the index of aborted transactions of node {node} is not what the log says: "
            f"{[a for a in expected if a not in index][:3]} is missing, "
            f"{[a for a in index if a not in expected][:3]} is too much",
        )


def check_agreement(states: Iterable[State], logs: Mapping[Place, Iterable[Entry]]) -> None:
    """The partitions did what the coordinator decided, and all of it is over."""
    decided: dict[tuple[Place, int, int], list[bool]] = defaultdict(list)
    last: dict[str, State] = {}
    for state in states:
        before = last.get(state.transactional_id)
        if before is not None and before.status in FOLLOWS:
            holds(
                state.status == FOLLOWS[before.status],
                f"{state.transactional_id}: after {before} comes {state}",
            )
        last[state.transactional_id] = state
        if state.status in FOLLOWS:
            for place in state.partitions:
                key = (place, state.producer_id, state.epoch)
                decided[key].append(state.status == PREPARE_COMMIT)
    for state in last.values():
        holds(state.status not in FOLLOWS, f"{state.transactional_id} is never over: {state}")
    told: dict[tuple[Place, int, int], list[tuple[bool, bool]]] = defaultdict(list)
    for place, entries in logs.items():
        for marker, ends in _markers(entries):
            told[place, marker.producer_id, marker.epoch].append((marker.commit, ends))
    for key in [*decided, *(key for key in told if key not in decided)]:
        holds(
            key[0] not in logs or _repeats(told[key], decided[key]),
            f"{key[0]}: producer {key[1]} in epoch {key[2]}: the coordinator decided "
            f"{_names(decided[key])}, the partition has {_names([c for c, _ in told[key]])}",
        )


def _markers(entries: Iterable[Entry]) -> Iterator[tuple[Marker, bool]]:
    """The markers of a log, and whether each has ended something."""
    open_: dict[int, None] = {}
    for entry in entries:
        if isinstance(entry, Data):
            open_[entry.producer_id] = None
        else:
            yield entry, entry.producer_id in open_
            open_.pop(entry.producer_id, None)


def _repeats(told: list[tuple[bool, bool]], decided: list[bool]) -> bool:
    """Whether `told` is `decided`, some of it said more than once, to no effect."""
    told_runs = [list(run) for _, run in itertools.groupby(told, key=lambda t: t[0])]
    decided_runs = [list(run) for _, run in itertools.groupby(decided)]
    return [run[0][0] for run in told_runs] == [run[0] for run in decided_runs] and all(
        sum(ends for _, ends in t) <= len(d) <= len(t)
        for t, d in zip(told_runs, decided_runs, strict=True)
    )


def _names(outcomes: list[bool]) -> list[str]:
    return ["commit" if outcome else "abort" for outcome in outcomes]
