"""Our codecs against those of kafka-python and kio: every message that they know, every version.

They need no Java, so this much is checked everywhere. Both write what they have read; of
kafka-python the plain values are compared by name as well.
"""

from __future__ import annotations

import importlib
import io
import re
from random import Random
from typing import Any

import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.metadata
import kafka.protocol.producer
import pytest
from kio.serial import entity_reader, entity_writer

from penstock.base.errors import ErrorCode
from penstock.wire.apis import OUR_KEYS_FROM
from penstock.wire.schema import Message, Struct
from unit.wire.random_messages import all_messages, random_struct

SEEDS = range(4)

KAFKA_PYTHON = {
    name: value
    for module in (
        kafka.protocol.admin,
        kafka.protocol.consumer,
        kafka.protocol.metadata,
        kafka.protocol.producer,
    )
    for name, value in vars(module).items()
}
MESSAGES = [cls for cls in all_messages() if (cls.API_KEY or 0) < OUR_KEYS_FROM]
KNOWN_TO_KAFKA_PYTHON = [
    cls for cls in MESSAGES if cls.API_KEY is not None and cls.__name__ in KAFKA_PYTHON
]
PLAIN = frozenset({"int8", "int16", "uint16", "int32", "int64", "bool", "string", "bytes"})


def _tame(struct: Struct, version: int, rng: Random) -> Any:
    """`struct` with error codes that exist and times that are dates: kio turns them into such."""
    for field in struct.FIELDS:
        value = getattr(struct, field.name)
        if version not in field.versions or not value:
            continue
        if field.kind == "struct":
            _tame(value, version, rng)
        elif field.kind == "array" and isinstance(value[0], Struct):
            for item in value:
                _tame(item, version, rng)
        elif field.name.endswith("error_code"):
            setattr(struct, field.name, int(rng.choice(list(ErrorCode)[:60])))
        elif field.name.endswith("_ms") or "time" in field.name:
            setattr(struct, field.name, rng.randrange(100_000))
    return struct


def _kio_class(cls: type[Message], version: int) -> Any:
    words = re.findall(r"[A-Z][a-z]*", cls.__name__)
    kind = words[-1].lower()
    if kind in ("request", "response"):
        words.pop()
    elif kind != "header":
        kind = "data"
    name = "_".join(words).lower()
    return getattr(importlib.import_module(f"kio.schema.{name}.v{version}.{kind}"), cls.__name__)


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_kio(cls: type[Message]) -> None:
    for version in cls.VERSIONS:
        theirs = _kio_class(cls, version)
        read, write = entity_reader(theirs), entity_writer(theirs)
        for seed in SEEDS:
            rng = Random(f"{cls.__name__} {version} {seed}")
            message = random_struct(cls, version, rng, ours=False)  # it drops what it knows not
            raw = _tame(message, version, rng).encode(version)
            entity, size = read(raw, 0)
            assert size == len(raw), version
            out = io.BytesIO()
            write(out, entity)
            assert out.getvalue() == raw, version


def _assert_same_values(ours: Struct, theirs: Any, version: int) -> None:
    for field in ours.FIELDS:
        value = getattr(ours, field.name)
        if version not in field.versions or version in field.tagged or value is None:
            continue
        if field.name.endswith("authorized_operations"):
            continue  # a bit set there, under another name
        other = getattr(theirs, field.name)
        if field.kind in PLAIN:
            assert other == value, (version, field)
        elif field.kind == "struct":
            _assert_same_values(value, other, version)
        elif field.kind == "array" and value and isinstance(value[0], Struct):
            for item, other_item in zip(value, other, strict=True):
                _assert_same_values(item, other_item, version)


@pytest.mark.parametrize("cls", KNOWN_TO_KAFKA_PYTHON, ids=lambda cls: cls.__name__)
def test_kafka_python(cls: type[Message]) -> None:
    theirs = KAFKA_PYTHON[cls.__name__]
    for version in cls.VERSIONS:
        for seed in SEEDS:
            message = random_struct(cls, version, Random(f"{cls.__name__} {version} {seed}"))
            if cls.__name__ == "ApiVersionsResponse":
                message.error_code = 0  # with an error it is read as version 0, whatever was asked
            raw = message.encode(version)
            read = theirs.decode(raw, version)
            read._header = None  # `encode` asks for it even where none is wanted
            assert read.encode(version) == raw, version
            _assert_same_values(message, read, version)


def test_kafka_python_knows_most_messages() -> None:
    assert len(KNOWN_TO_KAFKA_PYTHON) >= 50
