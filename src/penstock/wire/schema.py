"""The language in which the message tables are written.

A table is a class: each attribute is one field, in wire order, with the versions that carry it.

    class TopicProduceData(Struct):
        name: str = string("0-12", ignorable=True)
        topic_id: Uuid = uuid("13+", ignorable=True)
        partition_data: list[PartitionProduceData] = array(PartitionProduceData, "0+")

    class ProduceRequest(Message, api_key=ApiKey.PRODUCE, versions="3-13", flexible="9+"):
        transactional_id: str | None = string("3+", nullable="3+", default=None)
        ...

Versions read as in Kafka: "3+", "4-12", "7". A field that a version lacks decodes to its default;
to encode it with another value is an error, unless it is `ignorable`. `tag` makes the field a
tagged one in the versions `tagged` (in all of its versions if that is not said). A field
specifier claims to return what the attribute holds, so type checkers see plain keyword
constructors in which every argument is optional. A field of bytes that is `secret` is not shown by
`repr`.

Instances have slots, compare by value and are not hashable. Constructors and codecs are compiled on
first use and kept: importing a table costs little.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Final, Generic, Self, TypeVar, cast, dataclass_transform, overload

from penstock.base.ids import ZERO_UUID
from penstock.base.steps import Steps
from penstock.wire import codegen, decoders, encoders
from penstock.wire.errors import WireError
from penstock.wire.pieces import Piece
from penstock.wire.varint import Buffer

_E = TypeVar("_E")
_S = TypeVar("_S", bound="Struct")

_VERSION_MAX: Final = 0x7FFF
_UNSET: Final = object()

INT32_MIN: Final = -(2**31)
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1


@functools.cache
def parse_versions(text: str) -> range:
    """`"3+"`, `"4-12"` or `"7"` as a range."""
    first, dash, last = text.partition("-")
    if dash:
        return range(int(first), int(last) + 1)
    if text.endswith("+"):
        return range(int(text[:-1]), _VERSION_MAX + 1)
    return range(int(text), int(text) + 1)


class Field:
    """One line of a table."""

    __slots__ = (
        "compact",
        "default",
        "element",
        "ignorable",
        "kind",
        "name",
        "nullable",
        "pieces",
        "secret",
        "struct",
        "tag",
        "tagged",
        "versions",
    )

    def __init__(
        self,
        kind: str,
        versions: str,
        default: Any,
        *,
        nullable: str | None = None,
        ignorable: bool = False,
        tag: int | None = None,
        tagged: str | None = None,
        compact: bool = True,
        element: Field | None = None,
        struct: type[Struct] | None = None,
        pieces: bool = False,
        secret: bool = False,
    ) -> None:
        self.name = ""
        self.kind = kind
        self.versions = parse_versions(versions)
        self.default = default
        self.nullable = parse_versions(nullable) if nullable else range(0)
        self.ignorable = ignorable
        self.tag = tag
        self.tagged = range(0) if tag is None else parse_versions(tagged or versions)
        self.compact = compact
        self.element = element
        self.struct = struct
        self.pieces = pieces
        self.secret = secret

    def __repr__(self) -> str:
        return f"Field({self.name}: {self.kind})"


class _FixedSize(Generic[_E]):
    """A field specifier for a kind that always takes the same number of bytes."""

    __slots__ = ("kind", "zero")

    def __init__(self, kind: str, zero: _E) -> None:
        self.kind = kind
        self.zero = zero

    def __call__(
        self,
        versions: str,
        *,
        default: _E | None = None,
        ignorable: bool = False,
        tag: int | None = None,
        tagged: str | None = None,
    ) -> _E:
        value = self.zero if default is None else default
        field = Field(self.kind, versions, value, ignorable=ignorable, tag=tag, tagged=tagged)
        return cast(_E, field)


boolean = _FixedSize("bool", False)
int8 = _FixedSize("int8", 0)
int16 = _FixedSize("int16", 0)
uint16 = _FixedSize("uint16", 0)
int32 = _FixedSize("int32", 0)
uint32 = _FixedSize("uint32", 0)
int64 = _FixedSize("int64", 0)
float64 = _FixedSize("float64", 0.0)
uuid = _FixedSize("uuid", ZERO_UUID)


@overload
def string(
    versions: str,
    *,
    default: str = "",
    ignorable: bool = False,
    tag: int | None = None,
    tagged: str | None = None,
) -> str: ...


@overload
def string(
    versions: str,
    *,
    nullable: str,
    default: str | None = "",
    ignorable: bool = False,
    tag: int | None = None,
    tagged: str | None = None,
    compact: bool = True,
) -> str | None: ...


def string(
    versions: str,
    *,
    nullable: str | None = None,
    default: str | None = "",
    ignorable: bool = False,
    tag: int | None = None,
    tagged: str | None = None,
    compact: bool = True,
) -> Any:
    """Text; with `compact=False` its length stays an int16 in flexible versions too."""
    return Field(
        "string",
        versions,
        default,
        nullable=nullable,
        ignorable=ignorable,
        tag=tag,
        tagged=tagged,
        compact=compact,
    )


@overload
def binary(
    versions: str,
    *,
    default: bytes = b"",
    ignorable: bool = False,
    tag: int | None = None,
    tagged: str | None = None,
    secret: bool = False,
) -> bytes: ...


@overload
def binary(
    versions: str,
    *,
    nullable: str,
    default: bytes | None = b"",
    ignorable: bool = False,
    tag: int | None = None,
    tagged: str | None = None,
    secret: bool = False,
) -> bytes | None: ...


def binary(
    versions: str,
    *,
    nullable: str | None = None,
    default: bytes | None = b"",
    ignorable: bool = False,
    tag: int | None = None,
    tagged: str | None = None,
    secret: bool = False,
) -> Any:
    """Opaque bytes, copied out of the frame (Kafka's type `bytes`)."""
    return Field(
        "bytes",
        versions,
        default,
        nullable=nullable,
        ignorable=ignorable,
        tag=tag,
        tagged=tagged,
        secret=secret,
    )


def record_batches(versions: str, *, nullable: str | None = None) -> bytes | memoryview | None:
    """Record batches: a slice of the buffer that is decoded, no copy if that is a memoryview."""
    return cast("memoryview | None", Field("records", versions, None, nullable=nullable))


@overload
def array(
    element: Callable[..., _E],
    versions: str,
    *,
    ignorable: bool = False,
    tag: int | None = None,
    tagged: str | None = None,
    pieces: bool = False,
) -> list[_E]: ...


@overload
def array(
    element: Callable[..., _E],
    versions: str,
    *,
    nullable: str,
    default: list[_E] | None = ...,
    ignorable: bool = False,
    tag: int | None = None,
    tagged: str | None = None,
) -> list[_E] | None: ...


def array(
    element: Callable[..., _E],
    versions: str,
    *,
    nullable: str | None = None,
    default: Any = (),
    ignorable: bool = False,
    tag: int | None = None,
    tagged: str | None = None,
    pieces: bool = False,
) -> Any:
    """A list of structures or of plain values: `array(TopicData, "0+")`, `array(int32, "0+")`.

    The default is an empty list, or null with `default=None`. With `pieces`, structures in it may
    have been encoded before (`Message.piece`).
    """
    if isinstance(element, type) and issubclass(element, Struct):
        inner = Field("struct", versions, _UNSET, struct=element)
    else:
        inner = cast(Callable[..., Field], element)(versions)
    return Field(
        "array",
        versions,
        default,
        nullable=nullable,
        ignorable=ignorable,
        tag=tag,
        tagged=tagged,
        element=inner,
        pieces=pieces,
    )


@overload
def struct(
    of: type[_S],
    versions: str,
    *,
    ignorable: bool = False,
    tag: int | None = None,
    tagged: str | None = None,
) -> _S: ...


@overload
def struct(
    of: type[_S],
    versions: str,
    *,
    nullable: str,
    default: None = ...,
    ignorable: bool = False,
    tag: int | None = None,
    tagged: str | None = None,
) -> _S | None: ...


def struct(
    of: type[_S],
    versions: str,
    *,
    nullable: str | None = None,
    default: Any = _UNSET,
    ignorable: bool = False,
    tag: int | None = None,
    tagged: str | None = None,
) -> Any:
    """One structure; its default is that structure with all its defaults, or null."""
    return Field(
        "struct",
        versions,
        default,
        nullable=nullable,
        ignorable=ignorable,
        tag=tag,
        tagged=tagged,
        struct=of,
    )


@dataclass_transform(kw_only_default=True)
class _Table(type):
    """Turns the field specifiers of a class body into slots and `FIELDS`."""

    def __new__(
        mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> _Table:
        fields = []
        for attribute, value in list(namespace.items()):
            if isinstance(value, Field):
                value.name = attribute
                fields.append(value)
                del namespace[attribute]
        namespace["__slots__"] = tuple(field.name for field in fields)
        namespace["FIELDS"] = tuple(fields)
        arrays = tuple((f.name, f.element.struct) for f in fields if f.element is not None)
        namespace["_ARRAYS"] = arrays
        coded = {name for name, of in arrays if of is not None and of._CODES}
        namespace["_CODES"] = tuple(
            f.name for f in fields if f.name == "error_code" or f.name in coded
        )
        namespace["__init__"] = _init_on_first_use
        return super().__new__(mcls, name, bases, namespace, **options)


def _init_on_first_use(self: Struct, **values: Any) -> None:
    """Compiles the constructor of the class, puts it in the place of this one and calls it."""
    cls = type(self)
    init = codegen.compile_init(cls)
    cls.__init__ = init  # type: ignore[method-assign]
    init(self, **values)


class Struct(metaclass=_Table):
    """A group of fields inside a message."""

    FIELDS: ClassVar[tuple[Field, ...]]
    _ARRAYS: ClassVar[tuple[tuple[str, type[Struct] | None], ...]]
    """The arrays in it, with the structure of their elements if they are structures."""
    _CODES: ClassVar[tuple[str, ...]]
    """Its error code, and the arrays in which there are some."""

    __hash__: ClassVar[None]  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, f.name) == getattr(other, f.name) for f in self.FIELDS)

    def error_codes(self) -> Iterator[int]:
        """Every error code in it, wherever it stands."""
        return filter(None, self.each_code())

    def each_code(self) -> Iterator[int]:
        """Those that say there is no error, too: a place to stop at for each of many elements."""
        for name in self._CODES:
            value = getattr(self, name)
            if name == "error_code":
                yield value
                continue
            for element in value or ():
                yield from element.error_codes() if type(element) is Piece else element.each_code()

    def has_more_than(self, elements: int) -> bool:
        """Whether its arrays hold more than so many elements together."""
        return self._left_of(elements) < 0

    def _left_of(self, elements: int) -> int:
        """How many more elements may follow; negative as soon as there are too many."""
        for name, of in self._ARRAYS:
            array = getattr(self, name) or ()
            elements -= len(array)
            if of is None or not of._ARRAYS:
                continue
            for element in array:
                if elements < 0:
                    return elements
                if type(element) is not Piece:
                    elements = element._left_of(elements)
        return elements

    def __repr__(self) -> str:
        inside = ", ".join(
            f"{f.name}={'[hidden]' if f.secret else repr(getattr(self, f.name))}"
            for f in self.FIELDS
        )
        return f"{type(self).__name__}({inside})"


class Message(Struct):
    """The root of a table: what is encoded and decoded as a whole."""

    API_KEY: ClassVar[int | None] = None
    VERSIONS: ClassVar[range] = range(0)
    FLEXIBLE_FROM: ClassVar[int | None] = None
    """The first version with compact lengths and tagged fields; None if no version has them."""

    _decoders: ClassVar[dict[int, codegen.Decoder]]
    _encoders: ClassVar[dict[tuple[type[Struct], int], codegen.Encoder]]
    _step_decoders: ClassVar[dict[int, codegen.StepDecoder]]
    _step_encoders: ClassVar[dict[tuple[type[Struct], int], codegen.StepEncoder]]

    def __init_subclass__(
        cls, *, versions: str, flexible: str | None = None, api_key: int | None = None
    ) -> None:
        super().__init_subclass__()
        cls.API_KEY = api_key
        cls.VERSIONS = parse_versions(versions)
        cls.FLEXIBLE_FROM = parse_versions(flexible).start if flexible else None
        cls._decoders = {}
        cls._encoders = {}
        cls._step_decoders = {}
        cls._step_encoders = {}

    @classmethod
    def decode(cls, buf: Buffer, version: int) -> Self:
        """The message that fills `buf` exactly."""
        message, pos = cls.decode_from(buf, 0, version)
        if pos != len(buf):
            reason = f"{len(buf) - pos} bytes are left over after the message"
            raise WireError(cls.__name__, version, reason, position=pos)
        return message

    @classmethod
    def decode_from(cls, buf: Buffer, pos: int, version: int) -> tuple[Self, int]:
        """The message at `pos` and the position after it."""
        decoder = cls._decoders.get(version)
        if decoder is None:
            cls._check_version(version)
            decoder = cls._decoders[version] = decoders.compile_decoder(cls, version)
        try:
            return decoder(buf, pos)
        except codegen.DECODE_FAULTS as fault:
            error = codegen.explain(fault, cls.__name__, version)
        raise error

    @classmethod
    def decode_in_steps(cls, buf: Buffer, pos: int, version: int) -> Steps[tuple[Self, int]]:
        """As `decode_from`; it stops now and then, for others to run."""
        decoder = cls._step_decoders.get(version)
        if decoder is None:
            cls._check_version(version)
            decoder = cls._step_decoders[version] = decoders.compile_step_decoder(cls, version)
        try:
            return (yield from decoder(buf, pos))
        except codegen.DECODE_FAULTS as fault:
            error = codegen.explain(fault, cls.__name__, version)
        raise error

    def encode(self, version: int) -> bytes:
        return b"".join(self.encode_parts(version))

    def encode_into(self, out: bytearray, version: int) -> None:
        """Appends the encoded message to `out`."""
        out += b"".join(self.encode_parts(version))

    def encode_parts(self, version: int) -> list[Buffer]:
        """The encoded message in parts; `records` fields are parts of their own, not copied."""
        return self._encoded(self, version)

    @classmethod
    def piece(cls, element: _S, version: int) -> _S:
        """What `element` of an array with `pieces` is in this version, encoded ahead; it can be
        used instead of `element`, any number of times.
        """
        data = b"".join(cls._encoded(element, version))
        return cast(_S, Piece(data, tuple(element.error_codes())))

    def encode_in_steps(self, version: int) -> Steps[bytes]:
        """As `encode`; it stops now and then, for others to run. Nobody may change it meanwhile."""
        return self._encoded_in_steps(self, version)

    @classmethod
    def piece_in_steps(cls, element: _S, version: int) -> Steps[_S]:
        """As `piece`; it stops now and then, for others to run."""
        data = yield from cls._encoded_in_steps(element, version)
        return cast(_S, Piece(data, tuple(element.error_codes())))

    @classmethod
    def _encoded_in_steps(cls, part: Struct, version: int) -> Steps[bytes]:
        kind = type(part)
        encoder = cls._step_encoders.get((kind, version))
        if encoder is None:
            cls._check_version(version)
            encoder = encoders.compile_step_encoder(kind, version, cls.is_flexible(version))
            cls._step_encoders[kind, version] = encoder
        whole: list[bytes] = []
        parts: list[Buffer] = []
        try:
            for _ in encoder(part, parts.append):
                whole.append(b"".join(parts))  # a million small parts at the end take long
                parts.clear()
                yield
        except codegen.ENCODE_FAULTS as fault:
            error = codegen.explain(fault, kind.__name__, version)
        else:
            return b"".join([*whole, *parts])
        raise error

    @classmethod
    def _encoded(cls, part: Struct, version: int) -> list[Buffer]:
        """A message of this class, or a structure inside one."""
        kind = type(part)
        encoder = cls._encoders.get((kind, version))
        if encoder is None:
            cls._check_version(version)
            encoder = encoders.compile_encoder(kind, version, cls.is_flexible(version))
            cls._encoders[kind, version] = encoder
        parts: list[Buffer] = []
        try:
            encoder(part, parts.append)
        except codegen.ENCODE_FAULTS as fault:
            error = codegen.explain(fault, kind.__name__, version)
        else:
            return parts
        raise error

    @classmethod
    def is_flexible(cls, version: int) -> bool:
        return cls.FLEXIBLE_FROM is not None and version >= cls.FLEXIBLE_FROM

    @classmethod
    def _check_version(cls, version: int) -> None:
        if version not in cls.VERSIONS:
            reason = f"the versions are {cls.VERSIONS.start} to {cls.VERSIONS.stop - 1}"
            raise WireError(cls.__name__, version, reason)
