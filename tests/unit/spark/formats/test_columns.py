"""Formats and schemas that are refused, before Spark is asked for anything."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.types import LongType

from penstock.spark.errors import OptionError
from penstock.spark.formats.columns import Schema, format_of


@pytest.mark.parametrize(
    ("text", "schema", "said"),
    [
        ("xml", None, "format 'xml' is unknown; there are raw, string, json, avro"),
        ("json:7", "a int", "format 'json:7' is unknown"),
        ("raw", "a int", "format raw takes no schema"),
        ("json", None, "format json needs a schema; penstock.spark.formats.infer finds one"),
        ("avro", None, "format avro needs a schema"),
        ("avro", LongType(), "takes a schema in Avro's JSON, not a type of Spark"),
        ("avro-confluent:x", "int", "after the colon comes the number of a schema"),
        ("avro", "@not-there.avsc", "the schema @not-there.avsc cannot be read"),
    ],
)
def test_what_is_refused(text: str, schema: Schema, said: str) -> None:
    with pytest.raises(OptionError) as refused:
        format_of(text, schema)
    assert said in str(refused.value)


def test_a_schema_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "id.avsc"
    file.write_text('"long"')
    found = format_of("Avro-Confluent:12", f"@{file}")
    assert (found.name, found.schema, found.header) == ("avro-confluent", '"long"', (12,))
