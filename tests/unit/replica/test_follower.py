"""The follower's decisions one by one: append, cut, begin anew, wait."""

from __future__ import annotations

import pytest

from penstock.base.errors import ErrorCode
from penstock.replica.divergence import divergence
from penstock.replica.follower import (
    FIRST_BACKOFF_MS,
    Append,
    AskOffsets,
    AwaitMetadata,
    BackOff,
    Follower,
    StartAnew,
    Step,
    Truncate,
)
from unit.replica.model import Answer, Log


def log_of(*epochs: int) -> Log:
    """A log with one record per epoch named."""
    log = Log()
    log.records = [(epoch, at) for at, epoch in enumerate(epochs)]
    return log


def following(answer: Answer, log: Log, high_watermark: int = 0) -> Step:
    return Follower(2, 7, 1_000).on_answer(answer, log, high_watermark)


def test_an_answer_is_appended() -> None:
    follower = Follower(2, 7, 1_000)
    answer = Answer(high_watermark=4, log_start_offset=1)
    assert follower.on_answer(answer, log_of(1, 1), 2) == Append(4, 1)
    follower.appended(3, 4)
    assert (follower.lag, follower.in_sync) == (1, False)
    follower.appended(4, 4)
    assert follower.in_sync


@pytest.mark.parametrize(
    ("epochs", "diverging", "cut_to"),
    [
        ((1, 1, 1, 3, 3), (1, 2), 2),  # the leader's epoch 1 ended earlier
        ((1, 1, 1, 3, 3), (2, 7), 3),  # epoch 2 is unknown here: 1 is the last that both may have
        ((1, 1, 1, 3, 3), (3, 4), 4),
        ((3, 3, 3), (1, 2), 0),  # everything here is newer than what the leader knows
        ((5, 5, 5), (5, 9), 3),  # never beyond the own end
    ],
)
def test_a_log_that_parts_is_cut(
    epochs: tuple[int, ...], diverging: tuple[int, int], cut_to: int
) -> None:
    answer = Answer(diverging_epoch=diverging[0], diverging_end_offset=diverging[1])
    assert following(answer, log_of(*epochs)) == Truncate(cut_to, loses_committed=False)


def test_a_cut_below_the_watermark_is_said() -> None:
    answer = Answer(diverging_epoch=1, diverging_end_offset=2)
    assert following(answer, log_of(1, 1, 1, 3), 3) == Truncate(2, loses_committed=True)


def test_a_log_outside_of_the_leaders() -> None:
    follower, log = Follower(2, 7, 1_000), log_of(1, 1, 1)
    answer = Answer(ErrorCode.OFFSET_OUT_OF_RANGE)
    assert follower.on_answer(answer, log, 0) == AskOffsets()
    assert follower.on_offsets(0, 2, log, 0) == Truncate(2, loses_committed=False)
    assert follower.on_offsets(0, 2, log, 3) == Truncate(2, loses_committed=True)
    assert follower.on_offsets(8, 20, log, 0) == StartAnew(8)
    # A leader that cannot tell is not asked without a pause.
    refused = ErrorCode.OFFSET_OUT_OF_RANGE
    assert follower.on_offsets(3, 20, log, 0) == BackOff(FIRST_BACKOFF_MS, refused)
    assert follower.on_offsets(3, 20, log, 0) == BackOff(FIRST_BACKOFF_MS * 2, refused)


def test_an_epoch_that_is_over_waits_for_the_metadata() -> None:
    assert following(Answer(ErrorCode.FENCED_LEADER_EPOCH), log_of(1)) == AwaitMetadata()


def test_errors_are_waited_out_longer_and_longer() -> None:
    follower, log = Follower(2, 7, 35), log_of(1)
    error = Answer(ErrorCode.UNKNOWN_LEADER_EPOCH)
    pauses = []
    for _ in range(4):
        step = follower.on_answer(error, log, 0)
        assert isinstance(step, BackOff)
        assert step.code == ErrorCode.UNKNOWN_LEADER_EPOCH
        pauses.append(step.pause_ms)
    assert pauses == [FIRST_BACKOFF_MS, 2 * FIRST_BACKOFF_MS, 35, 35]
    follower.on_answer(Answer(high_watermark=1), log, 0)
    assert follower.on_answer(error, log, 0) == BackOff(FIRST_BACKOFF_MS, error.error_code)


def test_a_leader_that_keeps_nothing_agrees_with_who_has_all_that_was_deleted() -> None:
    empty = log_of()
    assert divergence(empty, 7, 0, 3) is None
    assert divergence(empty, 7, 2, 3) == (3, 0)  # what came after is not the leader's
