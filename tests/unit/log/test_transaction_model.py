"""Transactions of several producers in one log, against a model that remembers batch by batch.

The last stable offset, the open transactions and the aborted ones are what the model says, through
crashes, clean stops, truncations, rolls and replication to a second log.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.log.flush import flush

PRODUCERS = st.integers(1, 3)


class Entry(NamedTuple):
    """One batch: data of a producer (0: of nobody), or the end of its transaction."""

    first: int
    last: int
    producer: int
    transactional: bool = False
    commit: bool | None = None


class Txn(NamedTuple):
    producer: int
    first: int
    last: int
    """Of the marker."""
    commit: bool


def ended(entries: list[Entry]) -> tuple[list[Txn], dict[int, int]]:
    """The transactions that have ended, and producer -> first offset of those that have not."""
    done: list[Txn] = []
    open_: dict[int, int] = {}
    for entry in entries:
        if entry.commit is not None:
            if entry.producer in open_:
                first = open_.pop(entry.producer)
                done.append(Txn(entry.producer, first, entry.last, entry.commit))
        elif entry.transactional:
            open_.setdefault(entry.producer, entry.first)
    return done, open_


def transactions_machine(make: Any) -> type[RuleBasedStateMachine]:
    class TransactionsAgainstModel(RuleBasedStateMachine):
        @initialize(segment_bytes=st.integers(300, 1_500))
        def begin(self, segment_bytes: int) -> None:
            self.home = make.home()
            self.numbers = itertools.count()
            self.box = self.new_box(segment_bytes)
            self.follower = self.new_box(segment_bytes)
            self.entries: list[Entry] = []
            self.epochs = dict.fromkeys((1, 2, 3), 0)
            self.sequences = dict.fromkeys((1, 2, 3), 0)
            self.high_watermark = 0
            self.agreed = 0
            """Up to here the follower has what the leader has."""
            self.forgot = 0
            """Markers below this offset may have been in a snapshot: whether they were committed
            is not known after a start.
            """
            self.box.log.update_high_watermark(0)

        def new_box(self, segment_bytes: int) -> Any:
            return make(
                Path(self.home.name) / str(next(self.numbers)),
                segment_bytes=segment_bytes,
                file_delete_delay_ms=0,
                retention_ms=-1,
            )

        def teardown(self) -> None:
            if hasattr(self, "home"):
                self.home.cleanup()

        @property
        def end(self) -> int:
            return self.entries[-1].last + 1 if self.entries else 0

        def note(self, info: Any, producer: int = 0, **more: Any) -> None:
            assert info.first_offset == self.end
            self.entries.append(Entry(info.first_offset, info.last_offset, producer, **more))

        @rule(producer=PRODUCERS, count=st.integers(1, 3))
        def data(self, producer: int, count: int) -> None:
            sequence = self.sequences[producer]
            info = self.box.send(
                producer, sequence, count, self.epochs[producer], transactional=True
            )
            self.sequences[producer] += count
            self.note(info, producer, transactional=True)

        @rule()
        def plain(self) -> None:
            self.note(self.box.append(b"plain"))

        @rule(producer=PRODUCERS, commit=st.booleans(), bump=st.booleans())
        def mark(self, producer: int, commit: bool, bump: bool) -> None:
            if bump:
                self.epochs[producer] += 1
                self.sequences[producer] = 0
            info = self.box.end_txn(producer, commit=commit, epoch=self.epochs[producer])
            self.note(info, producer, transactional=True, commit=commit)

        @rule(to=st.floats(0, 1))
        def replicate(self, to: float) -> None:
            self.high_watermark += int((self.end - self.high_watermark) * to)
            self.box.log.update_high_watermark(self.high_watermark)

        @rule()
        def roll(self) -> None:
            self.box.log.roll()

        @rule()
        def flush(self) -> None:
            flush(self.box.log)

        @rule(how=st.sampled_from(["crash", "crash from 0", "stop"]))
        def restart(self, how: str) -> None:
            if how == "stop":
                self.box.reopen_clean()
            elif how == "crash":
                self.box.crash()
            else:
                self.box.crash(recovery_point=0)
            self.forgot = self.end
            self.box.log.update_high_watermark(self.high_watermark)

        @rule(share=st.floats(0, 1))
        def truncate(self, share: float) -> None:
            target = self.high_watermark + int((self.end - self.high_watermark) * share)
            self.box.log.truncate_to(target)
            self.entries = [e for e in self.entries if e.last < target]
            assert self.box.log.log_end_offset == self.end
            self.high_watermark = min(self.high_watermark, self.end)
            self.box.log.update_high_watermark(self.high_watermark)
            self.forgot = min(self.forgot, self.end)
            self.agreed = min(self.agreed, self.end)
            self.resume()

        def resume(self) -> None:
            """Go on with the epochs and sequences that the cut log knows."""
            for producer in self.epochs:
                found = self.box.log.producers.producers.get(producer)
                self.epochs[producer] = 0 if found is None else max(found.epoch, 0)
                self.sequences[producer] = 0 if found is None else found.last_sequence + 1

        @rule()
        def follow(self) -> None:
            """A second log takes over what it lacks, cut to where it agrees, and is the same."""
            log, other = self.box.log, self.follower.log
            other.truncate_to(self.agreed)
            while other.log_end_offset < log.log_end_offset:
                piece = log.read(other.log_end_offset, 1 << 20, up_to_offset=log.log_end_offset)
                other.append_as_follower(piece.read())
            other.update_high_watermark(self.high_watermark)
            self.agreed = self.end
            assert other.producers.ongoing == log.producers.ongoing
            assert aborted(other) == aborted(log)

        @invariant()
        def open_and_aborted_are_the_models(self) -> None:
            if not hasattr(self, "box"):
                return
            done, open_ = ended(self.entries)
            log = self.box.log
            assert log.producers.ongoing == {f: p for p, f in sorted(open_.items(), key=by_offset)}
            expected = [(t.producer, t.first, t.last) for t in done if not t.commit]
            assert aborted(log) == expected
            for start, stop in ((0, self.high_watermark), (self.high_watermark, self.end)):
                overlapping = [t for t in expected if t[1] < stop and t[2] >= start]
                assert aborted(log, start, stop) == overlapping

        @invariant()
        def the_last_stable_offset_is_the_models(self) -> None:
            if not hasattr(self, "box"):
                return
            done, open_ = ended(self.entries)
            uncommitted = [t for t in done if t.last >= self.high_watermark]
            most = min([self.high_watermark, *open_.values()])
            known = [t.first for t in uncommitted if t.last >= self.forgot]
            every = [t.first for t in uncommitted]
            stable = self.box.log.last_stable_offset
            assert min([most, *every]) <= stable <= min([most, *known])

    return TransactionsAgainstModel


def by_offset(item: tuple[int, int]) -> int:
    return item[1]


def aborted(log: Any, start: int = 0, stop: int | None = None) -> list[tuple[int, int, int]]:
    found = log.aborted_transactions(start, log.log_end_offset if stop is None else stop)
    return [(txn.producer_id, txn.first_offset, txn.last_offset) for txn in found]


def test_transactions_are_what_the_model_says(new_box: Any) -> None:
    make = type(new_box())
    machine = transactions_machine(make).TestCase
    machine.settings = settings(
        max_examples=60,
        stateful_step_count=25,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    machine().runTest()


def test_a_cut_forgets_no_marker_that_waits_to_be_committed(box: Any) -> None:
    box.send(1, 0, transactional=True)
    box.append()
    box.end_txn(1, commit=True)
    box.log.roll()  # the snapshot knows of no open transaction
    box.append()
    box.log.update_high_watermark(2)
    assert box.log.last_stable_offset == 0
    box.log.truncate_to(3)
    assert box.log.last_stable_offset == 0
    box.log.update_high_watermark(3)
    assert box.log.last_stable_offset == 3
