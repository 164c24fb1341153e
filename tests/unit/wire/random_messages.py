"""Every message table of the tree, and messages of any of them with random values.

Values are those that the version can carry: a field that it lacks keeps its default.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from random import Random
from typing import Any

from penstock.wire import messages
from penstock.wire.apis import OUR_TAGS_FROM
from penstock.wire.schema import Field, Message, Struct

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_TEXT = ["", "a", "orders-0", "größer", "話題", "\U0001f389", "x" * 127, "y" * 128, "z" * 300]


def all_messages() -> list[type[Message]]:
    """The message classes of `penstock.wire.messages`, in the order of their names."""
    found = []
    for module in pkgutil.iter_modules(messages.__path__):
        for value in vars(importlib.import_module(f"{messages.__name__}.{module.name}")).values():
            if isinstance(value, type) and issubclass(value, Message) and value is not Message:
                found.append(value)
    return sorted(found, key=lambda cls: cls.__name__)


def all_message_versions() -> Iterator[tuple[type[Message], int]]:
    for cls in all_messages():
        for version in cls.VERSIONS:
            yield cls, version


def all_structs(cls: type[Struct], version: int) -> Iterator[type[Struct]]:
    """The structures that `cls` holds in `version`, at any depth."""
    for field in cls.FIELDS:
        inner = field.struct or (field.element and field.element.struct)
        if inner and version in field.versions:
            yield inner
            yield from all_structs(inner, version)


def is_ours(field: Field) -> bool:
    """Whether Kafka does not know the field."""
    return field.tag is not None and field.tag >= OUR_TAGS_FROM


def random_struct(cls: type[Struct], version: int, rng: Random, *, ours: bool = True) -> Any:
    """One `cls` in which each field of `version` holds a random value; those that Kafka does not
    know only with `ours`.
    """
    return cls(
        **{
            field.name: random_value(field, version, rng, ours=ours)
            for field in cls.FIELDS
            if version in field.versions
            and not (version in field.tagged and rng.random() < 0.3)
            and (ours or not is_ours(field))
        }
    )


def random_value(field: Field, version: int, rng: Random, *, ours: bool = True) -> Any:
    if version in field.nullable and rng.random() < 0.25:
        return None
    if field.kind == "array":
        assert field.element is not None
        lengths = (0, 1, 3, 15, 16, 130) if field.element.kind in _BITS else (0, 1, 2, 3)
        length = rng.choice(lengths)
        return [random_value(field.element, version, rng, ours=ours) for _ in range(length)]
    if field.kind == "struct":
        assert field.struct is not None
        return random_struct(field.struct, version, rng, ours=ours)
    return _random_plain(field.kind, rng)


def _random_plain(kind: str, rng: Random) -> Any:
    if kind in _BITS:
        half = 1 << (_BITS[kind] - 1)
        return rng.choice((0, 1, -1, half - 1, -half, rng.randrange(-half, half)))
    if kind in ("uint16", "uint32"):
        return rng.randrange(1 << int(kind[4:]))
    if kind == "bool":
        return rng.random() < 0.5
    if kind == "float64":
        return rng.uniform(-1e300, 1e300)
    if kind == "string":
        return rng.choice(_TEXT)
    if kind == "uuid":
        return rng.randbytes(16)
    assert kind in ("bytes", "records"), kind
    return rng.randbytes(rng.choice((0, 1, 126, 127, 128, 500)))
