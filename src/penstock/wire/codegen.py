"""What the makers of decoders and encoders share.

A codec is one function per (message, version, direction), made from the message's table and
compiled on first use. What the functions rely on:

* Everything nested is inlined; adjacent fixed-size fields, and the length or tag count that follows
  them, are read and written by one `struct.Struct`.
* No slice and no list is made before its length is checked against the rest of the buffer. All
  arrays of one message together hold at most `ARRAY_ELEMENTS_MAX` elements, so that a small frame
  cannot grow into a large heap.
* A function carries no error handling of its own. Reading past the end raises IndexError or
  struct.error, all else ValueError; every source line remembers the field it works for, and
  `explain` turns the traceback into a WireError that names field and position. That costs nothing
  without an error.
* For messages with very many elements each codec also exists as a generator that stops after every
  `ELEMENTS_PER_STEP` elements of arrays (`Code.step`), so that others can run in between.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from penstock.base.errors import invariant
from penstock.base.steps import Steps
from penstock.wire.errors import WireError
from penstock.wire.varint import Buffer

if TYPE_CHECKING:
    from penstock.wire.schema import Field, Struct

Decoder: TypeAlias = Callable[[Buffer, int], tuple[Any, int]]
StepDecoder: TypeAlias = Callable[[Buffer, int], Steps[tuple[Any, int]]]
Encoder: TypeAlias = Callable[[Any, Callable[[Buffer], None]], None]
StepEncoder: TypeAlias = Callable[[Any, Callable[[Buffer], None]], Steps[None]]

DECODE_FAULTS = (IndexError, struct.error, ValueError)
ENCODE_FAULTS = (struct.error, ValueError, TypeError, AttributeError)

STRING_BYTES_MAX = 0x7FFF
"""Kafka keeps strings this short in compact form too, though their length is a varint there."""

FIXED = {
    "bool": ("?", 1),
    "int8": ("b", 1),
    "int16": ("h", 2),
    "uint16": ("H", 2),
    "int32": ("i", 4),
    "uint32": ("I", 4),
    "int64": ("q", 8),
    "float64": ("d", 8),
    "uuid": ("16s", 16),
}
"""Kinds of a fixed size: struct code and bytes."""

LENGTH_CODE = {"string": "h", "bytes": "i", "records": "i", "array": "i"}
"""How a length is written where it is not compact."""

SHORT_ARRAY_ELEMENTS_MAX = 16
"""Arrays of numbers that are shorter than this have a struct at hand for each length."""

ELEMENTS_PER_STEP = 200
"""Takes well under a millisecond for most messages."""

_SOURCE_NAME = "<penstock.wire codec>"


class Code:
    """Source text under construction."""

    def __init__(self, head: str, *, in_steps: bool = False) -> None:
        self.lines = [head]
        self.fields = [""]
        self.indent = 1
        self.env: dict[str, Any] = {}
        self._fresh = count()
        self._in_steps = in_steps
        if in_steps:
            self.emit(f"step = {ELEMENTS_PER_STEP}")
            self.emit("if not step: yield")  # it is a generator, though it may have no array

    def step(self) -> None:
        """In a loop over elements: a place to stop at, if it is to have any."""
        if self._in_steps:
            self.emit("step -= 1")
            self.emit(f"if not step: step = {ELEMENTS_PER_STEP}; yield")

    def emit(self, line: str, field: str = "") -> None:
        self.lines.append("    " * self.indent + line)
        self.fields.append(field)

    def name(self, stem: str) -> str:
        """A local variable that no other field uses."""
        return f"{stem}{next(self._fresh)}"

    def constant(self, stem: str, value: Any) -> str:
        """A global of the function under construction."""
        name = f"{stem}_{len(self.env)}"
        self.env[name] = value
        return name

    def compile(self, function: str) -> Any:
        self.env["FIELD_OF_LINE"] = tuple(self.fields)
        exec(compile("\n".join(self.lines), _SOURCE_NAME, "exec"), self.env)
        return self.env[function]


def explain(fault: Exception, message: str, version: int) -> WireError:
    """What went wrong, with the field and the position taken from the codec's own frame."""
    traceback = fault.__traceback__
    field, position = None, None
    while traceback is not None:
        frame = traceback.tb_frame
        if frame.f_code.co_filename == _SOURCE_NAME:
            field = frame.f_globals["FIELD_OF_LINE"][traceback.tb_lineno - 1] or None
            position = frame.f_locals.get("pos")
        traceback = traceback.tb_next
    if position is not None and isinstance(fault, IndexError | struct.error):
        return WireError(message, version, "the bytes end here", field=field, position=position)
    reason = str(fault)
    if isinstance(fault, TypeError | AttributeError):
        reason = f"its value is of the wrong type ({fault})"
    return WireError(message, version, reason, field=field, position=position)


def compile_init(cls: type[Struct]) -> Callable[..., None]:
    """The keyword constructor of `cls`."""
    arguments, body = [], []
    code = Code("")
    for field in cls.FIELDS:
        made = made_default(code, field)
        if made is None:
            arguments.append(f"{field.name}={code.constant('default', field.default)}")
            body.append(f"self.{field.name} = {field.name}")
        else:
            arguments.append(f"{field.name}=UNSET")
            body.append(f"self.{field.name} = {made} if {field.name} is UNSET else {field.name}")
    code.env["UNSET"] = object()
    code.lines[0] = f"def __init__(self, {'*, ' if arguments else ''}{', '.join(arguments)}):"
    for line in body or ["pass"]:
        code.emit(line)
    init: Callable[..., None] = code.compile("__init__")
    return init


def made_default(code: Code, field: Field) -> str | None:
    """The expression for a default that must be created each time, None for an immutable one."""
    if field.default is None:
        return None
    if field.kind == "array":
        return "[]"
    if field.kind == "struct":
        return f"{code.constant(struct_of(field).__name__, struct_of(field))}()"
    return None


def default_of(code: Code, field: Field) -> str:
    made = made_default(code, field)
    return repr(field.default) if made is None else made


def struct_of(field: Field) -> type[Struct]:
    invariant(field.struct is not None, f"{field} names no structure")
    return cast("type[Struct]", field.struct)


def element_of(field: Field) -> Field:
    invariant(field.element is not None, f"{field} names no element")
    return cast("Field", field.element)


def plan(cls: type[Struct], version: int) -> tuple[list[Field], list[Field], list[Field]]:
    """The fields of `cls` in `version`: first those in a row, then the tagged, then the absent."""
    row, tagged, absent = [], [], []
    for field in cls.FIELDS:
        if version not in field.versions:
            absent.append(field)
        elif version in field.tagged:
            tagged.append(field)
        else:
            row.append(field)
    tagged.sort(key=lambda field: field.tag or 0)
    return row, tagged, absent


def bytes_min(field: Field, version: int, flexible: bool) -> int:
    """The fewest bytes that one value of `field` takes, to weigh an array's length by."""
    if field.kind in FIXED:
        return FIXED[field.kind][1]
    if field.kind == "struct":
        if version in field.nullable:
            return 1  # where it is null
        row = plan(struct_of(field), version)[0]
        return sum(bytes_min(f, version, flexible) for f in row) + flexible
    if flexible and field.compact:
        return 1
    return struct.calcsize(LENGTH_CODE[field.kind])


@functools.cache
def array_forms(head: str, element: str) -> tuple[struct.Struct, ...]:
    """For short arrays of numbers: `head` and then 0, 1, 2, ... elements."""
    return tuple(struct.Struct(">" + head + element * n) for n in range(SHORT_ARRAY_ELEMENTS_MAX))


def join_path(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def span(paths: list[str]) -> str:
    """What to call fields that are read or written at once."""
    return paths[0] if paths[0] == paths[-1] else f"{paths[0]} to {paths[-1]}"
