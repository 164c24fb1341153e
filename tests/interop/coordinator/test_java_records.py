"""Records of the internal topics against Kafka's own serde: same bytes, same values by name."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path
from random import Random
from typing import Any

import pytest

from penstock.base.ids import uuid_text
from penstock.coordinator.effects import CoordinatorRecord
from penstock.coordinator.records import (
    VALUE_TYPES,
    WRITTEN_VERSIONS,
    OffsetCommitKey,
    OffsetCommitValue,
    encode,
)
from penstock.coordinator.share_state.records import (
    SNAPSHOT,
    UPDATE,
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateValue,
    Value,
    encode_key,
    encode_value,
)
from penstock.coordinator.transaction.records import TransactionLogKey, TransactionLogValue
from penstock.coordinator.transaction.records import encode as encode_transaction
from penstock.share.types import ShareKey
from penstock.wire.schema import Field, Message, Struct
from support.reference import java_command
from unit.wire.random_messages import random_struct

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("wire-java")]

PROGRAM = Path(__file__).parent / "java" / "Records.java"
SEEDS = range(20)


def _records() -> list[tuple[Any, Message | None]]:
    made: list[tuple[Any, Message | None]] = []
    for key_type, value_type in VALUE_TYPES.items():
        for seed in SEEDS:
            rng = Random(f"{key_type.__name__} {seed}")
            key = random_struct(key_type, 0, rng)
            value = random_struct(value_type, WRITTEN_VERSIONS[value_type], rng)
            made.append((key, value if seed else None))
    expiring = OffsetCommitValue(offset=7, metadata="m", commit_timestamp=1, expire_timestamp=9)
    made.append((OffsetCommitKey(group="g", topic="t", partition=3), expiring))
    return made


def _ask_java(topic: str, lines: list[str]) -> list[list[str]]:
    done = subprocess.run(
        java_command(str(PROGRAM), topic),
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        encoding="utf-8",
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers = [line.split("\t") for line in done.stdout.splitlines()]
    assert len(answers) == len(lines)
    return answers


def _values(struct: Struct, version: int) -> dict[str, Any]:
    """`struct` as Kafka's converter to JSON shows it, but for the letter case of the keys."""
    default = type(struct)()
    return {
        field.name.replace("_", ""): _value(field, getattr(struct, field.name), version)
        for field in struct.FIELDS
        if version in field.versions
        and not (
            version in field.tagged and getattr(struct, field.name) == getattr(default, field.name)
        )
    }


def _value(field: Field, value: Any, version: int) -> Any:
    if value is None:
        return None
    if field.kind == "array":
        assert field.element is not None
        return [_value(field.element, item, version) for item in value]
    if field.kind == "struct":
        return _values(value, version)
    if field.kind == "uuid":
        return uuid_text(value)
    if field.kind == "bytes":
        return base64.b64encode(value).decode()
    return value


def _java_values(text: str) -> Any:
    return json.loads(
        text, object_hook=lambda node: {key.lower(): value for key, value in node.items()}
    )


def _compare(
    topic: str, records: list[tuple[Any, Message | None]], encoded: list[CoordinatorRecord]
) -> None:
    lines = [f"{e.key.hex()} {'-' if e.value is None else e.value.hex()}" for e in encoded]
    for (key, value), line, answer in zip(records, lines, _ask_java(topic, lines), strict=True):
        assert answer[0] != "error", (answer, key, value)
        assert " ".join(answer[:2]) == line, (key, value)
        assert _java_values(answer[2]) == _values(key, 0)
        if value is None:
            assert answer[3] == "null"
        else:
            version = int.from_bytes(bytes.fromhex(line.split(" ")[1][:4]), "big")
            assert _java_values(answer[3]) == _values(value, version)


def test_kafka_reads_and_writes_the_same_records_of_groups() -> None:
    records = _records()
    _compare("group", records, [encode(key, value) for key, value in records])


def test_kafka_reads_and_writes_the_same_records_of_transactions() -> None:
    records: list[tuple[Any, Message | None]] = []
    encoded = []
    for transaction_version in (0, 1, 2):
        for seed in SEEDS:
            rng = Random(f"{transaction_version} {seed}")
            key = random_struct(TransactionLogKey, 0, rng)
            written = 1 if transaction_version else 0
            value = random_struct(TransactionLogValue, written, rng) if seed else None
            records.append((key, value))
            encoded.append(encode_transaction(key.transactional_id, value, transaction_version))
    _compare("transaction", records, encoded)


def test_kafka_reads_and_writes_the_same_records_of_share_partitions() -> None:
    records: list[tuple[Any, Message | None]] = []
    encoded = []
    kinds: dict[int, type[Value]] = {SNAPSHOT: ShareSnapshotValue, UPDATE: ShareUpdateValue}
    for kind, value_type in kinds.items():
        for seed in SEEDS:
            rng = Random(f"{kind} {seed}")
            key = random_struct(ShareSnapshotKey, 0, rng)
            value = random_struct(value_type, 0, rng) if seed else None
            records.append((key, value))
            named = ShareKey(key.group_id, key.topic_id, key.partition)
            raw = None if value is None else encode_value(value)
            encoded.append(CoordinatorRecord(encode_key(kind, named), raw))
    _compare("share", records, encoded)
