"""Columns from bytes and back, by the name of a format.

Duty: finds the format, refuses a schema that is missing or too much, and makes the expressions.
Everything but Avro is done by expressions of the JVM. Nothing here runs in a task.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import DataType

from penstock.spark.errors import OptionError
from penstock.spark.formats import avro, json_text

FORMATS: Final = ("raw", "string", "json", "avro", "avro-confluent")
PLACE: Final = ("topic", "partition", "offset")
"""Columns of the source that say where a row is."""
_CHECKED: Final = "_checked"

Schema = str | DataType | None


class Format(NamedTuple):
    """A format, with all that is needed to read and write it."""

    name: str
    schema: str | DataType
    header: avro.Header | None = None


def decode(column: str | Column, format: str, schema: Schema = None) -> Column:  # noqa: A002
    """The content of a binary column; null where it cannot be decoded."""
    return decode_checked(column, format, schema)["value"]


def decode_checked(
    column: str | Column,
    format: str,  # noqa: A002
    schema: Schema = None,
) -> Column:
    """A struct of `value` and `error`: the content, or why there is none. One of them is null."""
    found = format_of(format, schema)
    bytes_ = sf.col(column) if isinstance(column, str) else column
    if found.name == "raw":
        return sf.struct(bytes_.alias("value"), sf.lit(None).cast("string").alias("error"))
    if found.name == "string":
        return json_text.checked_text(bytes_)
    if found.name == "json":
        return json_text.checked(bytes_, found.schema)
    return avro.checked(bytes_, str(found.schema), found.header)


def decode_rows(
    rows: DataFrame,
    format: str,  # noqa: A002
    schema: Schema = None,
    *,
    column: str = "value",
) -> DataFrame:
    """The rows with the column decoded in its place. A row that cannot be decoded fails the query,
    with its topic, partition and offset if the rows have these columns.
    """
    checked = rows.withColumn(_CHECKED, decode_checked(column, format, schema))
    place = [sf.lit(f"column {column}")]
    for name in PLACE:
        if name in rows.columns:
            place += [sf.lit(f", {name} "), sf.col(name).cast("string")]
    sentence = sf.concat(
        *place,
        sf.lit(f" cannot be decoded as {format}: it "),
        sf.col(f"{_CHECKED}.error"),
        sf.lit(
            "; correct the options format and schema, or send such rows elsewhere with the"
            " pipeline route-errors"
        ),
    )
    bad = sf.col(f"{_CHECKED}.error").isNotNull()
    value = sf.when(bad, sf.raise_error(sentence)).otherwise(sf.col(f"{_CHECKED}.value"))
    return checked.withColumn(column, value).drop(_CHECKED)


def encode(column: str | Column, format: str, schema: Schema = None) -> Column:  # noqa: A002
    """A binary column of the content; a row that does not fit the schema fails the query."""
    content = sf.col(column) if isinstance(column, str) else column
    name = format.partition(":")[0]
    if name == "json" and schema is None:
        return json_text.written(content)
    found = format_of(format, schema)
    if found.name in ("raw", "string"):
        return content.cast("string").cast("binary") if name == "string" else content.cast("binary")
    if found.name == "json":
        raise OptionError("a column knows what its JSON looks like: leave the option schema out")
    return avro.written(content, str(found.schema), found.header)


def format_of(text: str, schema: Schema) -> Format:
    """The format of a name; refuses one that is unknown, and a schema that does not go with it."""
    name, colon, number = text.strip().lower().partition(":")
    if name not in FORMATS or (colon and name != "avro-confluent"):
        raise OptionError(f"format {text!r} is unknown; there are {', '.join(FORMATS)}")
    if name in ("raw", "string"):
        if schema is not None:
            raise OptionError(f"format {name} takes no schema")
        return Format(name, "")
    if schema is None:
        raise OptionError(
            f"format {name} needs a schema"
            + ("; penstock.spark.formats.infer finds one" if name == "json" else "")
        )
    given = _content(schema)
    if name == "json":
        return Format(name, given)
    if not isinstance(given, str):
        raise OptionError(f"format {name} takes a schema in Avro's JSON, not a type of Spark")
    return Format(name, given, _header(text, colon, number) if name != "avro" else None)


def _header(text: str, colon: str, number: str) -> avro.Header:
    if not colon:
        return avro.Header(None)
    if not number.isdecimal() or int(number) >= 2**31:
        raise OptionError(f"format {text!r}: after the colon comes the number of a schema")
    return avro.Header(int(number))


def _content(schema: str | DataType) -> str | DataType:
    """The schema, from its file if it is a path."""
    if not isinstance(schema, str) or not schema.startswith("@"):
        return schema
    try:
        return Path(schema[1:]).read_text()
    except (OSError, UnicodeDecodeError) as e:
        raise OptionError(f"the schema {schema} cannot be read: {e}") from None
