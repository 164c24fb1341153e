"""The mirror of the log against a list of epochs, one per record."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import InvariantBroken
from penstock.raft.epochs import LogMirror
from penstock.raft.types import OffsetAndEpoch

EMPTY = OffsetAndEpoch(0, -1)
RISING = st.lists(st.integers(1, 6), max_size=20).map(sorted)


def mirror(epochs: list[int]) -> LogMirror:
    log = LogMirror(EMPTY, 0, (), None)
    for offset, epoch in enumerate(epochs):
        log.appended(epoch, offset, offset)
    log.flushed_offset = log.end_offset
    return log


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Two logs as a quorum can leave them: each epoch has one leader, which goes on from a part of
    some older log; replicas keep a part of what they had.
    """
    made: list[list[int]] = [[]]
    for epoch in range(1, draw(st.integers(2, 6))):
        parent = draw(st.sampled_from(made))
        kept = parent[: draw(st.integers(0, len(parent)))]
        made.append(kept + [epoch] * draw(st.integers(1, 4)))
    a, b = draw(st.sampled_from(made)), draw(st.sampled_from(made))
    return a[: draw(st.integers(0, len(a)))], b[: draw(st.integers(0, len(b)))]


def common(a: list[int], b: list[int]) -> int:
    """How long two logs are the same; one leader per epoch: equal epochs are equal records."""
    length = 0
    while length < min(len(a), len(b)) and a[length] == b[length]:
        length += 1
    return length


@given(logs())
def test_a_follower_is_cut_until_its_log_is_a_prefix(pair: tuple[list[int], list[int]]) -> None:
    leader, mine = pair
    ours, theirs = mirror(leader), mirror(mine)
    shared = common(leader, mine)
    for _ in range(30):
        last = max(theirs.epoch_at(theirs.end_offset - 1), 0)
        diverging = ours.divergence(theirs.end_offset, last)
        if diverging is None:
            break
        cut = min(theirs.end_of(diverging.epoch).offset, diverging.offset, theirs.end_offset)
        assert shared <= cut < theirs.end_offset
        theirs.truncate(cut)
    assert theirs.end_offset == shared


@given(RISING.filter(bool), st.data())
def test_a_trimmed_log_knows_the_same_of_what_it_has(
    epochs: list[int], data: st.DataObject
) -> None:
    start = data.draw(st.integers(1, len(epochs)))
    log = mirror(epochs)
    log.snapshot = OffsetAndEpoch(start, epochs[start - 1])
    log.trim(start)
    assert log.end == (len(epochs), epochs[-1])
    assert [log.epoch_at(o) for o in range(start - 1, len(epochs))] == epochs[start - 1 :]
    assert log.needs_snapshot(start - 1, epochs[start - 1])
    assert not log.needs_snapshot(start, epochs[start - 1])
    assert log.divergence(start, epochs[start - 1]) is None


@given(RISING, RISING)
def test_the_later_epoch_then_the_longer_log_is_more_complete(a: list[int], b: list[int]) -> None:
    newer = (b[-1] if b else -1, len(b)) >= (a[-1] if a else -1, len(a))
    assert mirror(a).up_to_date(mirror(b).end) == newer


def test_a_snapshot_takes_the_place_of_the_log() -> None:
    log = mirror([1, 1, 2])
    log.reset_to(OffsetAndEpoch(9, 4))
    assert (log.start_offset, log.flushed_offset, log.end) == (9, 9, (9, 4))
    log.appended(4, 9, 9)
    assert log.end == (10, 4)


def test_the_rules_are_held() -> None:
    log = mirror([1, 3])
    with pytest.raises(InvariantBroken, match="does not follow"):
        log.appended(2, 2, 2)
    with pytest.raises(InvariantBroken, match="does not follow"):
        log.appended(3, 5, 5)
    with pytest.raises(InvariantBroken, match="cannot be cut"):
        log.truncate(3)
    with pytest.raises(InvariantBroken, match="beyond its latest snapshot"):
        log.trim(1)
