"""What must hold of share groups, whatever happens; a breach is a `Violation`. Pure.

`ShareHistory` is told what members of share groups asked for and were answered. A member knows a
record for its own from its answer on, and the leader gave it at the earliest when the request was
sent: so a lock is in force at least until `sent` plus its duration. That a record is held is in the
memory of a leader alone (as in Kafka): it is promised within one *life* of a share-partition at its
leader, which ends with the process, the leadership, and the last share session of the group there.
Members do not know lives; the run looks them up, and 0 says that nobody knows.

* Holding: within a life a record is given to nobody while a member surely holds it: its lock is in
  force, its share session goes on, and it has said nothing of the record. What a member surely
  holds it may acknowledge.
* Done: what was accepted or rejected, and answered without an error, is never given again, by
  whomever.
* Counts: no delivery count is above the group's limit. Within a life each delivery of a record has
  a higher count than the one before, so there are no more of them than the limit. A release that
  was answered without an error is persisted: whoever gets the record later gets a higher count.
* Nothing lost: in the end each committed record was accepted or rejected by somebody, or has been
  given as often as the limit allows. Deliveries that were never answered count as well: each fetch
  without an answer may have been one.
* Dead letters: in a group that has them each record that nobody accepted has one, and none has two.
* Rest: in a group that lets records rest, one that came back is not given again before its rest is
  over, within a life of the share-partition. Over a fail-over it may be early.
* The persisted state says the same: nothing is acknowledged that nobody accepted, nothing archived
  that nobody rejected and that had attempts left, and what was done is not free again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from .checks import holds

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
DONE = frozenset({GAP, ACCEPT, REJECT})
AVAILABLE, ACKNOWLEDGED, ARCHIVING, ARCHIVED = 0, 2, 3, 4
NAMES = {GAP: "gap", ACCEPT: "accept", RELEASE: "release", REJECT: "reject", RENEW: "renew"}
MARGIN_S = 0.001001
"""Leaders count milliseconds, and virtual times are sums of floats."""


class SharePlace(NamedTuple):
    """A partition of a topic as one group consumes it."""

    group: str
    topic_id: bytes
    partition: int

    def __str__(self) -> str:
        return f"{self.group}:{self.topic_id.hex()[:8]}-{self.partition}"


class Terms(NamedTuple):
    """What a group is promised."""

    lock_s: float
    count_limit: int
    dead_letters: bool = False
    rest_s: Callable[[int], float] = lambda count: 0.0
    """How long a record rests after so many deliveries."""


class DeadLetter(NamedTuple):
    """As its headers tell of it."""

    offset: int
    count: int
    reason: str


class Receipt(NamedTuple):
    """How records came to a member."""

    member: str
    life: int
    """Of the share-partition at its leader, from before the request to the answer; 0: unknown."""
    session: int
    """The share session by which they came; 0 if it had ended before they arrived."""
    sent: float
    received: float


@dataclass(eq=False)
class Held:
    """A record as a member holds it."""

    receipt: Receipt
    count: int
    until: float
    """When its lock may run out."""
    over: bool = False
    """The member has said something of it, or may have lost it."""


@dataclass
class Given:
    """The deliveries of a record within one life: counts, with their times."""

    life: int
    counts: dict[int, Receipt] = field(default_factory=dict)


@dataclass
class ShareRecord:
    """What one group has done with one record."""

    held: Held | None = None
    given: Given | None = None
    count: int = 0
    """The highest that was seen."""
    released: tuple[int, float] = (0, 0.0)
    """The highest count of a release that was answered, and when."""
    done: tuple[str, float] | None = None
    """By whom it was finished, and when that was answered."""
    said: set[int] = field(default_factory=set)
    """What anybody has ever said of it."""
    back: tuple[int, int, float] = (0, 0, 0.0)
    """The life in which it came back, after how many deliveries, and the earliest time of that."""
    persisted: set[tuple[int, int]] = field(default_factory=set)
    """States and counts that were ever persisted of it."""


class ShareHistory:
    def __init__(self, alive: Callable[[SharePlace, Receipt], bool]) -> None:
        """`alive` says whether the life and the session of a receipt still go on."""
        self.terms: dict[str, Terms] = {}
        self.records: dict[SharePlace, dict[int, ShareRecord]] = {}
        self.unanswered: dict[SharePlace, list[float]] = {}
        """When fetches were sent that were never answered, ascending."""
        self.deliveries = self.redeliveries = self.acknowledged = 0
        self._alive = alive

    def of(self, place: SharePlace, offset: int) -> ShareRecord:
        return self.records.setdefault(place, {}).setdefault(offset, ShareRecord())

    # -- what members are given ----------------------------------------------------------------

    def given(self, place: SharePlace, offset: int, count: int, receipt: Receipt) -> None:
        record, terms = self.of(place, offset), self.terms[place.group]
        told = f"{place}@{offset}: {receipt.member} was given it for time {count}"
        self.deliveries += 1
        self.redeliveries += count > 1
        holds(1 <= count <= terms.count_limit, f"{told}, and the limit is {terms.count_limit}")
        holds(
            record.done is None or receipt.sent <= record.done[1],
            f"{told} by a fetch of {receipt.sent:.4f}; {record.done} had finished it",
        )
        holds(
            receipt.sent <= record.released[1] or count > record.released[0],
            f"{told} by a fetch of {receipt.sent:.4f}; time {record.released[0]} ended with a "
            f"release at {record.released[1]:.4f}",
        )
        self._check_held(place, record, receipt, told)
        self._check_rest(place, record, receipt, count, told)
        self._check_counts(record, count, receipt, told)
        record.count = max(record.count, count)
        record.held = Held(receipt, count, receipt.sent + terms.lock_s)

    def _check_held(
        self, place: SharePlace, record: ShareRecord, receipt: Receipt, told: str
    ) -> None:
        held, until = record.held, receipt.sent + self.terms[place.group].lock_s
        if held is None or held.over or held.receipt.session == 0:
            return
        same_life = receipt.life != 0 and held.receipt.life == receipt.life
        in_force = receipt.received < min(held.until, until) - MARGIN_S
        holds(
            not (same_life and in_force and self._alive(place, held.receipt)),
            f"{told} at {receipt.received:.4f} while {held.receipt.member} held it, at least "
            f"until {held.until:.4f}",
        )

    def _check_rest(
        self, place: SharePlace, record: ShareRecord, receipt: Receipt, count: int, told: str
    ) -> None:
        held, terms = record.held, self.terms[place.group]
        life, before, since = record.back
        if held is not None and not held.over and self._alive(place, held.receipt):
            life, before, since = held.receipt.life, held.count, held.until
        if life and life == receipt.life and count == before + 1:
            rest_s = terms.rest_s(before)
            holds(
                receipt.received >= since + rest_s - MARGIN_S,
                f"{told} at {receipt.received:.4f}; it came back at {since:.4f} at the earliest, "
                f"to rest for {rest_s} s",
            )

    def _check_counts(self, record: ShareRecord, count: int, receipt: Receipt, told: str) -> None:
        if receipt.life == 0:
            return
        if record.given is None or record.given.life != receipt.life:
            record.given = Given(receipt.life)
        for other, at in record.given.counts.items():
            holds(other != count, f"{told} in the same life as {at.member} was")
            holds(
                other < count or receipt.sent < at.received,
                f"{told} after {at.member} had it for time {other}",
            )
        record.given.counts[count] = receipt

    def unanswered_fetch(self, place: SharePlace, sent: float) -> None:
        """A fetch that was not answered: what it would have given, if anything, is not known."""
        self.unanswered.setdefault(place, []).append(sent)
        self.unanswered[place].sort()

    # -- what members say ----------------------------------------------------------------------

    def saying(self, place: SharePlace, said: Mapping[int, int]) -> None:
        """A member sends acknowledgements: types by offset."""
        for offset, kind in said.items():
            record = self.of(place, offset)
            record.said.add(kind)
            if kind != RENEW and record.held is not None:
                record.held.over = True

    def gone(self, place: SharePlace, offsets: Iterable[int], member: str) -> None:
        """The member has lost what it had: its connection or session has ended."""
        for offset in offsets:
            held = self.of(place, offset).held
            if held is not None and held.receipt.member == member:
                held.over = True

    def answered(
        self, place: SharePlace, said: Mapping[int, int], member: str, sent: float, now: float
    ) -> None:
        """Acknowledgements were answered without an error."""
        terms = self.terms[place.group]
        for offset, kind in said.items():
            record = self.of(place, offset)
            self.acknowledged += 1
            held = record.held
            if kind in DONE:
                record.done = record.done or (f"{member}, {NAMES[kind]}", now)
            elif held is None or held.receipt.member != member:
                continue
            elif kind == RELEASE and held.receipt.session and held.count < terms.count_limit:
                record.back = held.receipt.life, held.count, sent
                if held.count > record.released[0]:
                    record.released = held.count, now
            elif kind == RENEW:
                held.until = max(held.until, sent + terms.lock_s)
            elif held.count >= terms.count_limit:
                record.done = record.done or (f"{member}, last {NAMES[kind]}", now)

    def refused(
        self,
        place: SharePlace,
        said: Mapping[int, int],
        receipts: Mapping[int, Held],
        error: str,
        now: float,
    ) -> None:
        """The leader says that the member does not hold them all; `receipts` is what it had when
        it sent this.
        """
        sure = [
            held.receipt.life != 0
            and held.receipt.session != 0
            and now < held.until - MARGIN_S
            and self._alive(place, held.receipt)
            for held in (receipts[offset] for offset in said)
        ]
        first = min(said)
        holds(
            not all(sure),
            f"{place}@{first}: {receipts[first].receipt.member} was answered {error} to "
            f"{sorted(said.items())[:3]} and held all of it",
        )

    # -- the state topic -----------------------------------------------------------------------

    def persisted(self, place: SharePlace, first: int, last: int, state: int, count: int) -> None:
        """A batch of the state topic, which was committed."""
        limit = self.terms[place.group].count_limit
        told = f"{place}@{first}-{last} was persisted in state {state} with count {count}"
        archiving = ARCHIVING if self.terms[place.group].dead_letters else ARCHIVED
        holds(state in (AVAILABLE, ACKNOWLEDGED, archiving, ARCHIVED), told)
        holds(count <= limit, f"{told}, and the limit is {limit}")
        holds(state != AVAILABLE or count < limit, f"{told}, and may be given no more")
        for offset in range(first, last + 1):
            record = self.of(place, offset)
            record.persisted.add((state, count))
            holds(
                state != ACKNOWLEDGED or ACCEPT in record.said,
                f"{told}, and nobody has accepted {offset}",
            )

    # -- in the end ----------------------------------------------------------------------------

    def check_complete(self, place: SharePlace, visible: Iterable[int], start: int) -> None:
        """`visible` are the committed records that are there; all below `start` is finished."""
        seen = sorted(visible)
        for offset in seen:
            holds(
                offset < start,
                f"{place}@{offset} is not finished: the state begins at {start}",
            )
            self._check_finished(place, offset)

    def _check_finished(self, place: SharePlace, offset: int) -> None:
        """Whoever was given a record said that it is done, or it has had all its attempts."""
        record, limit = self.of(place, offset), self.terms[place.group].count_limit
        given_up = ARCHIVING, ARCHIVED
        tried_out = any(state in given_up and count >= limit for state, count in record.persisted)
        if record.said & DONE or tried_out:
            return
        unanswered = len(self.unanswered.get(place, ()))
        holds(
            limit - record.count <= unanswered,
            f"{place}@{offset} is lost: it was given {record.count} times of {limit}, nobody "
            f"accepted or rejected it, and {unanswered} fetches have no answer",
        )

    def check_archived(self, place: SharePlace, visible: Iterable[int]) -> None:
        """Records that are there were archived for a reason; of those that are not (control
        records, aborted and compacted ones) nobody knows one.
        """
        seen, limit = sorted(visible), self.terms[place.group].count_limit
        for offset, record in self.records.get(place, {}).items():
            at = bisect_left(seen, offset)
            if at == len(seen) or seen[at] != offset:
                continue
            for state, count in record.persisted:
                holds(
                    state not in (ARCHIVING, ARCHIVED)
                    or count >= limit
                    or record.said & {REJECT, GAP},
                    f"{place}@{offset} was archived after {count} deliveries of {limit}, and "
                    "nobody has rejected it",
                )

    def check_dead_letters(
        self, place: SharePlace, letters: Iterable[DeadLetter], visible: Iterable[int]
    ) -> None:
        """`letters` are those of the partition that readers of committed data are given."""
        limit, found = self.terms[place.group].count_limit, set()
        for letter in letters:
            told = f"{place}@{letter.offset}: dead letter {letter}"
            record = self.of(place, letter.offset)
            holds(letter.offset not in found, f"{told} is there twice")
            found.add(letter.offset)
            holds(
                letter.reason != "rejected" or REJECT in record.said,
                f"{told}, and nobody has rejected it",
            )
            holds(
                letter.reason != "limit" or letter.count == limit,
                f"{told}, and the limit is {limit}",
            )
        for offset in visible:
            record = self.of(place, offset)
            holds(
                offset in found or bool(record.said & {ACCEPT, GAP}),
                f"{place}@{offset}: nobody has accepted it, and there is no dead letter",
            )

    def check_states(self, place: SharePlace, states: Mapping[int, tuple[int, int]]) -> None:
        """`states` is what is persisted above the start: what was done is done there, too."""
        for offset, (state, count) in states.items():
            record = self.records.get(place, {}).get(offset)
            holds(
                record is None or record.done is None or state != AVAILABLE,
                f"{place}@{offset}: {record and record.done} finished it, and it is persisted as "
                f"free, with count {count}",
            )
