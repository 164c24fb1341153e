"""The checks of transactions can fail: a good history passes, and each bad one is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .checks import Violation
from .txn_history import Chained, Transaction, TxnHistory
from .txn_logs import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    Aborted,
    Data,
    Marker,
    State,
    check_agreement,
    check_index,
    check_log,
)

A, B = ("u", 0), ("u", 1)
ID = "w"


def written(history: TxnHistory, name: str = "w#0.1", at: float = 1.0) -> Transaction:
    """A transaction with one value in each of two partitions."""
    if ID not in history.given:
        history.new_producer(ID, 0.0)
    transaction = history.begin(name, ID, len(history.given[ID]) - 1)
    for place in (A, B):
        value = f"{name}.{place[1]}".encode()
        history.sending(transaction, value, at)
        history.wrote(transaction, value, place)
    return transaction


def ended(history: TxnHistory, commit: bool, answer: bool | None) -> Transaction:
    transaction = written(history)
    history.ending(transaction, commit, 2.0)
    history.ended(transaction, answer)
    return transaction


def visible(*names: str) -> dict[tuple[str, int], list[bytes]]:
    return {place: [f"{name}.{place[1]}".encode() for name in names] for place in (A, B)}


@pytest.mark.parametrize(
    ("commit", "answer", "names"),
    [
        (True, True, ["w#0.1"]),
        (False, False, []),
        (True, False, []),
        (True, None, ["w#0.1"]),
        (True, None, []),
    ],
)
def test_what_may_be(commit: bool, answer: bool | None, names: list[str]) -> None:
    history = TxnHistory()
    ended(history, commit, answer)
    for name in names:
        history.read_committed(f"{name}.0".encode(), "r")
    history.check_complete(visible(*names))


def read_open(history: TxnHistory) -> None:
    written(history)
    history.read_committed(b"w#0.1.0", "r")


def read_aborted(history: TxnHistory) -> None:
    ended(history, commit=False, answer=False)
    history.read_committed(b"w#0.1.0", "r")


def read_refused(history: TxnHistory) -> None:
    ended(history, commit=True, answer=False)
    history.read_committed(b"w#0.1.0", "r")


def refused_after_it_was_read(history: TxnHistory) -> None:
    transaction = written(history)
    history.ending(transaction, True, 2.0)
    history.read_committed(b"w#0.1.0", "r")
    history.ended(transaction, False)


def torn(history: TxnHistory) -> None:
    ended(history, commit=True, answer=None)
    history.check_complete({A: [b"w#0.1.0"], B: []})


def lost(history: TxnHistory) -> None:
    ended(history, commit=True, answer=True)
    history.check_complete(visible())


def read_and_gone(history: TxnHistory) -> None:
    ended(history, commit=True, answer=None)
    history.read_committed(b"w#0.1.0", "r")
    history.check_complete(visible())


def aborted_and_there(history: TxnHistory) -> None:
    ended(history, commit=False, answer=False)
    history.check_complete(visible("w#0.1"))


def twice(history: TxnHistory) -> None:
    ended(history, commit=True, answer=True)
    history.check_complete(visible("w#0.1", "w#0.1"))


def out_of_order(history: TxnHistory) -> None:
    transaction = written(history)
    history.sending(transaction, b"next", 1.5)
    history.wrote(transaction, b"next", A)
    history.ending(transaction, True, 2.0)
    history.ended(transaction, True)
    history.check_complete({A: [b"next", b"w#0.1.0"], B: [b"w#0.1.1"]})


def zombie_writes(history: TxnHistory) -> None:
    transaction = written(history)
    history.new_producer(ID, 2.0)
    history.sending(transaction, b"late", 2.5)
    history.wrote(transaction, b"late", A)


def zombie_commits(history: TxnHistory) -> None:
    transaction = written(history)
    history.new_producer(ID, 2.0)
    history.ending(transaction, True, 2.5)
    history.ended(transaction, True)


def zombie_is_there(history: TxnHistory) -> None:
    transaction = written(history)
    history.new_producer(ID, 2.0)
    history.ending(transaction, True, 2.5)
    history.ended(transaction, None)
    history.check_complete(visible("w#0.1"))


def stable_above_watermark(history: TxnHistory) -> None:
    history.told_stable(A, 0, 5, 4, -1)


def stable_goes_back(history: TxnHistory) -> None:
    history.told_stable(A, 0, 5, 6, -1)
    history.told_stable(A, 0, 4, 6, history.stable("u", 0, 0))


def of_nobody(history: TxnHistory) -> None:
    history.check_complete({A: [b"?"]})


BAD: dict[Callable[[TxnHistory], None], str] = {
    read_open: "precommitted read",
    read_aborted: "aborted read",
    read_refused: "aborted read",
    refused_after_it_was_read: "had been read",
    torn: "torn transaction",
    lost: "lost",
    read_and_gone: "was read and is gone",
    aborted_and_there: "aborted read",
    twice: "and again in",
    out_of_order: "out of order",
    zombie_writes: "newer producer",
    zombie_commits: "newer producer",
    zombie_is_there: "a zombie was not fenced",
    stable_above_watermark: "above high watermark",
    stable_goes_back: "back to 4",
    of_nobody: "by nobody",
}


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.__name__)
def test_what_may_not_be(bad: Callable[[TxnHistory], None]) -> None:
    with pytest.raises(Violation, match=BAD[bad]):
        bad(TxnHistory())


SOURCE = {0: [(0, b"k"), (1, b"k"), (2, b"m")]}


@pytest.mark.parametrize(
    ("made", "committed", "wrong"),
    [
        ([0, 1, 2], 3, None),
        ([0, 1], 2, None),
        ([], 0, None),
        ([0, 1], 3, "nothing was made of 2"),
        ([0, 1, 2], 2, "torn between data and offsets"),
        ([1, 0, 2], 3, "comes after input 1"),
        ([0, 1, 1, 2], 3, "gave"),
    ],
)
def test_a_chain(made: list[int], committed: int, wrong: str | None) -> None:
    history = TxnHistory()
    values = []
    for number, offset in enumerate(made):
        value = f"{number}".encode()
        history.chained[value] = Chained(0, offset, dict(SOURCE[0])[offset])
        values.append(value)
    if wrong is None:
        history.check_chain(SOURCE, {0: committed}, {A: values})
    else:
        with pytest.raises(Violation, match=wrong):
            history.check_chain(SOURCE, {0: committed}, {A: values})


GOOD_LOG: list[Data | Marker] = [
    Data(0, 1, 7, 0),
    Data(2, 2, 8, 3),
    Marker(3, 7, 1, False),
    Marker(4, 8, 3, True),
]


def test_a_good_log() -> None:
    assert check_log("u-0", GOOD_LOG) == [Aborted(7, 0, 3)]
    check_index("u-0", [Aborted(7, 0, 3)], {1: [Aborted(7, 0, 3)]})


@pytest.mark.parametrize(
    "log",
    [
        GOOD_LOG[:3],
        [*GOOD_LOG, Data(5, 5, 7, 0), Marker(6, 7, 1, True)],
        [Data(0, 1, 7, 0), Data(2, 2, 7, 1), Marker(3, 7, 1, True)],
    ],
    ids=["open", "an old epoch", "an epoch within a transaction"],
)
def test_a_bad_log(log: list[Data | Marker]) -> None:
    with pytest.raises(Violation):
        check_log("u-0", log)


@pytest.mark.parametrize("index", [[], [Aborted(7, 0, 3), Aborted(8, 2, 4)]])
def test_a_bad_index(index: list[Aborted]) -> None:
    with pytest.raises(Violation, match="index of aborted transactions of node 2"):
        check_index("u-0", [Aborted(7, 0, 3)], {1: [Aborted(7, 0, 3)], 2: index})


def states(*statuses: int) -> list[State]:
    return [State(ID, 7, 1, status, (A,)) for status in statuses]


COMMIT, ABORT = Marker(1, 7, 1, True), Marker(1, 7, 1, False)
SOME = Data(0, 0, 7, 1)
C, A_ = (PREPARE_COMMIT, COMPLETE_COMMIT), (PREPARE_ABORT, COMPLETE_ABORT)


@pytest.mark.parametrize(
    ("statuses", "log"),
    [
        (C, [SOME, COMMIT]),
        (C, [SOME, COMMIT, COMMIT]),
        ((*C, *A_), [SOME, COMMIT, COMMIT, SOME, ABORT]),
        ((*C, *C), [SOME, COMMIT, COMMIT]),
    ],
    ids=["told", "told twice", "two", "the same twice"],
)
def test_partitions_that_agree(statuses: tuple[int, ...], log: list[Data | Marker]) -> None:
    check_agreement(states(*statuses), {A: log})


@pytest.mark.parametrize(
    ("statuses", "log"),
    [
        (C, [SOME, ABORT]),
        (C, [SOME]),
        ((), [SOME, COMMIT]),
        ((*C, *A_), [SOME, COMMIT, SOME, COMMIT, ABORT]),
        ((PREPARE_COMMIT,), [SOME, COMMIT]),
        ((PREPARE_COMMIT, COMPLETE_ABORT), [SOME, COMMIT]),
    ],
    ids=["the contrary", "nothing", "undecided", "a late repetition", "never over", "turned"],
)
def test_partitions_that_do_not_agree(statuses: tuple[int, ...], log: list[Data | Marker]) -> None:
    with pytest.raises(Violation):
        check_agreement(states(*statuses), {A: log})
