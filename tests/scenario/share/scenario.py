"""The scenario language of share-partitions: one event per line in, what comes of it as lines out.

An event is `t=MILLISECONDS VERB ...`; locks that run out before it do so first. Indented below it
stands what must come of it:

    ! locks             locks ran out, records have rested long enough, or what makes dead letters
                        is persisted again; at the time that is given if it is not the event's
    NAME: answer        what a member was given (`0-9 x1`: delivered once), or its error
    + start=N done=N [records]      a change that is persisted; `done` are finished records
    = start=N next=N [records]      the window, where it changed; `next` is the next fetch offset

Records are shown as runs: `0-9 ACQUIRED x1 NAME`. TO_ACKNOWLEDGED and the like are changing until
that is written. Parked ones have the time when they are free (`until 300`), those that become dead
letters the cause, and those that were revived say so. A change `over` others replaces what was
persisted.

    log 0-9 10-19 ...           record batches that the log has from now on
    compact 10-19 ...           record batches that it has no more
    fetch NAME [max=N] [batch=N] [exact] [members=N] [read=N]
                                reads (N record batches, all without it) from the next fetch offset
    ack NAME 0-4:accept 5-6:release,reject ...      gap, accept, release, reject, renew
    leave NAME                  its session ends
    abort 0-4 ...               records of aborted transactions, as the last fetch found
    start OFFSET                the log begins there
    dead NAME [max=N]           the writer of dead letters takes what waits (NAME: range xN cause)
    wrote 0-4 ...               and has written them
    unwritten 0-4 ...           or could not
    revive 0-4 ...              deliver anew what is done
    hold                        changes wait for `written` or `failed`, which take the oldest
    crash                       another leader loads what is persisted
    empty [start=N] [locks=N] [limit=N] [lock=MS] [renew=no] [dead=yes] [retry=TYPE,MS,MULT,MAX]
                                a new share-partition
    limits [locks=N] ...        its group's settings change, as far as they are named
    wait

After every event that leaves nothing unwritten, the store must have what memory has. Run with
`PENSTOCK_REWRITE=1` to write the present output into the files, then read the difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from penstock.base.errors import ApiError
from penstock.share.changes import Change
from penstock.share.partition import (
    AckBatch,
    AckType,
    AcquireMode,
    ShareLimits,
    SharePartition,
)
from penstock.share.types import Cause, RecordState
from penstock.share.values import BackoffType, RetryBackoff
from unit.share.model import Store

LIMITS = ShareLimits(
    record_locks_max=100, delivery_count_limit=5, lock_duration_ms=1_000, renew_allowed=True
)
SETTINGS = {
    "locks": "record_locks_max",
    "limit": "delivery_count_limit",
    "lock": "lock_duration_ms",
}
MAX_RECORDS, BATCH_SIZE = 500, 500
UNPERSISTED = ("ACQUIRED", "UNSEEN")

Options = dict[str, str]


class Scenario:
    def __init__(self) -> None:
        self.now = 0
        self.log: list[tuple[int, int]] = []
        self.held_up = False
        self.waiting: list[Change] = []
        self.begin(0, LIMITS)

    def begin(self, start: int, limits: ShareLimits) -> None:
        self.held_up = False
        self.waiting = []
        self.store = Store(start)
        self.partition = SharePartition(limits, self.store.state(), start)
        self.window = self.shown()

    def run(self, line: str) -> Iterator[str]:
        when, verb, *words = line.split()
        yield from self.let_time_pass(int(when.removeprefix("t=")))
        options = dict(word.split("=", 1) for word in words if "=" in word)
        rest = [word for word in words if "=" not in word]
        method: Callable[..., Iterator[str]] = getattr(self, f"do_{verb}")
        yield from method(rest, options)
        self.partition.invariants()
        if (window := self.shown()) != self.window:
            self.window = window
            yield f"= {window}"
        self.check_store()

    def let_time_pass(self, end: int) -> Iterator[str]:
        assert end >= self.now, f"time goes back to {end}"
        partition = self.partition
        while (deadline := partition.next_deadline_ms) is not None and deadline <= end:
            self.now = deadline
            yield "! locks" + ("" if deadline == end else f" at {deadline}")
            yield from self.changed(partition.expire(deadline))
        self.now = end

    # -- the log and the group -----------------------------------------------------------------

    def do_log(self, words: list[str], options: Options) -> Iterator[str]:
        self.log += [span(word) for word in words]
        yield from ()

    def do_compact(self, words: list[str], options: Options) -> Iterator[str]:
        for word in words:
            self.log.remove(span(word))
        yield from ()

    def do_start(self, words: list[str], options: Options) -> Iterator[str]:
        offset = int(words[0])
        self.log = [batch for batch in self.log if batch[1] >= offset]
        yield from self.changed(self.partition.log_start_moved(offset))

    def do_empty(self, words: list[str], options: Options) -> Iterator[str]:
        start = int(options.pop("start", 0))
        self.begin(start, changed_limits(LIMITS, options))
        yield from ()

    def do_limits(self, words: list[str], options: Options) -> Iterator[str]:
        self.partition.limits = changed_limits(self.partition.limits, options)
        yield from ()

    def do_wait(self, words: list[str], options: Options) -> Iterator[str]:
        yield from ()

    # -- members -------------------------------------------------------------------------------

    def do_fetch(self, words: list[str], options: Options) -> Iterator[str]:
        name, *rest = words
        partition, members = self.partition, int(options.get("members", 1))
        if not partition.may_acquire(name, members):
            yield f"{name}: no locks"
            return
        offset = partition.next_fetch_offset
        batches = [batch for batch in self.log if batch[1] >= offset]
        given, change = partition.acquire(
            name,
            batches[: int(options.get("read", len(batches)))],
            fetch_offset=offset,
            max_records=int(options.get("max", MAX_RECORDS)),
            batch_size=int(options.get("batch", BATCH_SIZE)),
            mode=AcquireMode.RECORD_LIMIT if "exact" in rest else AcquireMode.BATCH_OPTIMIZED,
            members=members,
            now_ms=self.now,
        )
        answer = ", ".join(f"{offsets(first, last)} x{count}" for first, last, count in given)
        yield f"{name}: {answer or 'nothing'}"
        yield from self.changed(change)

    def do_ack(self, words: list[str], options: Options) -> Iterator[str]:
        name, *said = words
        batches = []
        for word in said:
            where, _, types = word.partition(":")
            numbers = [int(AckType[t.upper()]) for t in types.split(",") if t]
            batches.append(AckBatch(*span(where), numbers))
        try:
            change = self.partition.acknowledge(name, batches, self.now)
        except ApiError as e:
            yield f"{name}: {e.code.name}"
            return
        yield f"{name}: ok"
        yield from self.changed(change)

    def do_leave(self, words: list[str], options: Options) -> Iterator[str]:
        yield from self.changed(self.partition.release(words[0], self.now))

    def do_abort(self, words: list[str], options: Options) -> Iterator[str]:
        yield from self.changed(self.partition.archive([span(w) for w in words], self.now))

    # -- dead letters, and what is revived -----------------------------------------------------

    def do_dead(self, words: list[str], options: Options) -> Iterator[str]:
        taken = self.partition.dead_letters(int(options.get("max", MAX_RECORDS)))
        shown = [f"{offsets(a, b)} x{count} {cause.name}" for a, b, count, cause in taken]
        yield f"{words[0]}: {', '.join(shown) or 'nothing'}"

    def do_wrote(self, words: list[str], options: Options) -> Iterator[str]:
        written = [span(word) for word in words]
        yield from self.changed(self.partition.dead_letters_written(written, self.now))

    def do_unwritten(self, words: list[str], options: Options) -> Iterator[str]:
        self.partition.dead_letters_failed([span(word) for word in words])
        yield from ()

    def do_revive(self, words: list[str], options: Options) -> Iterator[str]:
        try:
            change = self.partition.revive([span(word) for word in words])
        except ApiError as e:
            yield f"{e.code.name}: {e.message}"
            return
        yield from self.changed(change)

    # -- the persister -------------------------------------------------------------------------

    def do_hold(self, words: list[str], options: Options) -> Iterator[str]:
        self.held_up = True
        yield from ()

    def do_written(self, words: list[str], options: Options) -> Iterator[str]:
        self.written(self.waiting.pop(0))
        yield from ()

    def do_failed(self, words: list[str], options: Options) -> Iterator[str]:
        yield from self.changed(self.partition.failed(self.waiting.pop(0), self.now))

    def do_crash(self, words: list[str], options: Options) -> Iterator[str]:
        self.waiting.clear()
        self.held_up = False
        self.partition = SharePartition(self.partition.limits, self.store.state(), -1)
        yield from ()

    def changed(self, change: Change | None) -> Iterator[str]:
        if change is None:
            return
        rows = [
            f"{offsets(b.first_offset, b.last_offset)} {RecordState(b.state).name}"
            f" x{b.delivery_count}"
            + (f" {Cause(b.cause).name}" if b.cause else "")
            + (" over" if b.replaces else "")
            for b in change.batches
        ]
        yield (
            f"+ start={change.start_offset} done={change.delivery_complete_count}"
            f" [{', '.join(rows)}]"
        )
        if self.held_up:
            self.waiting.append(change)
        else:
            self.written(change)

    def written(self, change: Change) -> None:
        start = max(change.start_offset, self.partition.start_offset)
        self.store.write(start, change.batches)
        self.partition.written(change, self.now)

    # -- showing and checking ------------------------------------------------------------------

    def shown(self) -> str:
        rows = [
            f"{offsets(row.first_offset, row.last_offset)} {row.state} x{row.delivery_count}"
            + (f" {row.member_id}" if row.member_id else "")
            + (f" {row.cause.name}" if row.cause else "")
            + (f" until {row.free_at_ms}" if row.free_at_ms and not row.member_id else "")
            + (" revived" if row.revived else "")
            for row in self.partition.describe()
        ]
        partition = self.partition
        start, next_ = partition.start_offset, partition.next_fetch_offset
        return f"start={start} next={next_} [{', '.join(rows)}]"

    def check_store(self) -> None:
        """What is settled in memory is persisted, unless a change waits or will take it along."""
        partition = self.partition
        if self.waiting or partition._unsaved:
            return
        for first, last, state, count, *_, cause, _ in partition.describe():
            if state in UNPERSISTED or count == 0:
                continue
            number = RecordState[state] if state != "PARKED" else RecordState.AVAILABLE
            persisted = self.store.records
            for offset in range(first, last + 1):
                assert persisted[offset] == (number, count, cause)


def span(word: str) -> tuple[int, int]:
    first, _, last = word.partition("-")
    return int(first), int(last or first)


def offsets(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def changed_limits(limits: ShareLimits, options: Options) -> ShareLimits:
    numbers: dict[str, Any] = {
        SETTINGS[name]: int(options[name]) for name in options if name in SETTINGS
    }
    limits = limits._replace(**numbers)
    if "renew" in options:
        limits = limits._replace(renew_allowed=options["renew"] == "yes")
    if "dead" in options:
        limits = limits._replace(dead_letters=options["dead"] == "yes")
    if "retry" in options:
        kind, first_ms, multiplier, max_ms = options["retry"].split(",")
        how = BackoffType(kind), int(first_ms), float(multiplier), int(max_ms)
        limits = limits._replace(retry=RetryBackoff(*how))
    return limits
