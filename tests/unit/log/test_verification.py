"""Guards of transactional appends, and which markers a log takes, by transaction version."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.base.errors import ApiError, ErrorCode
from penstock.log.log import Batch
from penstock.log.producer_state import ProducerStateManager
from penstock.log.verification import VerificationGuard
from penstock.wire.records import Record, build_batch, parse_header

EPOCH_MAX = 32_767


def code_of(call: Any, *args: Any, **how: Any) -> ErrorCode | None:
    try:
        call(*args, **how)
    except ApiError as e:
        return e.code
    return None


def begin(
    producers: ProducerStateManager, sequence: int = 0, *, epoch: int = 0, zero: bool = False
) -> VerificationGuard | None:
    return producers.begin_verification(1, epoch, sequence, 1_000, starts_at_zero=zero)


def test_an_append_is_let_in_under_its_guard_and_nothing_else(box: Any) -> None:
    producers = box.log.producers
    assert code_of(producers.check_verified, 1, 0, None) is ErrorCode.INVALID_TXN_STATE
    guard = begin(producers)
    assert guard is not None
    assert code_of(producers.check_verified, 1, 0, None) is ErrorCode.INVALID_TXN_STATE
    assert code_of(producers.check_verified, 2, 0, guard) is ErrorCode.INVALID_TXN_STATE
    other = VerificationGuard(0, 0, 1_000, starts_at_zero=False)
    assert code_of(producers.check_verified, 1, 0, other) is ErrorCode.INVALID_TXN_STATE
    assert code_of(producers.check_verified, 1, 0, guard) is None


def test_the_first_append_takes_the_place_of_the_guard(box: Any) -> None:
    producers = box.log.producers
    guard = begin(producers)
    box.send(1, 0, transactional=True)
    assert not producers.guards
    assert begin(producers) is None, "what is open needs no verification"
    assert code_of(producers.check_verified, 1, 0, None) is None
    box.end_txn(1, commit=True)
    assert code_of(producers.check_verified, 1, 0, guard) is ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_between_verification_and_append_gives_the_guard_up(
    box: Any, commit: bool
) -> None:
    producers = box.log.producers
    guard = begin(producers)
    box.end_txn(1, commit=commit)
    assert code_of(producers.check_verified, 1, 0, guard) is ErrorCode.INVALID_TXN_STATE
    # The next transaction is verified by itself: the old answer does not count for it.
    assert begin(producers) is not guard
    assert code_of(producers.check_verified, 1, 0, guard) is ErrorCode.INVALID_TXN_STATE


def test_an_append_shows_its_guard_unless_it_is_a_repetition(box: Any) -> None:
    def stage(sequence: int, guard: VerificationGuard | None) -> bool:
        fields = {"producer_id": 1, "producer_epoch": 0, "base_sequence": sequence}
        data = build_batch([Record(0, 1_000, None, b"v")], transactional=True, **fields)
        batches = [Batch(parse_header(data), data)]
        info = box.log.stage(batches, 0, box.clock.ms, guard=guard)
        box.log.write_staged()
        return bool(info.duplicate)

    assert code_of(stage, 0, None) is ErrorCode.INVALID_TXN_STATE
    guard = begin(box.log.producers)
    assert not stage(0, guard)
    assert not stage(1, None), "the transaction is open"
    box.end_txn(1, commit=True)
    assert stage(1, None)
    assert code_of(stage, 2, None) is ErrorCode.INVALID_TXN_STATE
    assert code_of(stage, 2, guard) is ErrorCode.INVALID_TXN_STATE
    assert code_of(stage, 7, None) is ErrorCode.INVALID_TXN_STATE, "before its sequence is judged"
    assert box.log.log_end_offset == 3


def test_a_marker_of_another_producer_leaves_the_guard(box: Any) -> None:
    guard = begin(box.log.producers)
    box.end_txn(2, commit=True)
    assert code_of(box.log.producers.check_verified, 1, 0, guard) is None


def test_a_new_epoch_gives_the_guard_up_and_an_old_one_does_not(box: Any) -> None:
    producers = box.log.producers
    old = begin(producers, epoch=3)
    assert begin(producers, epoch=3) is old
    assert begin(producers, epoch=2) is old
    new = begin(producers, epoch=4)
    assert new is not old
    assert code_of(producers.check_verified, 1, 3, old) is ErrorCode.INVALID_TXN_STATE
    assert code_of(producers.check_verified, 1, 4, new) is None


def test_an_open_transaction_of_an_older_epoch_does_not_speak_for_a_newer_one(box: Any) -> None:
    box.send(1, 0, transactional=True)
    producers = box.log.producers
    assert begin(producers, epoch=1) is not None
    assert code_of(producers.check_verified, 1, 1, None) is ErrorCode.INVALID_TXN_STATE


def test_an_older_epoch_is_not_verified_at_all(box: Any) -> None:
    box.send(1, 0, epoch=5)
    producers = box.log.producers
    assert code_of(begin, producers, epoch=4) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert code_of(producers.check_verified, 1, 4, None) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert code_of(producers.check_coordinator_append, 1, 4) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert code_of(producers.check_coordinator_append, 1, 5) is None
    assert code_of(producers.check_coordinator_append, 2, 0) is None


def test_a_later_batch_does_not_overtake_one_that_is_still_verified(box: Any) -> None:
    producers = box.log.producers
    begin(producers, 7)
    begin(producers, 4)
    begin(producers, 9)
    assert code_of(box.send, 1, 7, transactional=True) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert box.log.log_end_offset == 0
    assert box.send(1, 4, 3, transactional=True).first_offset == 0
    assert box.send(1, 7, transactional=True).first_offset == 3


def test_what_comes_late_from_the_last_transaction_keeps_nothing_out_of_the_next(box: Any) -> None:
    """In version 1 the epoch stays: a repeated batch is verified as if it began the transaction."""
    producers = box.log.producers
    for sequence in range(7):
        box.send(1, sequence, transactional=True)
    box.end_txn(1, commit=True)
    begin(producers, 0)  # older than the batches that are remembered
    begin(producers, 6)
    assert box.send(1, 6, transactional=True).duplicate
    assert code_of(box.send, 1, 0, transactional=True) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    begin(producers, 7)
    assert box.send(1, 7, transactional=True).first_offset == 8


def test_where_each_transaction_has_its_epoch_it_begins_with_sequence_0(box: Any) -> None:
    producers = box.log.producers
    begin(producers, 3, zero=True)
    assert code_of(box.send, 1, 3, transactional=True) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    begin(producers, 0, zero=True)
    assert box.send(1, 0, transactional=True).first_offset == 0
    box.end_txn(1, commit=True, epoch=1)
    begin(producers, 1, epoch=1, zero=True)
    sent = {"epoch": 1, "transactional": True}
    assert code_of(box.send, 1, 1, **sent) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    begin(producers, 0, epoch=1, zero=True)
    assert box.send(1, 0, **sent).first_offset == 2


def test_guards_end_with_time_with_a_cut_and_with_the_process(box: Any) -> None:
    box.append()
    begin(box.log.producers)
    box.log.producers.remove_expired(1_000 + box.log.producers.expiration_ms - 1)
    assert box.log.producers.guards
    box.log.producers.remove_expired(1_000 + box.log.producers.expiration_ms)
    assert not box.log.producers.guards
    begin(box.log.producers)
    box.log.truncate_to(0)
    assert not box.log.producers.guards
    begin(box.log.producers)
    assert not box.crash().producers.guards


def test_a_batch_that_was_refused_leaves_its_guard(box: Any) -> None:
    producers = box.log.producers
    box.send(1, 0, 3)
    guard = begin(producers, 8)
    assert code_of(box.send, 1, 8, transactional=True) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producers.guards == {1: guard}


@pytest.mark.parametrize(
    ("version", "epoch", "coordinator", "expected"),
    [
        (0, 2, 5, None),
        (1, 2, 5, None),
        (1, 3, 5, None),
        (1, 1, 5, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, 1, 5, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, 2, 5, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, 3, 5, None),
        (2, EPOCH_MAX, 5, None),
        (1, 2, 4, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        (2, 3, 4, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        (2, 3, 6, None),
    ],
)
def test_the_marker_of_an_open_transaction(
    box: Any, version: int, epoch: int, coordinator: int, expected: ErrorCode | None
) -> None:
    box.end_txn(1, commit=True, coordinator_epoch=5)
    box.send(1, 0, epoch=2, transactional=True)
    check = box.log.producers.check_marker
    before = dict(box.log.producers.producers)
    assert code_of(check, 1, epoch, coordinator, version) is expected
    assert box.log.producers.producers == before, "a question changes nothing"


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_marker_may_come_again(box: Any, version: int) -> None:
    check = box.log.producers.check_marker
    assert code_of(check, 1, 0, 0, version) is None, "of a producer that is not known"
    box.send(1, 0, transactional=True)
    box.end_txn(1, commit=False, epoch=1)
    assert code_of(check, 1, 1, 0, version) is None
    box.end_txn(1, commit=False, epoch=1)
    assert len(box.log.aborted_transactions(0, box.log.log_end_offset)) == 1


def test_the_last_epoch_ends_its_own_transaction(box: Any) -> None:
    box.send(1, 0, epoch=EPOCH_MAX, transactional=True)
    assert code_of(box.log.producers.check_marker, 1, EPOCH_MAX, 0, 2) is None
