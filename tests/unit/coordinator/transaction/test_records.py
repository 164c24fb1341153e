"""Records of the transaction log as bytes: both ways, known bytes, and bytes that are none."""

from __future__ import annotations

from random import Random

import pytest

from penstock.base.errors import CorruptRecord
from penstock.base.ids import TopicPartition
from penstock.coordinator.transaction.metadata import TransactionMetadata, from_record
from penstock.coordinator.transaction.records import (
    PartitionsSchema,
    TransactionLogValue,
    decode,
    encode,
)
from penstock.coordinator.transaction.states import PASSED_THROUGH, STATUS, State
from unit.wire.random_messages import random_struct

VALUE = TransactionLogValue(
    producer_id=7,
    previous_producer_id=6,
    next_producer_id=8,
    producer_epoch=2,
    transaction_timeout_ms=60_000,
    transaction_status=1,
    transaction_partitions=[PartitionsSchema(topic="a", partition_ids=[0, 3])],
    transaction_last_update_timestamp_ms=10,
    transaction_start_timestamp_ms=9,
    client_transaction_version=2,
)


@pytest.mark.parametrize("transaction_version", [0, 1, 2])
def test_both_ways(transaction_version: int) -> None:
    for seed in range(50):
        rng = Random(f"{transaction_version} {seed}")
        value = random_struct(TransactionLogValue, 1 if transaction_version else 0, rng)
        assert decode(*encode("id", value, transaction_version)) == ("id", value)
        assert decode(*encode("id", None, transaction_version)) == ("id", None)


def test_known_bytes() -> None:
    record = encode("tx", VALUE, 2)
    assert record.key.hex() == "0000" + "00027478"
    assert record.value is not None
    assert record.value.hex() == (
        "0001"
        + f"{7:016x}"
        + f"{2:04x}"
        + f"{60_000:08x}"
        + "01"
        + "02"  # one topic
        + "0261"
        + "03"  # two partitions
        + "0000000000000003"
        + "00"
        + f"{10:016x}"
        + f"{9:016x}"
        + "03"  # tagged: previous and next producer id, version of the client
        + "0008" + f"{6:016x}"
        + "0108" + f"{8:016x}"
        + "0202" + "0002"
    )  # fmt: skip


def test_the_old_format_leaves_out_what_it_cannot_say() -> None:
    record = encode("tx", VALUE, 0)
    assert record.value is not None
    assert record.value.hex() == (
        "0000"
        + f"{7:016x}"
        + f"{2:04x}"
        + f"{60_000:08x}"
        + "01"
        + "00000001"
        + "000161"
        + "00000002"
        + "0000000000000003"
        + f"{10:016x}"
        + f"{9:016x}"
    )
    found = decode(*record)
    assert found is not None
    assert found.value is not None
    assert found.value.previous_producer_id == found.value.next_producer_id == -1
    assert found.value.client_transaction_version == 0


def test_types_of_others_are_left_alone() -> None:
    assert decode(b"\x00\x01anything", b"\x00\x00") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", None),
        (b"\x00\x00\x00\x09x", None),
        (encode("tx", None, 2).key, b"\x00"),
        (encode("tx", None, 2).key, b"\x00\x02" + bytes(60)),
        (encode("tx", None, 2).key, b"\x00\x01\x00"),
        (encode("tx", None, 2).key + b"!", None),
    ],
)
def test_bytes_that_are_no_record(key: bytes, value: bytes | None) -> None:
    with pytest.raises(CorruptRecord):
        decode(key, value)


@pytest.mark.parametrize("state", [s for s in State if s not in PASSED_THROUGH])
def test_metadata_and_its_record(state: State) -> None:
    partitions = {} if state is State.EMPTY else {TopicPartition("a", 1): None}
    metadata = TransactionMetadata(
        "tx", 7, 2, -1, 6, 8, 60_000, state, partitions, start_ms=5, last_update_ms=6
    )
    found = decode(*metadata.record(2))
    assert found is not None
    assert found.value is not None
    assert from_record("tx", found.value) == metadata
    is_empty = state is State.EMPTY
    assert (found.value.transaction_partitions is None) == is_empty


@pytest.mark.parametrize("status", [*sorted(STATUS[state] for state in PASSED_THROUGH), 8, -1])
def test_a_state_that_is_never_written(status: int) -> None:
    with pytest.raises(CorruptRecord, match="'tx'"):
        from_record("tx", TransactionLogValue(transaction_status=status))
