"""Text and JSON: expressions of the JVM, with the reason where they fail.

Spark's `from_json` reads the first JSON value of a text and is silent about what follows, and says
which rows are corrupt only in a field of a struct. So the text is read as the one item of an array
in an object around it, whose end must be found behind it: what follows the value breaks the array
or is another item, and any type can be asked for.

Limits: the reason tells broken JSON from JSON that does not fit, not the field. Fields that the
schema does not name are left out, fields that a value does not have are null, as Spark has it.
`infer` looks at `SAMPLE_ROWS` values; where it looks again after a restart, it has to find the
same, so a pipeline that lives long is better given its schema.
"""

from __future__ import annotations

import json
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    StringType,
    StructField,
    StructType,
)

from penstock.kafka.errors import ClientError
from penstock.spark.errors import OptionError, SparkError

SAMPLE_ROWS: Final = 1000
_CORRUPT: Final = "_corrupt_record"
_END: Final = "_end"
_OPTIONS: Final = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT,
    "timeZone": "UTC",
}


def checked_text(column: Column) -> Column:
    """Text, or that it is none."""
    error = sf.when(column.isNotNull() & ~sf.is_valid_utf8(column), sf.lit("is not UTF-8"))
    return sf.struct(
        sf.when(error.isNull(), column.cast("string")).alias("value"), error.alias("error")
    )


def checked(column: Column, schema: str | DataType) -> Column:
    """What JSON of the schema says, or that it is none."""
    kind = spark_type(schema)
    text = sf.concat(sf.lit('{"v":['), column.cast("string"), sf.lit(f'],"{_END}":true}}'))
    around = StructType(
        [
            StructField("v", ArrayType(kind)),
            StructField(_END, BooleanType()),
            StructField(_CORRUPT, StringType()),
        ]
    )
    read = sf.from_json(text, around, _OPTIONS)
    fault = sf.when(sf.try_parse_json(text).isNull(), sf.lit("is not JSON")).otherwise(
        sf.lit(f"does not fit the schema {_short(kind)}")
    )

    def judged(parsed: Column) -> Column:
        error = (
            sf.when(column.isNull(), sf.lit(None))
            .when(~sf.is_valid_utf8(column), sf.lit("is not UTF-8"))
            .when(parsed[_CORRUPT].isNotNull() | parsed[_END].isNull(), fault)
            .when(sf.size(parsed["v"]) != 1, sf.lit("is not one JSON value"))
        )
        value = sf.when(error.isNull(), parsed["v"][0])
        return sf.struct(value.alias("value"), error.alias("error"))

    # As the item of an array it has a name, by which it is used twice and parsed once.
    return sf.transform(sf.array(read), judged)[0]


def written(column: Column) -> Column:
    """JSON of a struct, array or map, times in UTC."""
    return sf.to_json(column, {"timeZone": "UTC"}).cast("binary")


def spark_type(schema: str | DataType) -> DataType:
    """The type that DDL or Spark's own JSON describes."""
    if isinstance(schema, DataType):
        return schema
    try:
        if schema.lstrip().startswith("{"):
            return StructType.fromJson(_object(schema))
        return DataType.fromDDL(schema)
    except Exception as e:  # Spark's parser has several kinds of errors
        raise OptionError(
            f"the schema {schema[:200]!r} is neither DDL, as in 'id long, at timestamp', nor a"
            f" struct in Spark's JSON: {str(e).splitlines()[0] if str(e) else type(e).__name__}"
        ) from None


def infer(rows: DataFrame, column: str = "value", sample: int = SAMPLE_ROWS) -> StructType:
    """The schema of JSON objects, from the first values of a DataFrame that is no stream."""
    if rows.isStreaming:
        raise SparkError(
            "a schema cannot be inferred from a stream: infer it from a batch of the same topic,"
            " or give it"
        )
    texts = rows.where(sf.col(column).isNotNull()).limit(sample)
    found = rows.sparkSession.read.json(texts.select(sf.col(column).cast("string"))).schema
    fields = [field for field in found.fields if field.name != _CORRUPT]
    if not fields:
        raise SparkError(
            f"column {column} has no JSON objects in its first {sample} values, so their schema"
            " cannot be inferred: give it"
        )
    return StructType(fields)


def infer_topic(spark: SparkSession, topic: str, column: str = "value", **kafka: str) -> StructType:
    """The schema of a topic's JSON objects, from its oldest records."""
    rows = (
        spark.read.format("penstock")
        .options(**kafka)
        .option("subscribe", topic)
        .option("isolation.level", "read_committed")
        .option("maxRecordsPerPartition", str(SAMPLE_ROWS))
        .load()
    )
    try:
        return infer(rows, column)
    except ClientError as e:
        raise SparkError(f"topic {topic}: {e}") from None


def _object(text: str) -> dict[str, object]:
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError("it is no object")
    return found


def _short(kind: DataType) -> str:
    text = kind.simpleString()
    return text if len(text) <= 200 else text[:200] + "..."
