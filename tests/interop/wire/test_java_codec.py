"""Our codecs against Kafka's own: every message, every version, random values, one JVM.

Bytes alone would not do: two fields of one type in the wrong order give the same bytes both ways.
So Java's values are compared by name as well. Writing in a version other than the one that was read
shows which fields may be dropped, and the values of new objects show the defaults.
"""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from penstock.base.ids import uuid_text
from penstock.wire.apis import OUR_KEYS_FROM
from penstock.wire.errors import WireError
from penstock.wire.schema import Field, Message, Struct
from support.reference import java_command
from unit.wire.random_messages import (
    all_message_versions,
    all_structs,
    is_ours,
    random_struct,
)

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("wire-java")]

PROGRAM = Path(__file__).parent / "java" / "Codec.java"

SAME_VERSION_SEEDS = range(10)
OTHER_VERSION_SEEDS = range(3)

KAFKA_NAMES = {
    "LeaderChangeVoter": "Voter",
    "OwnedTopicPartition": "TopicPartition",
    "AssignedTopicPartition": "TopicPartition",
}
"""Structures that have another name here, as two of one module would share it."""


def _kafka_name(cls: type[Struct]) -> str:
    """The name of a structure in Kafka; see `penstock.wire.messages` for the prefixes."""
    plain = cls.__name__.removeprefix("Request").removeprefix("Response")
    return KAFKA_NAMES.get(plain, plain)


def _java_class(cls: type[Message]) -> str:
    is_data = cls.API_KEY is None and not cls.__name__.endswith("Header")
    return cls.__name__ if is_data else f"{cls.__name__}Data"


def _kafkas() -> Iterator[tuple[type[Message], int]]:
    """Without the messages of our own."""
    return (one for one in all_message_versions() if (one[0].API_KEY or 0) < OUR_KEYS_FROM)


def _ask_java(lines: list[str]) -> list[tuple[str, str]]:
    done = subprocess.run(
        java_command(str(PROGRAM)),
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        encoding="utf-8",
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers = [line.partition("\t") for line in done.stdout.splitlines()]
    assert len(answers) == len(lines)
    return [(first, second) for first, _, second in answers]


def _values(struct: Struct, version: int) -> dict[str, Any]:
    """`struct` as Kafka's converter to JSON shows it, but for the letter case of the keys."""
    default = type(struct)()
    out: dict[str, Any] = {}
    for field in struct.FIELDS:
        value = getattr(struct, field.name)
        if version not in field.versions or is_ours(field):
            continue  # Java keeps a tagged field that it does not know, and shows none of it
        if version in field.tagged and value == getattr(default, field.name):
            continue
        name = field.name.replace("_", "")
        if field.kind == "records" and value is not None:
            out[f"{name}sizeinbytes"] = len(value)
        else:
            out[name] = _value(field, value, version)
    return out


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
    def lowered(node: dict[str, Any]) -> dict[str, Any]:
        return {key.lower(): value for key, value in node.items()}

    return json.loads(text, object_hook=lowered)


def _random_messages(seeds: range) -> Iterator[tuple[Message, int]]:
    for cls, version in _kafkas():
        for seed in seeds:
            rng = Random(f"{cls.__name__} {version} {seed}")
            yield random_struct(cls, version, rng), version


class Answers(NamedTuple):
    """What was asked, each with Java's answer."""

    same_version: list[tuple[Message, int, tuple[str, str]]]
    other_versions: list[tuple[Message, int, int, tuple[str, str]]]
    defaults: list[tuple[type[Struct], int, str, tuple[str, str]]]


def _read(message: Message, version: int, write_version: int) -> str:
    raw = message.encode(version).hex()
    return f"read {_java_class(type(message))} {version} {raw} {write_version}"


def _structures() -> Iterator[tuple[type[Struct], int, str]]:
    for cls, version in _kafkas():
        yield cls, version, _java_class(cls)
        for inner in all_structs(cls, version):
            yield inner, version, f"{_java_class(cls)}${_kafka_name(inner)}"


@pytest.fixture(scope="module")
def java() -> Answers:
    same = list(_random_messages(SAME_VERSION_SEEDS))
    other = [
        (message, version, other)
        for message, version in _random_messages(OTHER_VERSION_SEEDS)
        for other in type(message).VERSIONS
        if other != version
    ]
    structures = list(_structures())
    lines = [_read(message, version, version) for message, version in same]
    lines += [_read(*question) for question in other]
    lines += [f"default {name} {version}" for _, version, name in structures]
    answers = iter(_ask_java(lines))
    return Answers(
        [(*question, next(answers)) for question in same],
        [(*question, next(answers)) for question in other],
        [(*question, next(answers)) for question in structures],
    )


def test_java_reads_and_writes_what_we_do(java: Answers) -> None:
    for message, version, (written, values) in java.same_version:
        what = f"{type(message).__name__} v{version}"
        raw = message.encode(version)
        assert written != "error", f"{what}: {values}"
        assert written == raw.hex(), what
        assert _java_values(values) == _values(message, version), what
        assert type(message).decode(memoryview(raw), version) == message, what


def test_java_drops_or_refuses_the_same_fields_in_other_versions(java: Answers) -> None:
    refused = 0
    for message, version, other, (written, reason) in java.other_versions:
        what = f"{type(message).__name__} v{version} written as v{other}: {reason}"
        if written == "error":
            refused += 1
            with pytest.raises(WireError):
                message.encode(other)
        else:
            assert message.encode(other).hex() == written, what
    assert 0 < refused < len(java.other_versions)


def _must_have_records(cls: type[Struct], version: int) -> bool:
    """Whether a new object of `cls` cannot be shown: Java's converter trips over its records."""
    return any(f.kind == "records" and version not in f.nullable for f in cls.FIELDS)


def test_defaults_are_those_of_java(java: Answers) -> None:
    for cls, version, name, (error, values) in java.defaults:
        if _must_have_records(cls, version):
            assert error, f"{name} v{version} needs no exception"
            continue
        assert not error, f"{name} v{version}: {values}"
        assert _java_values(values) == _values(cls(), version), f"{name} v{version}"
