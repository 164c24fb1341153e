"""Makes the encoders; see `codegen` for what they promise.

An encoder hands its output to a function in pieces, so that large values are never copied.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NoReturn

from penstock.wire.codegen import (
    FIXED,
    LENGTH_CODE,
    STRING_BYTES_MAX,
    Code,
    Encoder,
    StepEncoder,
    array_forms,
    element_of,
    join_path,
    plan,
    span,
    struct_of,
)
from penstock.wire.pieces import Piece
from penstock.wire.varint import unsigned_varint

if TYPE_CHECKING:
    from penstock.wire.schema import Field, Struct


def compile_encoder(cls: type[Struct], version: int, flexible: bool) -> Encoder:
    """For a message, or for a structure as it is inside one."""
    encoder: Encoder = _compile(cls, version, flexible, in_steps=False)
    return encoder


def compile_step_encoder(cls: type[Struct], version: int, flexible: bool) -> StepEncoder:
    """The same, as a generator that stops after every `ELEMENTS_PER_STEP`."""
    encoder: StepEncoder = _compile(cls, version, flexible, in_steps=True)
    return encoder


def _compile(cls: type[Struct], version: int, flexible: bool, *, in_steps: bool) -> Any:
    code = Code("def encode(message, w):", in_steps=in_steps)
    code.env.update(
        uvarint=unsigned_varint,
        pack=struct.pack,
        join=b"".join,
        bad_uuid=_bad_uuid,
        too_long=_too_long,
        not_in_version=_not_in_version,
    )
    maker = _EncoderMaker(code, version, flexible)
    maker.structure(cls, "message", "")
    maker.flush()
    code.emit("return None")
    return code.compile("encode")


def _bad_uuid(value: bytes) -> NoReturn:
    raise ValueError(f"a uuid has 16 bytes, not {len(value)}")


def _too_long(length: int) -> NoReturn:
    raise ValueError(f"{length} bytes are more than the {STRING_BYTES_MAX} allowed")


def _not_in_version(value: Any) -> NoReturn:
    raise ValueError(f"this version has no such field, so it cannot carry {value!r}")


class _EncoderMaker:
    """Emits the body of an encoder.

    `run` holds values of a fixed size, with their struct code and path, that the next flush
    writes at once.
    """

    def __init__(self, code: Code, version: int, flexible: bool) -> None:
        self.code = code
        self.version = version
        self.flexible = flexible
        self.write = "w"
        self.run: list[tuple[str, str, str]] = []

    def flush(self, varint: str = "", path: str = "") -> None:
        """Writes what has been collected, and after it the variable `varint` as one."""
        if not self.run and not varint:
            return
        packed = self._packed("")
        if not varint:
            text = packed
        elif not packed:
            text = f"uvarint({varint})"
        else:
            text = f"{self._packed(varint)} if {varint} < 128 else {packed} + uvarint({varint})"
        paths = [where for _, _, where in self.run]
        self.code.emit(f"{self.write}({text})", span([*paths, path] if varint else paths))
        self.run.clear()

    def _packed(self, byte: str) -> str:
        if not self.run:
            return ""
        form = ">" + "".join(code for _, code, _ in self.run) + ("B" if byte else "")
        values = [value for value, _, _ in self.run if value]
        if not values and not byte:
            return repr(bytes(struct.calcsize(form)))
        pack = self.code.constant("pack", struct.Struct(form).pack)
        return f"{pack}({', '.join([*values, byte] if byte else values)})"

    def structure(self, cls: type[Struct], source: str, path: str) -> None:
        row, tagged, absent = plan(cls, self.version)
        for field in absent:
            if not field.ignorable:
                value = f"{source}.{field.name}"
                differs = self.differs(field, value)
                self.code.emit(
                    f"if {differs}: not_in_version({value})", join_path(path, field.name)
                )
        for field in row:
            self.value(field, f"{source}.{field.name}", join_path(path, field.name))
        if self.flexible:
            self.tags(tagged, source, path)

    def differs(self, field: Field, value: str) -> str:
        """The expression that holds if `value` is not the default of `field`."""
        if field.default is None:
            return f"{value} is not None"
        if field.kind == "array":
            return f"{value} is None or {value}" if field.nullable else value
        if field.kind == "struct":
            inner = [self.differs(f, f"{value}.{f.name}") for f in struct_of(field).FIELDS]
            if field.nullable:
                inner.insert(0, f"{value} is None")
            return " or ".join(inner) or "False"
        return f"{value} != {field.default!r}"

    def value(self, field: Field, value: str, path: str) -> None:
        if field.kind in FIXED:
            if field.kind == "uuid":
                self.code.emit(f"if len({value}) != 16: bad_uuid({value})", path)
            self.run.append((value, FIXED[field.kind][0], path))
        elif field.kind == "struct":
            self.nested(field, value, path)
        elif field.kind == "array":
            self.array(field, value, path)
        else:
            self.text(field, value, path)

    def nested(self, field: Field, value: str, path: str) -> None:
        inner = value if value.isidentifier() else self.code.name("o")
        if inner != value:
            self.code.emit(f"{inner} = {value}", path)
        if self.version not in field.nullable:
            self.structure(struct_of(field), inner, path)
            return
        self.flush()
        # Among the tagged fields Kafka marks a structure that is not there otherwise.
        none = "\\x00" if self.version in field.tagged else "\\xff"
        self.code.emit(f"if {inner} is None: {self.write}(b'{none}')")
        self.code.emit("else:")
        self.code.indent += 1
        self.run.append(("1", "b", path))
        self.structure(struct_of(field), inner, path)
        self.flush()
        self.code.indent -= 1

    def length(self, field: Field, n: str, path: str) -> None:
        """Writes what has been collected, then the length in the variable `n`, -1 for null."""
        if self.flexible and field.compact:
            self.code.emit(f"{n} += 1")
            self.flush(n, path)
        else:
            self.run.append((n, LENGTH_CODE[field.kind], path))
            self.flush()

    def text(self, field: Field, value: str, path: str) -> None:
        """A string, bytes or records."""
        n, body = self.code.name("n"), self.code.name("s")
        taken = f"{value}.encode()" if field.kind == "string" else value
        if self.version in field.nullable:
            self.code.emit(f"{body} = {value}")
            self.code.emit(f"if {body} is None: {body} = b''; {n} = -1")
            if field.kind == "string":
                self.code.emit(f"else: {body} = {body}.encode(); {n} = len({body})", path)
            else:
                self.code.emit(f"else: {n} = len({body})", path)
        else:
            self.code.emit(f"{body} = {taken}; {n} = len({body})", path)
        if field.kind == "string":
            self.code.emit(f"if {n} > {STRING_BYTES_MAX}: too_long({n})", path)
        self.length(field, n, path)
        self.code.emit(f"{self.write}({body})")

    def array(self, field: Field, value: str, path: str) -> None:
        n, items = self.code.name("n"), self.code.name("a")
        self.code.emit(f"{items} = {value}")
        if self.version in field.nullable:
            self.code.emit(f"if {items} is None: {items} = (); {n} = -1")
            self.code.emit(f"else: {n} = len({items})", path)
        else:
            self.code.emit(f"{n} = len({items})", path)
        element = element_of(field)
        if element.kind in FIXED and element.kind != "uuid":
            self.fixed_elements(field, FIXED[element.kind][0], n, items, path)
            return
        self.length(field, n, path)
        item = self.code.name("o")
        self.code.emit(f"for {item} in {items}:", path)
        self.code.indent += 1
        self.code.step()
        if field.pieces:
            self.code.emit(f"if type({item}) is {self.code.constant('piece', Piece)}:")
            self.code.emit(f"    {self.write}({item}.data); continue")
        self.value(element, item, path)
        self.flush()
        self.code.indent -= 1

    def fixed_elements(self, field: Field, form: str, n: str, items: str, path: str) -> None:
        """An array of numbers; a short one is written with all that has been collected, at once."""
        length = "B" if self.flexible and field.compact else LENGTH_CODE[field.kind]
        forms = array_forms("".join(code for _, code, _ in self.run) + length, form)
        few = self.code.constant("few", tuple(one.pack for one in forms))
        number = f"{n} + 1" if length == "B" else n
        values = ", ".join([*(value for value, _, _ in self.run if value), number])
        self.code.emit(f"if {n} < {len(forms)}:")
        self.code.emit(f"    {self.write}({few}[len({items})]({values}, *{items}))", path)
        self.code.emit("else:")
        self.code.indent += 1
        self.length(field, n, path)
        self.code.emit(f"{self.write}(pack('>%d{form}' % len({items}), *{items}))", path)
        self.code.indent -= 1

    def tags(self, tagged: list[Field], source: str, path: str) -> None:
        section = join_path(path, "tagged fields")
        if not tagged:
            self.run.append(("", "x", section))
            return
        used = []
        for field in tagged:
            flag = self.code.name("t")
            differs = self.differs(field, f"{source}.{field.name}")
            self.code.emit(f"{flag} = 1 if {differs} else 0", join_path(path, field.name))
            used.append(flag)
        self.run.append((" + ".join(used), "B", section))
        self.flush()
        for flag, field in zip(used, tagged, strict=True):
            self.tagged_field(flag, field, f"{source}.{field.name}", join_path(path, field.name))

    def tagged_field(self, flag: str, field: Field, value: str, path: str) -> None:
        parts, outer = self.code.name("p"), self.write
        self.code.emit(f"if {flag}:")
        self.code.indent += 1
        self.code.emit(f"{parts} = []")
        self.write = self.code.name("w")
        self.code.emit(f"{self.write} = {parts}.append")
        self.value(field, value, path)
        self.flush()
        self.write = outer
        self.code.emit(f"{parts} = join({parts})")
        self.code.emit(f"{outer}(uvarint({field.tag}) + uvarint(len({parts})))", path)
        self.code.emit(f"{outer}({parts})")
        self.code.indent -= 1
