"""The checker of the chaos runs: a good history passes, and each check refuses a bad one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chaos.cluster.checker import CHECKS, check
from chaos.cluster.history import (
    Acked,
    Committed,
    CommittedRead,
    Created,
    Described,
    Ended,
    Ending,
    Failed,
    Fault,
    Fetched,
    Given,
    History,
    Initialised,
    Offsets,
    Owned,
    Read,
    Recorder,
    Sent,
    Settled,
    Stable,
    Trouble,
)
from chaos.cluster.replicas import METADATA, compare
from support.batches import batch

P = ("t", 0)
Q = ("out", 0)
LATER = 1_000.0


def sent(number: int, value: str | None = None, producer: str = "a") -> Sent:
    return Sent(number, producer, number, P, value or f"{producer}{number}")


def acked(number: int, offset: int, at: float | None = None, producer: str = "a") -> Acked:
    at = number + 0.5 if at is None else at
    return Acked(number, at, producer, number, P, offset, f"{producer}{number}")


def read(offset: int, value: str, at: float = LATER, reader: str = "r") -> Read:
    return Read(at - 0.1, at, reader, P, offset, value)


def history(*events: Any, final: list[str] | None = None, **fields: Any) -> History:
    """The good history of two messages, changed: `events` are added, `final` is what is stored."""
    recorder = Recorder()
    stored = ["a0", "a1"] if final is None else final
    base = [sent(0), sent(1), acked(0, 0), acked(1, 1), read(0, "a0"), read(1, "a1")]
    for event in [*fields.pop("instead", base), *events]:
        recorder.add(event)
    made = {"topics": frozenset({"t"}), "expected": (P,)} | fields
    return History(recorder.events, {P: list(enumerate(stored))}, **made)


def fault(began: float, healed: float) -> Fault:
    return Fault("kill", (1,), began, healed, healed, (P,))


def given(
    offset: int, at: float, member: str = "m", count: int = 1, value: str | None = None
) -> Given:
    return Given(at - 0.1, at, member, P, offset, f"a{offset}" if value is None else value, count)


def said(offset: int, at: float, kind: str = "accept", member: str = "m") -> tuple[Any, ...]:
    """A member says something, and is answered a second later."""
    return (
        Settled(at, None, member, P, offset, kind),
        Settled(at, at + 1.0, member, P, offset, kind),
    )


def shared(*events: Any) -> History:
    """The good history, and a share group that has finished both messages; `events` are added."""
    return history(
        given(0, 10.0), *said(0, 11.0), given(1, 10.0), *said(1, 11.0, "reject"), *events
    )


def transactions(
    *values: str,
    committed: bool = True,
    ended: bool = True,
    events: tuple[Any, ...] = (),
    more: dict[tuple[str, int], list[str]] | None = None,
    chained: int | None = None,
) -> History:
    """The good history, and a worker `w@1` that asks at 10 to commit `w@1.1` and is told so at 11;
    `values` are what is committed in one partition, and `more` what is in others.
    """
    asked = [
        Initialised(1.0, "w", "w@1"),
        Ending(10.0, "w", "w@1", "w@1.1", True),
        *([Ended(11.0, "w@1.1", committed)] if ended else []),
    ]
    there = {Q: list(values), **(more or {})}
    return history(
        *asked,
        *events,
        committed={p: list(enumerate(of)) for p, of in there.items()},
        chained={} if chained is None else {P: chained},
    )


def seen(value: str, at: float = 12.0) -> CommittedRead:
    return CommittedRead(at - 0.1, at, "rc", Q, 0, value)


ONE, TWO = "w@1.1|2|commit|0", "w@1.1|2|commit|1"
FROM_0, FROM_1 = "w@1.1|2|chain|0@0", "w@1.1|2|chain|0@1"


GOOD = {
    "a transaction": transactions(ONE, TWO, events=(seen(ONE),)),
    "one that nobody was told of": transactions(ended=False),
    "one that was refused": transactions(committed=False),
    "over two partitions": transactions(ONE, more={("out", 1): [TWO]}),
    "a chain": transactions(FROM_0, FROM_1, chained=2),
    "a chain that has not begun": transactions(ended=False, chained=0),
    "a commit that a successor finds": transactions(
        ONE, TWO, events=(Initialised(10.5, "w", "w@2"),)
    ),
    "open for a while": transactions(
        ONE, TWO, events=(Stable(1, 2, Q, 0, 2), Stable(3, 4, Q, 2, 2), Stable(90, 91, Q, 2, 2))
    ),
    "plain": history(),
    "unanswered but stored": history(sent(2), read(2, "a2"), final=["a0", "a1", "a2"]),
    "acknowledged without an offset": history(
        sent(2), acked(2, -1), read(2, "a2"), final=["a0", "a1", "a2"]
    ),
    "unanswered and not stored": history(sent(2)),
    "failed but stored": history(
        Failed(2, 3, "a", P, "a2", "timed out", False),
        read(2, "a2"),
        final=["a0", "a1", "a2"],
    ),
    "two readers": history(read(1, "a1", reader="s"), read(0, "a0", reader="u")),
    "offsets asked for at the same time": history(
        Offsets(10, 11, P, 0, 5), Offsets(10.5, 11.5, P, 0, 4)
    ),
    "a member that hands over": history(
        Owned(1, "g", "m", P, False),
        Owned(2, "g", "m", P, True),
        Owned(3, "g", "n", P, False),
        Committed(4, 5, "g", "n", P, 7),
        Fetched(6, 7, "g", P, 7),
    ),
    "a commit while the partition changes hands": history(
        Owned(1, "g", "m", P, False),
        Owned(4.5, "g", "n", P, False),
        Committed(4, 5, "g", "m", P, 7),
    ),
    "a member that got it back": history(
        Owned(1, "g", "m", P, False),
        Owned(2, "g", "n", P, False),
        Owned(3, "g", "m", P, False),
        Committed(4, 5, "g", "m", P, 7),
    ),
    "repeated under a new epoch": history(
        read(2, "a0"),
        read(3, "a1"),
        final=["a0", "a1", "a0", "a1"],
        writers={P: {0: (5, 0), 1: (5, 0), 2: (5, 1), 3: (5, 1)}},
    ),
    "healed": history(fault(0.0, 0.2)),
    "shared": shared(),
    "shared, released and given again": shared(
        *said(0, 11.0, "release"), given(0, 12.5, "n", 2), *said(0, 13.0, member="n")
    ),
    "shared, given late": shared(given(0, 15.0, "n", 2)),
    "shared, held twice over a fault": history(
        fault(0.0, 0.1),
        given(0, 10.0),
        given(0, 11.0, "n", 2),
        *said(0, 12.0),
        given(1, 10.0),
        *said(1, 11.0),
    ),
}

BAD = {
    "lost": [
        history(final=["a0"]),
        history(acked(2, 9), sent(2)),
        history(acked(2, -1), sent(2)),
    ],
    "unseen": [
        history(sent(2), read(2, "a2", reader="s"), read(0, "a0", reader="s"),
                final=["a0", "a1", "a2"]),
    ],
    "unread": [history(sent(2), final=["a0", "a1", "a2"])],
    "inconsistent offsets": [
        history(read(1, "other", at=LATER + 1, reader="s")),
        history(sent(2), Acked(2, 3, "a", 2, P, 1, "a2")),
    ],
    "duplicates": [
        history(read(2, "a1"), final=["a0", "a1", "a1"]),
        history(read(2, "a1"), final=["a0", "a1", "a1"], writers={P: {1: (5, 0), 2: (5, 0)}}),
    ],
    "order": [
        history(instead=[sent(0), sent(1)], final=["a1", "a0"]),
        history(instead=[sent(0), sent(1)], final=["a1", "a0"],
                writers={P: {0: (5, 1), 1: (5, 1)}}),
    ],
    "unsent": [history(read(2, "x"), final=["a0", "a1", "x"])],
    "zombies": [
        history(Failed(2, 3, "a", P, "a2", "not enough replicas", True), read(2, "a2"),
                final=["a0", "a1", "a2"]),
        history(Failed(2, 3, "a", P, "a2", "not enough replicas", True), read(1, "a2")),
    ],
    "backward polls": [
        history(read(1, "a1", at=LATER + 1)),
        history(read(0, "a0", at=LATER + 1)),
    ],
    "backward high watermark": [
        history(Offsets(10, 11, P, 0, 5), Offsets(12, 13, P, 0, 4)),
        history(Offsets(LATER + 1, LATER + 2, P, 0, 1)),
        history(Offsets(5, 6, P, 0, 1)),
    ],
    "backward log start": [
        history(Offsets(10, 11, P, 2, 5), Offsets(12, 13, P, 1, 5)),
    ],
    "backward commits": [
        history(Committed(1, 2, "g", "m", P, 5), Fetched(3, 4, "g", P, 4)),
        history(Committed(1, 2, "g", "m", P, 5), Fetched(3, 4, "g", P, -1)),
        history(Fetched(1, 2, "g", P, 6), Fetched(3, 4, "g", P, 5)),
    ],
    "two owners": [
        history(Described(1, "g", (("m", P), ("n", P)))),
        history(Owned(1, "g", "m", P, False), Owned(2, "g", "n", P, False),
                Committed(3, 4, "g", "m", P, 7)),
        history(Owned(1, "g", "m", P, False), Owned(2, "g", "n", P, False),
                Committed(3, 4, "g", "m", P, 7), Owned(5, "g", "m", P, True)),
    ],
    "lost topics": [history(Created(1, "gone"))],
    "trouble": [history(Trouble(1, "reader", "its offset is gone"))],
    "aborted read": [
        transactions(ended=False, events=(seen("w@1.1|1|abort|0"),)),
        transactions(ONE, TWO, committed=False),
        transactions(committed=False, events=(seen(ONE),)),
    ],
    "precommitted read": [
        transactions(ONE, TWO, events=(seen(ONE, at=9.0),)),
        transactions(ONE, TWO, events=(seen("w@1.2|1|commit|0"),)),
    ],
    "torn transaction": [
        transactions(ONE),
        transactions(ONE, ONE),
        transactions(ended=False, events=(seen(ONE),)),
    ],
    "lost transaction": [transactions()],
    "repeated in transactions": [transactions(ONE, TWO, TWO)],
    "zombie transaction": [
        transactions(ONE, TWO, events=(Initialised(9.0, "w", "w@2"),)),
    ],
    "chain, exactly once": [
        transactions(FROM_0, FROM_0, FROM_1, chained=2),
        transactions(FROM_0, FROM_1, chained=1),
        transactions(FROM_0, chained=2),
        transactions(FROM_0, FROM_1, "w@1.1|2|chain|0@7", chained=2),
    ],
    "chain, order": [transactions(FROM_1, FROM_0, chained=2)],
    "last stable offset": [
        history(Stable(1, 2, Q, 3, 2)),
        history(Stable(1, 2, Q, 3, 3), Stable(3, 4, Q, 2, 3)),
    ],
    "stuck last stable offset": [
        history(Stable(1, 2, Q, 0, 2), Stable(90, 91, Q, 0, 2)),
        history(Stable(1, 2, Q, 0, 2), Stable(90, 91, Q, 1, 2), Stable(92, 93, Q, 2, 2)),
        history(fault(1.0, 2.0), Stable(1, 2, Q, 0, 2), Stable(90, 91, Q, 0, 2)),
    ],
    "lost to a share group": [
        history(given(0, 10.0), *said(0, 11.0)),
        history(given(0, 10.0), *said(0, 11.0), given(1, 10.0), *said(1, 11.0, "release")),
    ],
    "unlike in a share group": [shared(given(0, 11.5, value="b0"))],
    "finished and given again": [
        shared(given(0, 30.0, "n", 2)),
        shared(given(1, 30.0, "n", 2)),
    ],
    "given too often": [shared(given(0, 11.5, count=11))],
    "held by two members": [
        shared(given(0, 10.5, "n", 2)),
        shared(given(1, 10.5, count=2)),
    ],
    "dead after healing": [
        history(fault(2.0, 3.0)),
        history(sent(2), acked(2, 2, at=60.0), read(2, "a2"), fault(2.0, 3.0),
                final=["a0", "a1", "a2"]),
        history(fault(0.0, 0.1), expected=(P, ("t", 1))),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_what_may_be(name: str) -> None:
    assert check(GOOD[name]) == []


@pytest.mark.parametrize("name", CHECKS)
def test_what_may_not_be(name: str) -> None:
    for bad in BAD[name]:
        assert name in {violation.check for violation in check(bad)}


def copy_of(root: Path, node_id: int, *batches: bytes, folder: str = "t-0", start: int = 0) -> Path:
    place = root / str(node_id) / folder
    place.mkdir(parents=True)
    (place / f"{start:020}.log").write_bytes(b"".join(batches))
    return root / str(node_id)


def at(offset: int, value: bytes = b"v", epoch: int = 0) -> bytes:
    return batch([value], base_offset=offset, partition_leader_epoch=epoch)


def test_equal_copies(tmp_path: Path) -> None:
    """Segments that begin elsewhere and what lies above the high watermark make no difference."""
    one = copy_of(tmp_path, 1, at(0), at(1), at(2, b"only here"))
    two = copy_of(tmp_path, 2, at(0))
    (two / "t-0" / f"{1:020}.log").write_bytes(at(1) + at(2)[:-1])
    assert compare({1: one, 2: two}, {P: 2}) == []


@pytest.mark.parametrize(
    "other",
    [[at(0)], [at(0), at(1, b"w")], [at(0), at(1, epoch=1)], [at(0), at(2)], []],
    ids=["short", "other value", "other epoch", "hole", "empty"],
)
def test_copies_that_differ(tmp_path: Path, other: list[bytes]) -> None:
    one = copy_of(tmp_path, 1, at(0), at(1))
    two = copy_of(tmp_path, 2, *other)
    assert compare({1: one, 2: two}, {P: 2}) != []


def test_a_partition_that_nobody_has(tmp_path: Path) -> None:
    assert compare({1: copy_of(tmp_path, 1)}, {("other", 0): 0}) != []


def test_metadata_may_be_short_but_not_different(tmp_path: Path) -> None:
    name = f"{METADATA[0]}-0"
    dirs = {1: copy_of(tmp_path, 1, at(0), at(1), folder=name)}
    dirs[2] = copy_of(tmp_path, 2, at(0), folder=name)
    assert compare(dirs, {METADATA: 2}) == []
    dirs[3] = copy_of(tmp_path, 3, at(0, b"w"), folder=name)
    assert compare(dirs, {METADATA: 2}) != []
