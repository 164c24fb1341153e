"""EndTxn in both versions of transactions: decisions, repetitions, epochs, markers."""

from __future__ import annotations

import pytest

from penstock.base.errors import ErrorCode
from penstock.coordinator.transaction.metadata import EPOCH_MAX, LAST_EPOCH_OF_CLIENTS
from unit.coordinator.transaction.rig import Rig

NONE = ErrorCode.NONE
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED
INVALID = ErrorCode.INVALID_TXN_STATE
NO_PRODUCER = (-1, -1)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", range(6))
def test_a_transaction_ends(version: int, commit: bool) -> None:
    rig = Rig()
    producer = rig.opened("a-0", "b-1")
    code, producer_id, epoch = rig.end(producer, commit=commit, version=version)
    assert code is NONE
    bumped = 1 if version >= 5 else 0
    if version >= 5:
        assert (producer_id, epoch) == (producer[0], 1)
    assert rig.state == ("PrepareCommit" if commit else "PrepareAbort")
    [action] = rig.actions
    assert (action.producer_id, action.producer_epoch, action.commit) == (
        producer[0],
        bumped,
        commit,
    )
    assert action.transaction_version == (2 if version >= 5 else 0)
    assert [str(p) for p in action.partitions] == ["a-0", "b-1"]
    assert not rig.timers
    rig.write_markers()
    assert rig.state == ("CompleteCommit" if commit else "CompleteAbort")
    assert rig.shard.transactions["t"].producer_epoch == bumped


def test_markers_come_after_the_decision_in_one_step() -> None:
    rig = Rig()
    producer = rig.opened()
    written = len(rig.log)
    rig.end(producer)
    assert rig.actions
    assert len(rig.log) == written + 1


# -- version 1 ---------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
def test_a_repetition_of_version_1(commit: bool) -> None:
    rig = Rig()
    producer = rig.opened()
    rig.end(producer, commit=commit, version=4)
    for again in (True, False):
        assert rig.end(producer, commit=again, version=4)[0] is CONCURRENT
    rig.write_markers()
    assert rig.end(producer, commit=commit, version=4)[0] is NONE
    assert rig.end(producer, commit=not commit, version=4)[0] is INVALID


def test_nothing_to_end_in_version_1() -> None:
    rig = Rig()
    producer = rig.started()
    for commit in (True, False):
        assert rig.end(producer, commit=commit, version=4)[0] is INVALID


@pytest.mark.parametrize("version", range(6))
def test_others_are_refused(version: int) -> None:
    rig = Rig()
    old = rig.started()
    producer = rig.opened()
    fenced = ErrorCode.INVALID_PRODUCER_EPOCH if version < 2 else FENCED
    assert rig.end(old, version=version) == (fenced, *NO_PRODUCER)
    assert rig.end((producer[0], 9), version=version)[0] is fenced
    assert rig.end((producer[0] + 1, 0), version=version)[0] is MAPPING
    assert rig.end(producer, id_="other", version=version)[0] is MAPPING
    assert rig.end(producer, id_="", version=version)[0] is ErrorCode.INVALID_REQUEST
    assert rig.state == "Ongoing"


# -- version 2 ---------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
def test_a_repetition_of_version_2(commit: bool) -> None:
    rig = Rig()
    producer = rig.opened()
    first = rig.end(producer, commit=commit)
    for who in (producer, (producer[0], 1), (producer[0], 7), (99, 0)):
        assert rig.end(who, commit=commit) == (CONCURRENT, *NO_PRODUCER)
    rig.write_markers()
    assert rig.end(producer, commit=commit) == first
    assert rig.end(producer, commit=not commit) == (INVALID, *NO_PRODUCER)


def test_a_late_repetition_does_not_touch_the_next_transaction() -> None:
    rig = Rig()
    producer = rig.opened()
    _, *after = rig.end(producer)
    rig.write_markers()
    assert rig.add((after[0], after[1]), "a-0", version=5) == [NONE]
    for commit in (True, False):
        assert rig.end(producer, commit=commit) == (FENCED, *NO_PRODUCER)
    assert rig.state == "Ongoing"
    _, *after = rig.end((after[0], after[1]))
    assert after == [producer[0], 2]


@pytest.mark.parametrize("commit", [True, False])
def test_the_epoch_of_an_owner_of_version_1_is_not_given_to_the_one_before(commit: bool) -> None:
    rig = Rig()
    zombie = rig.started()
    owner = rig.opened()
    rig.end(owner, commit=commit, version=4)
    rig.write_markers()
    assert rig.end(zombie, commit=commit) == (FENCED, *NO_PRODUCER)


@pytest.mark.parametrize("ended_before", [None, True, False])
def test_an_abort_of_what_has_not_begun(ended_before: bool | None) -> None:
    rig = Rig()
    producer_id, epoch = rig.started()
    if ended_before is not None:
        rig.add((producer_id, epoch), "a-0", version=5)
        _, producer_id, epoch = rig.end((producer_id, epoch), commit=ended_before)
        rig.write_markers()
    assert rig.end((producer_id, epoch), commit=True)[0] is INVALID
    rig.now = 70
    written = len(rig.log)
    assert rig.end((producer_id, epoch), commit=False) == (NONE, producer_id, epoch + 1)
    assert rig.state == "CompleteAbort"
    assert len(rig.log) == written + 2
    assert not rig.actions
    assert rig.shard.transactions["t"].start_ms == 70
    # Asked again: the same answer, and nothing more is written.
    assert rig.end((producer_id, epoch), commit=False) == (NONE, producer_id, epoch + 1)
    assert len(rig.log) == written + 2


def test_an_open_transaction_without_partitions_ends_at_once() -> None:
    rig = Rig()
    producer = rig.started()
    rig.add(producer)
    assert rig.state == "Ongoing"
    assert rig.end(producer)[0] is NONE
    assert rig.state == "CompleteCommit"
    assert not rig.actions


@pytest.mark.parametrize("crash", [False, True])
def test_epochs_that_are_used_up(crash: bool) -> None:
    rig = Rig()
    rig.started()
    last = rig.set_epoch(LAST_EPOCH_OF_CLIENTS)
    rig.add(last, "a-0", version=5)
    answer = rig.end(last)
    assert answer == (NONE, last[0] + 1, 0)
    if crash:
        rig.crash()
    assert (rig.actions[0].producer_id, rig.actions[0].producer_epoch) == (last[0], EPOCH_MAX)
    assert rig.end(last) == (CONCURRENT, *NO_PRODUCER)
    rig.write_markers()
    assert rig.end(last) == answer
    assert rig.end(last, commit=False) == (INVALID, *NO_PRODUCER)
    assert rig.end((last[0], 5)) == (MAPPING, *NO_PRODUCER)
    assert rig.add((last[0] + 1, 0), "a-0", version=5) == [NONE]
    # The next transaction is open: a late repetition must not end it.
    assert rig.end(last)[0] is not NONE
    assert rig.state == "Ongoing"


def test_used_up_and_no_producer_id_is_to_be_had() -> None:
    rig = Rig()
    rig.started()
    last = rig.set_epoch(LAST_EPOCH_OF_CLIENTS)
    rig.add(last, "a-0", version=5)
    rig.out_of_ids = True
    assert rig.end(last) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, *NO_PRODUCER)
    assert rig.state == "Ongoing"
    assert rig.timers
    rig.out_of_ids = False
    assert rig.end(last)[0] is NONE


def test_an_epoch_that_nobody_was_given() -> None:
    rig = Rig(transaction_version=1)
    made_up = rig.fenced_at_the_last_epoch()
    assert made_up[1] == EPOCH_MAX
    assert rig.end(made_up, commit=False)[0] is FENCED


# -- markers -----------------------------------------------------------------------------------


def test_markers_of_another_time_mean_nothing() -> None:
    rig = Rig()
    producer = rig.opened()
    assert not rig.shard.markers_written("t", *producer, rig.now)
    rig.end(producer)
    assert not rig.shard.markers_written("t", *producer, rig.now)
    assert not rig.shard.markers_written("other", producer[0], 1, rig.now)
    assert rig.state == "PrepareCommit"
    rig.write_markers()
    assert not rig.shard.markers_written("t", producer[0], 1, rig.now)


@pytest.mark.parametrize("commit", [True, False])
def test_markers_go_on_after_a_fail_over(commit: bool) -> None:
    rig = Rig()
    producer = rig.opened("a-0", "b-0")
    rig.end(producer, commit=commit)
    [before] = rig.actions
    rig.crash()
    [after] = rig.actions
    assert after == before._replace(coordinator_epoch=1)
    rig.write_markers()
    assert rig.state == ("CompleteCommit" if commit else "CompleteAbort")
