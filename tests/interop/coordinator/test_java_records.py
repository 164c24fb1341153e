"""The records of the offsets topic against Kafka's own serde: same bytes, same values by name."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path
from random import Random
from typing import Any

import pytest

from penstock.base.ids import uuid_text
from penstock.coordinator.records import (
    VALUE_TYPES,
    WRITTEN_VERSIONS,
    OffsetCommitKey,
    OffsetCommitValue,
    encode,
)
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


def _ask_java(lines: list[str]) -> list[list[str]]:
    done = subprocess.run(
        java_command(str(PROGRAM)),
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


def test_kafka_reads_and_writes_the_same_records() -> None:
    records = _records()
    encoded = [encode(key, value) for key, value in records]
    lines = [f"{e.key.hex()} {'-' if e.value is None else e.value.hex()}" for e in encoded]
    for (key, value), line, answer in zip(records, lines, _ask_java(lines), strict=True):
        assert answer[0] != "error", (answer, key, value)
        assert " ".join(answer[:2]) == line, (key, value)
        assert _java_values(answer[2]) == _values(key, 0)
        if value is None:
            assert answer[3] == "null"
        else:
            version = int.from_bytes(bytes.fromhex(line.split(" ")[1][:4]), "big")
            assert _java_values(answer[3]) == _values(value, version)
