"""Makes the decoders; see `codegen` for what they promise."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NoReturn

from penstock.base.limits import ARRAY_ELEMENTS_MAX, TAGGED_FIELDS_MAX
from penstock.wire.codegen import (
    FIXED,
    LENGTH_CODE,
    STRING_BYTES_MAX,
    Code,
    Decoder,
    StepDecoder,
    array_forms,
    bytes_min,
    default_of,
    element_of,
    join_path,
    plan,
    span,
    struct_of,
)
from penstock.wire.varint import Buffer, read_unsigned_varint

if TYPE_CHECKING:
    from penstock.wire.schema import Field, Message, Struct


def compile_decoder(cls: type[Message], version: int) -> Decoder:
    decoder: Decoder = _compile(cls, version, in_steps=False)
    return decoder


def compile_step_decoder(cls: type[Message], version: int) -> StepDecoder:
    """The same, as a generator that stops after every `ELEMENTS_PER_STEP`."""
    decoder: StepDecoder = _compile(cls, version, in_steps=True)
    return decoder


def _compile(cls: type[Message], version: int, *, in_steps: bool) -> Any:
    code = Code("def decode(buf, pos):", in_steps=in_steps)
    code.env.update(
        new=object.__new__,
        uvarint=read_unsigned_varint,
        unpack_from=struct.unpack_from,
        skip_tags=skip_tags,
        bad_length=_bad_length,
        bad_count=_bad_count,
        bad_tags=_bad_tags,
        is_null=_is_null,
        TAGS_MAX=TAGGED_FIELDS_MAX,
    )
    code.emit("end = len(buf)")
    code.emit(f"left = {ARRAY_ELEMENTS_MAX}")
    maker = _DecoderMaker(code, version, cls.is_flexible(version))
    maker.structure(cls, "message", "")
    maker.flush()
    code.emit("return message, pos")
    return code.compile("decode")


def _bad_length(length: int, left: int) -> NoReturn:
    if length == -1:
        raise ValueError("it is null, which this version does not allow")
    if length < 0:
        raise ValueError(f"its length is {length}")
    if length > left:
        raise ValueError(f"it is {length} bytes long but only {left} are left")
    raise ValueError(f"it is {length} bytes long, more than the {STRING_BYTES_MAX} allowed")


def _bad_count(elements: int, size: int, left: int) -> NoReturn:
    if elements == -1:
        raise ValueError("it is null, which this version does not allow")
    if elements < 0:
        raise ValueError(f"its length is {elements}")
    if elements * size > left:
        raise ValueError(f"its {elements} elements do not fit into the {left} bytes that are left")
    raise ValueError(
        f"its {elements} elements make more than the {ARRAY_ELEMENTS_MAX} that a message may have"
    )


def _bad_tags(tags: int) -> NoReturn:
    raise ValueError(f"{tags} tagged fields are more than the {TAGGED_FIELDS_MAX} allowed")


def _is_null(mark: int) -> bool:
    """Whether the byte before a nullable structure says that there is none."""
    if mark not in (-1, 1):
        raise ValueError(f"{mark} is neither -1 (null) nor 1 (present)")
    return mark == -1


def skip_tags(buf: Buffer, pos: int, end: int) -> int:
    """The position after the tag section whose count starts at `pos`, all of it unknown to us."""
    tags, pos = read_unsigned_varint(buf, pos)
    if tags > TAGGED_FIELDS_MAX:
        _bad_tags(tags)
    for _ in range(tags):
        _, pos = read_unsigned_varint(buf, pos)
        size, pos = read_unsigned_varint(buf, pos)
        if size > end - pos:
            _bad_length(size, end - pos)
        pos += size
    return pos


class _DecoderMaker:
    """Emits the body of a decoder.

    `run` holds targets of a fixed size, with their struct code and path, that the next flush
    reads at once.
    """

    def __init__(self, code: Code, version: int, flexible: bool) -> None:
        self.code = code
        self.version = version
        self.flexible = flexible
        self.run: list[tuple[str, str, str]] = []

    def flush(self) -> None:
        """Reads what has been collected; afterwards `pos` is right."""
        if not self.run:
            return
        targets = [target for target, _, _ in self.run]
        form = ">" + "".join(code for _, code, _ in self.run)
        path = span([where for _, _, where in self.run])
        if form == ">B":
            self.code.emit(f"{targets[0]} = buf[pos]; pos += 1", path)
        else:
            unpack = self.code.constant("unpack", struct.Struct(form).unpack_from)
            self.code.emit(f"{', '.join(targets)}, = {unpack}(buf, pos)", path)
            self.code.emit(f"pos += {struct.calcsize(form)}")
        self.run.clear()

    def structure(self, cls: type[Struct], target: str, path: str) -> None:
        row, tagged, absent = plan(cls, self.version)
        made = self.code.constant(cls.__name__, cls)
        self.code.emit(f"{target} = new({made})", path)
        for field in absent + tagged:
            self.code.emit(f"{target}.{field.name} = {default_of(self.code, field)}")
        for field in row:
            self.value(field, f"{target}.{field.name}", join_path(path, field.name))
        if self.flexible:
            self.tags(tagged, target, path)

    def value(self, field: Field, target: str, path: str) -> None:
        if field.kind in FIXED:
            self.run.append((target, FIXED[field.kind][0], path))
        elif field.kind == "struct":
            self.nested(field, target, path)
        elif field.kind == "array":
            self.array(field, target, path)
        else:
            self.text(field, target, path)

    def nested(self, field: Field, target: str, path: str) -> None:
        inner = self.code.name("o")
        if self.version not in field.nullable:
            self.structure(struct_of(field), inner, path)
            self.code.emit(f"{target} = {inner}")
            return
        mark = self.code.name("n")
        self.run.append((mark, "b", path))
        self.flush()
        # Among the tagged fields Kafka marks a structure that is not there otherwise.
        is_null = f"{mark} == 0" if self.version in field.tagged else f"is_null({mark})"
        self.code.emit(f"if {is_null}:", path)
        self.code.emit(f"    {target} = None")
        self.code.emit("else:")
        self.code.indent += 1
        self.structure(struct_of(field), inner, path)
        self.flush()
        self.code.emit(f"{target} = {inner}")
        self.code.indent -= 1

    def length(self, field: Field, path: str) -> str:
        """Reads a length; the variable then holds -1 for null, in every encoding."""
        n = self.code.name("n")
        if self.flexible and field.compact:
            self.run.append((n, "B", path))
            self.flush()
            self.code.emit(f"if {n} > 127: {n}, pos = uvarint(buf, pos - 1)", path)
            self.code.emit(f"{n} -= 1")
        else:
            self.run.append((n, LENGTH_CODE[field.kind], path))
            self.flush()
        return n

    def text(self, field: Field, target: str, path: str) -> None:
        """A string, bytes or records."""
        n = self.length(field, path)
        nullable = self.version in field.nullable
        if nullable:
            self.code.emit(f"if {n} == -1: {target} = None")
            self.code.emit("else:")
            self.code.indent += 1
        too_long = ""
        if field.kind == "string" and self.flexible:
            too_long = f" or {n} > {STRING_BYTES_MAX}"
        self.code.emit(f"stop = pos + {n}")
        self.code.emit(f"if not pos <= stop <= end{too_long}: bad_length({n}, end - pos)", path)
        taken = {
            "string": "str(buf[pos:stop], 'utf-8')",
            "bytes": "bytes(buf[pos:stop])",
            "records": "buf[pos:stop]",
        }[field.kind]
        self.code.emit(f"{target} = {taken}", path)
        self.code.emit("pos = stop")
        if nullable:
            self.code.indent -= 1

    def array(self, field: Field, target: str, path: str) -> None:
        n = self.length(field, path)
        nullable = self.version in field.nullable
        if nullable:
            self.code.emit(f"if {n} == -1: {target} = None")
            self.code.emit("else:")
            self.code.indent += 1
        element = element_of(field)
        size = bytes_min(element, self.version, self.flexible)
        self.code.emit(
            f"if {n} < 0 or {n} > left or {n} * {size} > end - pos: "
            f"bad_count({n}, {size}, end - pos)",
            path,
        )
        self.code.emit(f"left -= {n}")
        if element.kind in FIXED and element.kind != "uuid":
            form = FIXED[element.kind][0]
            forms = array_forms("", form)
            few = self.code.constant("few", tuple(one.unpack_from for one in forms))
            many = f"unpack_from('>%d{form}' % {n}, buf, pos)"
            self.code.emit(
                f"*{target}, = {few}[{n}](buf, pos) if {n} < {len(forms)} else {many}", path
            )
            self.code.emit(f"pos += {n} * {size}")
        else:
            self.elements(element, target, n, path)
        if nullable:
            self.code.indent -= 1

    def elements(self, element: Field, target: str, n: str, path: str) -> None:
        add, item = self.code.name("add"), self.code.name("o")
        self.code.emit(f"{target} = []")
        self.code.emit(f"{add} = {target}.append")
        self.code.emit(f"for _ in range({n}):")
        self.code.indent += 1
        self.code.step()
        if element.kind == "struct":
            self.structure(struct_of(element), item, path)
        else:
            self.value(element, item, path)
        self.flush()
        self.code.emit(f"{add}({item})")
        self.code.indent -= 1

    def tags(self, tagged: list[Field], target: str, path: str) -> None:
        section = join_path(path, "tagged fields")
        n = self.code.name("n")
        self.run.append((n, "B", section))
        self.flush()
        if not tagged:
            self.code.emit(f"if {n}: pos = skip_tags(buf, pos - 1, end)", section)
            return
        tag, size, stop = self.code.name("tag"), self.code.name("size"), self.code.name("stop")
        self.code.emit(f"if {n}:")
        self.code.indent += 1
        self.code.emit(f"if {n} > 127: {n}, pos = uvarint(buf, pos - 1)", section)
        self.code.emit(f"if {n} > TAGS_MAX: bad_tags({n})", section)
        self.code.emit(f"for _ in range({n}):")
        self.code.indent += 1
        self.code.emit(f"{tag}, pos = uvarint(buf, pos)", section)
        self.code.emit(f"{size}, pos = uvarint(buf, pos)", section)
        self.code.emit(f"{stop} = pos + {size}")
        self.code.emit(f"if {stop} > end: bad_length({size}, end - pos)", section)
        for field in tagged:
            inside = join_path(path, field.name)
            self.code.emit(f"if {tag} == {field.tag}:")
            self.code.indent += 1
            self.value(field, f"{target}.{field.name}", inside)
            self.flush()
            wrong = "raise ValueError('the tagged field is not as long as it says')"
            self.code.emit(f"if pos != {stop}: {wrong}", inside)
            self.code.indent -= 1
        self.code.emit(f"pos = {stop}")
        self.code.indent -= 2
