"""Avro values, in Arrow batches, by fastavro.

Spark's own `from_avro` needs a jar that PySpark does not bring along; fastavro is a wheel. A value
is one datum of the schema, as bytes and nothing around it. A datum has no checksum: it is taken as
corrupt if fastavro cannot read it, if it does not fill its bytes exactly, or if what it says does
not fit its type.

Clients of a schema registry write 5 bytes before the datum: a zero and the schema's id. The bytes
alone do not tell them from a datum, so they are expected by name (`Header`) and hinted at in the
reason where a plain value that cannot be read begins as they do.

Invariants: a batch has as many rows after as before; a bad row spoils no other. Runs in Spark's
Python workers; keeps nothing but schemas (`avro_schema`).
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pyarrow as pa
from fastavro import schemaless_reader, schemaless_writer
from pyspark.sql import Column
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import BinaryType, DataType, StringType, StructField, StructType

from penstock.spark.errors import OptionError, SparkError
from penstock.spark.formats.avro_schema import AvroSchema, avro_schema

REASON_CHARS_MAX: Final = 200
_HEADER: Final = struct.Struct(">bi")
_NOT_ARROW: Final = (pa.ArrowException, OverflowError, ValueError, TypeError)


class Header(NamedTuple):
    """The 5 bytes before a datum; `schema_id` None takes any when reading."""

    schema_id: int | None


def checked(column: Column, schema: str, header: Header | None) -> Column:
    """A struct of value and error for each row of a binary column."""
    kind = avro_schema(schema).spark
    made = StructType([StructField("value", kind), StructField("error", StringType())])

    def avro(values: pa.Array) -> pa.Array:
        return decode_batch(values, schema, header)

    return _applied(avro, made, column)


def written(column: Column, schema: str, header: Header | None) -> Column:
    """Values of a column as Avro."""
    avro_schema(schema)
    if header is not None and header.schema_id is None:
        raise OptionError(
            "format avro-confluent writes the number of a schema: give it, as avro-confluent:7"
        )

    def avro(values: pa.Array) -> pa.Array:
        return encode_batch(values, schema, header)

    return _applied(avro, BinaryType(), column)


def _applied(function: Callable[[pa.Array], pa.Array], made: DataType, column: Column) -> Column:
    """The function over a column, batch by batch; its annotations tell PySpark its kind."""
    result: Column = arrow_udf(function, made)(column)  # type: ignore[call-overload]  # stubs are behind
    return result


def decode_batch(values: pa.Array, schema: str, header: Header | None) -> pa.StructArray:
    """Values and reasons, side by side."""
    kind = avro_schema(schema)
    contents: list[Any] = []
    errors: list[str | None] = []
    for value in values.to_pylist():
        content, error = (None, None) if value is None else _decode(value, kind, header)
        contents.append(content)
        errors.append(error)
    try:
        column = pa.array(contents, kind.arrow)
    except _NOT_ARROW:
        column = _one_by_one(contents, errors, kind.arrow)
    return pa.StructArray.from_arrays([column, pa.array(errors, pa.string())], ["value", "error"])


def encode_batch(values: pa.Array, schema: str, header: Header | None) -> pa.Array:
    """The bytes of each value."""
    kind = avro_schema(schema)
    start = b"" if header is None else _HEADER.pack(0, header.schema_id or 0)
    found: list[bytes | None] = []
    for value in values.to_pylist(maps_as_pydicts="strict"):
        if value is None:
            found.append(None)
            continue
        out = io.BytesIO(start)
        out.seek(len(start))
        try:
            schemaless_writer(out, kind.parsed, value)
        except Exception as e:  # fastavro raises whatever its writers meet
            raise SparkError(
                f"a row does not fit the Avro schema: {_short(e)}; it is"
                f" {repr(value)[:REASON_CHARS_MAX]}"
            ) from None
        found.append(out.getvalue())
    return pa.array(found, pa.binary())


def _decode(value: bytes, kind: AvroSchema, header: Header | None) -> tuple[Any, str | None]:
    start = 0
    if header is not None:
        if (fault := _header_fault(value, header)) is not None:
            return None, fault
        start = _HEADER.size
    stream = io.BytesIO(value)
    stream.seek(start)
    try:
        content = schemaless_reader(stream, kind.parsed, None)
    except Exception as e:  # fastavro raises whatever its readers meet
        return None, f"does not fit the schema: {_short(e)}{_hint(value, header)}"
    left = len(value) - stream.tell()
    if left:
        return None, f"has {left} bytes more than the schema says{_hint(value, header)}"
    return content, None


def _header_fault(value: bytes, header: Header) -> str | None:
    if len(value) < _HEADER.size or value[0] != 0:
        return "does not begin with the 5 bytes (a zero and a schema's id) of a schema registry"
    found = _HEADER.unpack_from(value)[1]
    if header.schema_id is not None and found != header.schema_id:
        return f"was written with schema {found}, not {header.schema_id}"
    return None


def _hint(value: bytes, header: Header | None) -> str:
    if header is not None or len(value) <= _HEADER.size or value[0] != 0:
        return ""
    found = _HEADER.unpack_from(value)[1]
    return (
        f" (it begins as values of a schema registry do, with schema {found}: such are read with"
        " format avro-confluent)"
    )


def _one_by_one(contents: list[Any], errors: list[str | None], kind: pa.DataType) -> pa.Array:
    """The column without the values that do not fit it; the reasons are noted."""
    for row, content in enumerate(contents):
        try:
            pa.array([content], kind)
        except _NOT_ARROW as e:
            contents[row], errors[row] = None, f"has a value out of range: {_short(e)}"
    return pa.array(contents, kind)


def _short(error: Exception) -> str:
    if isinstance(error, EOFError | IndexError):
        return "it ends too early, or chooses what a union or an enum does not have"
    text = str(error) or type(error).__name__
    return text if len(text) <= REASON_CHARS_MAX else text[:REASON_CHARS_MAX] + "..."
