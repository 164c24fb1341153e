"""Avro's schemas as types of Spark and Arrow.

| Avro | Spark |
|---|---|
| boolean, int, long, float, double, bytes, string | the same (bytes: binary) |
| fixed, enum | binary, string |
| record, array, map | struct, array, map of strings |
| a union of null and one more | that one, nullable |
| a union of int and long, or float and double | long, or double |
| timestamp-millis, timestamp-micros | timestamp |
| local-timestamp-millis, local-timestamp-micros | timestamp_ntz |
| date, decimal | date, decimal |
| uuid of a string | string |
| every other logical type | what it is made of |

Limits, each refused with a sentence: other unions, records that contain themselves (no type of
Spark does), records without fields, null outside a union, decimals of more than 38 digits. What is
left takes at least a byte for each item of an array, so that the size of a value bounds what it
decodes to.
"""

from __future__ import annotations

import functools
import json
from typing import Any, Final, NamedTuple

import fastavro
import pyarrow as pa
from fastavro.schema import SchemaParseException, UnknownType
from pyspark.sql import types as st
from pyspark.sql.pandas.types import to_arrow_type

from penstock.spark.errors import OptionError

DECIMAL_DIGITS_MAX: Final = 38
SCHEMAS_CACHED_MAX: Final = 64

_PRIMITIVES: Final[dict[str, st.DataType]] = {
    "boolean": st.BooleanType(),
    "int": st.IntegerType(),
    "long": st.LongType(),
    "float": st.FloatType(),
    "double": st.DoubleType(),
    "bytes": st.BinaryType(),
    "string": st.StringType(),
    "fixed": st.BinaryType(),
    "enum": st.StringType(),
}
_LOGICAL: Final[dict[tuple[str, str], st.DataType]] = {
    ("long", "timestamp-millis"): st.TimestampType(),
    ("long", "timestamp-micros"): st.TimestampType(),
    ("long", "local-timestamp-millis"): st.TimestampNTZType(),
    ("long", "local-timestamp-micros"): st.TimestampNTZType(),
    ("int", "date"): st.DateType(),
}
_KEPT: Final = frozenset({name for _, name in _LOGICAL} | {"decimal"})
_WIDER: Final = {frozenset({"int", "long"}): "long", frozenset({"float", "double"}): "double"}


class AvroSchema(NamedTuple):
    """A schema, as fastavro, Spark and Arrow want it."""

    parsed: Any
    spark: st.DataType
    arrow: pa.DataType


@functools.lru_cache(maxsize=SCHEMAS_CACHED_MAX)
def avro_schema(text: str) -> AvroSchema:
    """Reads a schema; kept by whoever asks often, as the tasks of a query do."""
    named: dict[str, Any] = {}
    try:
        parsed = fastavro.parse_schema(_reduced(_value(text)), named_schemas=named)
    except (SchemaParseException, UnknownType, TypeError, KeyError, ValueError) as e:
        raise OptionError(f"the schema is not one of Avro: {e or type(e).__name__}") from None
    spark, _ = _Mapping(named).of(parsed, "the schema", ())
    return AvroSchema(parsed, spark, to_arrow_type(spark, timezone="UTC"))


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        if text.strip().isidentifier():
            return text.strip()  # a bare name, as in: string
        raise


def _reduced(schema: Any) -> Any:
    """The schema without the logical types that are read as what they are made of."""
    if isinstance(schema, list):
        return [_reduced(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: _reduced(part) for name, part in schema.items() if name != "default"}
    if "default" in schema:
        kept["default"] = schema["default"]
    if isinstance(kept.get("type"), str) and kept.get("logicalType") not in _KEPT:
        kept.pop("logicalType", None)
    return kept


class _Mapping:
    """From a parsed schema to Spark's type; `path` is where in the schema, for messages."""

    def __init__(self, named: dict[str, Any]) -> None:
        self._named = named

    def of(self, schema: Any, path: str, within: tuple[str, ...]) -> tuple[st.DataType, bool]:
        """The type, and whether it can be null. `within` are the records around this place."""
        if isinstance(schema, list):
            return self._union(schema, path, within)
        if isinstance(schema, str):
            if schema in _PRIMITIVES:
                return _PRIMITIVES[schema], False
            if schema == "null":
                raise OptionError(f"{path}: null is read only in a union with another type")
            return self.of(self._named[schema], path, within)
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.of(kind, path, within)
        if kind == "record":
            return self._record(schema, path, within), False
        if kind == "array":
            items, nullable = self.of(schema["items"], f"{path}[]", within)
            return st.ArrayType(items, nullable), False
        if kind == "map":
            values, nullable = self.of(schema["values"], f"{path}{{}}", within)
            return st.MapType(st.StringType(), values, nullable), False
        return self._simple(schema, kind, path, within)

    def _simple(
        self, schema: Any, kind: str, path: str, within: tuple[str, ...]
    ) -> tuple[st.DataType, bool]:
        logical = schema.get("logicalType")
        if logical == "decimal" and kind in ("bytes", "fixed"):
            return _decimal(schema, path), False
        if kind == "fixed" and schema["size"] < 1:
            raise OptionError(f"{path}: a fixed of no bytes is not read")
        return _LOGICAL.get((kind, str(logical))) or self.of(kind, path, within)[0], False

    def _record(self, schema: Any, path: str, within: tuple[str, ...]) -> st.DataType:
        name = schema["name"]
        if name in within:
            raise OptionError(
                f"{path}: record {name} contains itself, which no type of Spark does; decode such"
                " values with a function of your own"
            )
        if not schema["fields"]:
            raise OptionError(f"{path}: record {name} has no fields")
        fields = []
        for field in schema["fields"]:
            kind, nullable = self.of(field["type"], f"{path}.{field['name']}", (*within, name))
            fields.append(st.StructField(field["name"], kind, nullable))
        return st.StructType(fields)

    def _union(
        self, branches: list[Any], path: str, within: tuple[str, ...]
    ) -> tuple[st.DataType, bool]:
        others = [branch for branch in branches if branch != "null"]
        if len(others) == 1:
            return self.of(others[0], path, within)[0], len(others) < len(branches)
        names = [b if isinstance(b, str) else str(b.get("type")) for b in others]
        wider = _WIDER.get(frozenset(names))
        if wider is None or any(isinstance(b, dict) and "logicalType" in b for b in others):
            raise OptionError(
                f"{path}: a union of {' and '.join(names) or 'nothing'} has no type in Spark; null"
                " and one other type can be read, int and long, float and double"
            )
        return _PRIMITIVES[wider], len(others) < len(branches)


def _decimal(schema: Any, path: str) -> st.DecimalType:
    precision, scale = schema["precision"], schema.get("scale", 0)
    if precision > DECIMAL_DIGITS_MAX:
        raise OptionError(
            f"{path}: a decimal of {precision} digits; Spark has at most {DECIMAL_DIGITS_MAX}"
        )
    return st.DecimalType(precision, scale)
