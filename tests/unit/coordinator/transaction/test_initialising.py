"""InitProducerId with a transactional id: epochs, fencing, and who is refused."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from penstock.coordinator.transaction.metadata import EPOCH_MAX, LAST_EPOCH_OF_CLIENTS
from unit.coordinator.transaction.rig import FIRST_PRODUCER_ID, Rig

NONE, FENCED = ErrorCode.NONE, ErrorCode.PRODUCER_FENCED
NO_PRODUCER = (-1, -1)


def named(producer: tuple[int, int]) -> dict[str, Any]:
    return {"producer_id": producer[0], "producer_epoch": producer[1]}


@pytest.mark.parametrize("version", range(6))
def test_a_new_transactional_id_and_the_epochs_after_it(version: int) -> None:
    rig = Rig()
    assert rig.init(version=version) == (NONE, FIRST_PRODUCER_ID, 0)
    assert rig.init(version=version) == (NONE, FIRST_PRODUCER_ID, 1)
    assert rig.init("u", version=version) == (NONE, FIRST_PRODUCER_ID + 1, 0)


@pytest.mark.parametrize(
    ("parts", "code"),
    [
        ({"id_": ""}, ErrorCode.INVALID_REQUEST),
        ({"transaction_timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"transaction_timeout_ms": -1}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"transaction_timeout_ms": 900_001}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"producer_id": 5}, ErrorCode.INVALID_REQUEST),
        ({"producer_epoch": 5}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_bad_requests(parts: dict[str, Any], code: ErrorCode) -> None:
    rig = Rig()
    assert rig.init(**parts) == (code, *NO_PRODUCER)
    assert not rig.log


def test_the_longest_timeout_is_allowed() -> None:
    assert Rig().init(transaction_timeout_ms=900_000)[0] is NONE


def test_no_producer_id_is_to_be_had() -> None:
    rig = Rig()
    rig.out_of_ids = True
    assert rig.init() == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, *NO_PRODUCER)
    assert not rig.shard.transactions
    rig.out_of_ids = False
    assert rig.init()[0] is NONE


def test_the_owner_asks_for_its_next_epoch() -> None:
    rig = Rig()
    first = rig.started()
    assert rig.init(**named(first)) == (NONE, first[0], 1)
    # The answer was lost and it asks again.
    assert rig.init(**named(first)) == (NONE, first[0], 1)
    second = (first[0], 1)
    assert rig.init(**named(second)) == (NONE, first[0], 2)
    assert rig.init(**named(first)) == (FENCED, *NO_PRODUCER)


def test_an_owner_is_fenced_by_a_new_producer() -> None:
    rig = Rig()
    first = rig.started()
    rig.started()
    assert rig.init(**named(first)) == (FENCED, *NO_PRODUCER)
    assert rig.init(**named(first), version=3) == (
        ErrorCode.INVALID_PRODUCER_EPOCH,
        *NO_PRODUCER,
    )
    assert rig.init(**named((first[0] + 99, 0))) == (FENCED, *NO_PRODUCER)


def test_an_owner_that_is_no_longer_known_gets_a_new_id() -> None:
    assert Rig().init(**named((77, 12))) == (NONE, FIRST_PRODUCER_ID, 0)


@pytest.mark.parametrize(("transaction_version", "client_version"), [(0, 0), (1, 0), (2, 2)])
def test_an_open_transaction_is_aborted_first(
    transaction_version: int, client_version: int
) -> None:
    rig = Rig(transaction_version=transaction_version)
    producer_id, _ = rig.opened("a-0", "b-1")
    assert rig.init() == (ErrorCode.CONCURRENT_TRANSACTIONS, *NO_PRODUCER)
    [action] = rig.actions
    assert (action.producer_id, action.producer_epoch, action.commit) == (producer_id, 1, False)
    assert [str(p) for p in action.partitions] == ["a-0", "b-1"]
    assert action.transaction_version == client_version
    assert not rig.timers
    assert rig.init() == (ErrorCode.CONCURRENT_TRANSACTIONS, *NO_PRODUCER)
    rig.write_markers()
    assert rig.state == "CompleteAbort"
    assert rig.init() == (NONE, producer_id, 2)


def test_only_its_owner_may_have_an_open_transaction_aborted() -> None:
    rig = Rig()
    zombie = rig.started()
    owner = rig.opened()
    assert rig.init(**named(zombie)) == (FENCED, *NO_PRODUCER)
    assert rig.state == "Ongoing"
    assert rig.init(**named(owner)) == (ErrorCode.CONCURRENT_TRANSACTIONS, *NO_PRODUCER)
    rig.write_markers()
    assert rig.init(**named(owner)) == (NONE, owner[0], owner[1] + 1)


def test_epochs_that_are_used_up() -> None:
    rig = Rig()
    rig.started()
    last = rig.set_epoch(LAST_EPOCH_OF_CLIENTS)
    rig.out_of_ids = True
    assert rig.init() == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, *NO_PRODUCER)
    rig.out_of_ids = False
    assert rig.init(**named(last)) == (NONE, last[0] + 1, 0)
    # Asked again with the old producer id: the same answer.
    assert rig.init(**named(last)) == (NONE, last[0] + 1, 0)
    assert rig.init(**named((last[0], 5))) == (FENCED, *NO_PRODUCER)


def test_the_last_epoch_is_asked_for_twice() -> None:
    rig = Rig()
    rig.started()
    last_but_one = rig.set_epoch(LAST_EPOCH_OF_CLIENTS - 1)
    for _ in range(2):
        assert rig.init(**named(last_but_one)) == (NONE, last_but_one[0], LAST_EPOCH_OF_CLIENTS)


@pytest.mark.parametrize("transaction_version", [0, 2])
def test_the_last_epoch_is_fenced(transaction_version: int) -> None:
    rig = Rig(transaction_version=transaction_version)
    rig.started()
    last = rig.set_epoch(LAST_EPOCH_OF_CLIENTS)
    rig.add(last, "a-0")
    assert rig.init()[0] is ErrorCode.CONCURRENT_TRANSACTIONS
    assert (rig.actions[0].producer_id, rig.actions[0].producer_epoch) == (last[0], EPOCH_MAX)
    rig.write_markers()
    code, producer_id, epoch = rig.init()
    assert code is NONE
    assert producer_id == last[0] + 1
    # In version 2 the end of the transaction has taken the new id already.
    assert epoch == (1 if transaction_version == 2 else 0)


def test_the_last_epoch_cannot_be_fenced_without_a_producer_id() -> None:
    rig = Rig()
    rig.started()
    last = rig.set_epoch(LAST_EPOCH_OF_CLIENTS)
    rig.add(last, "a-0")
    rig.out_of_ids = True
    assert rig.init() == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, *NO_PRODUCER)
    assert rig.state == "Ongoing"
    assert rig.timers


def test_the_timeout_is_the_one_that_was_asked_for_last() -> None:
    rig = Rig()
    rig.init(transaction_timeout_ms=10)
    _, *producer = rig.init(transaction_timeout_ms=20)
    rig.now = 100
    rig.add((producer[0], producer[1]), "a-0")
    assert rig.timers == {("t", "timeout"): 120}
