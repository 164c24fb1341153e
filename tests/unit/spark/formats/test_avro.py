"""Avro batches without Spark: types, corrupt values, and the bytes of a schema registry."""

from __future__ import annotations

import datetime
import io
import json
import struct
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.spark.errors import OptionError, SparkError
from penstock.spark.formats.avro import Header, decode_batch, encode_batch
from penstock.spark.formats.avro_schema import avro_schema

UTC = datetime.UTC


def record(*fields: tuple[str, Any], name: str = "R") -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": field, "type": kind} for field, kind in fields],
    }


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


RICH = json.dumps(
    record(
        ("id", "long"),
        ("small", "int"),
        ("name", ["null", "string"]),
        ("colour", {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}),
        ("tags", {"type": "array", "items": ["null", "string"]}),
        ("counts", {"type": "map", "values": "int"}),
        ("inner", ["null", record(("x", "double"), ("flag", "boolean"), name="Inner")]),
        ("again", ["null", "Inner"]),
        ("millis", logical("long", "timestamp-millis")),
        ("micros", logical("long", "timestamp-micros")),
        ("local", logical("long", "local-timestamp-micros")),
        ("day", logical("int", "date")),
        ("price", logical("bytes", "decimal", precision=6, scale=2)),
        ("uuid", logical("string", "uuid")),
        ("clock", logical("int", "time-millis")),
        ("hash", {"type": "fixed", "name": "Hash", "size": 4}),
        ("wide", ["int", "long"]),
    )
)
ROW: dict[str, Any] = {
    "id": 2**60,
    "small": -1,
    "name": None,
    "colour": "BLUE",
    "tags": ["a", None],
    "counts": {"x": 1},
    "inner": {"x": 0.5, "flag": True},
    "again": None,
    "millis": datetime.datetime(2026, 1, 2, 3, 4, 5, 6000, tzinfo=UTC),
    "micros": datetime.datetime(1969, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
    "local": datetime.datetime(2026, 1, 2, 3, 4, 5, 6),
    "day": datetime.date(2026, 1, 2),
    "price": Decimal("-1234.56"),
    "uuid": "5f2c3e1a-0000-4000-8000-000000000001",
    "clock": 1000,
    "hash": b"\x00\x01\x02\x03",
    "wide": 2**40,
}


def written(schema: str, value: Any) -> bytes:
    """As another program writes it: logical types by their own Python types."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(schema)), value)
    return out.getvalue()


def read(values: list[bytes | None], schema: str, header: Header | None = None) -> list[Any]:
    rows = decode_batch(pa.array(values, pa.binary()), schema, header).to_pylist(
        maps_as_pydicts="strict"
    )
    return [row["value"] if row["error"] is None else row["error"] for row in rows]


def test_every_type_becomes_one_of_spark_and_comes_back() -> None:
    kind = avro_schema(RICH)
    assert kind.spark.simpleString() == (
        "struct<id:bigint,small:int,name:string,colour:string,tags:array<string>,"
        "counts:map<string,int>,inner:struct<x:double,flag:boolean>,"
        "again:struct<x:double,flag:boolean>,millis:timestamp,micros:timestamp,"
        "local:timestamp_ntz,day:date,price:decimal(6,2),uuid:string,clock:int,hash:binary,"
        "wide:bigint>"
    )
    ours = encode_batch(pa.array([ROW, None], kind.arrow), RICH, None).to_pylist()
    theirs = written(RICH, {**ROW, "clock": datetime.time(0, 0, 1)})
    assert ours == [theirs, None]
    assert read([theirs, None], RICH) == [ROW, None]


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("{", "is not one of Avro"),
        ({"type": "record", "fields": []}, "is not one of Avro"),
        ({"type": "nonsense"}, "is not one of Avro"),
        (record(("next", ["null", "R"])), "the schema.next: record R contains itself"),
        (record(), "record R has no fields"),
        (record(("a", ["int", "string"])), "the schema.a: a union of int and string has no type"),
        (record(("a", {"type": "array", "items": "null"})), "the schema.a[]: null is read only"),
        (record(("a", logical("bytes", "decimal", precision=39))), "a decimal of 39 digits"),
    ],
)
def test_schemas_that_spark_has_no_type_for(schema: Any, said: str) -> None:
    with pytest.raises(OptionError) as refused:
        avro_schema(schema if isinstance(schema, str) else json.dumps(schema))
    assert said in str(refused.value)


def test_a_bad_value_has_its_reason_and_spoils_no_other() -> None:
    schema = json.dumps(
        record(
            ("text", "string"),
            ("small", "int"),
            ("price", logical("bytes", "decimal", precision=4, scale=2)),
            ("at", logical("long", "timestamp-millis")),
        )
    )
    plain = json.dumps(record(("text", "string"), ("small", "long"), ("p", "bytes"), ("a", "long")))
    at = datetime.datetime(2026, 1, 1, tzinfo=UTC)
    row = {"text": "x", "small": 1, "price": Decimal("1.50"), "at": at}
    good = written(schema, row)
    bad = {
        b"": "it ends too early",
        good[:-1]: "it ends too early",
        good + b"\x00\x00": "has 2 bytes more than the schema says",
        b"\x02\xff" + good[2:]: "utf-8",
        written(plain, {"text": "", "small": 2**40, "p": b"\x01", "a": 0}): "out of range",
        written(plain, {"text": "", "small": 1, "p": b"\x7f\xff\xff", "a": 0}): "out of range",
        written(plain, {"text": "", "small": 1, "p": b"\x01", "a": 2**62}): "too large",
    }
    found = read([good, *bad, good], schema)
    assert found[0] == found[-1] == row
    for text, said in zip(found[1:-1], bad.values(), strict=True):
        assert said in text


def test_the_bytes_of_a_schema_registry() -> None:
    schema = json.dumps(record(("text", "string")))
    body = written(schema, {"text": "hello"})
    values: list[bytes | None] = [struct.pack(">bi", 0, 7) + body, body, b"\x00"]
    row = {"text": "hello"}
    assert read(values, schema, Header(None))[0] == row
    assert read(values, schema, Header(7))[0] == row
    assert read(values, schema, Header(8))[0] == "was written with schema 7, not 8"
    for reason in read(values, schema, Header(None))[1:]:
        assert "does not begin with the 5 bytes" in reason
    assert "with schema 7: such are read with format avro-confluent" in read(values, schema)[0]
    rows = pa.array([row], avro_schema(schema).arrow)
    assert encode_batch(rows, schema, Header(7)).to_pylist() == values[:1]


def test_a_row_that_does_not_fit_cannot_be_written() -> None:
    schema = json.dumps(record(("a", "int")))
    with pytest.raises(SparkError, match=r"does not fit the Avro schema.*'a': None"):
        encode_batch(pa.array([{"a": None}], pa.struct([("a", pa.int32())])), schema, None)


@settings(max_examples=200)
@given(st.lists(st.binary(max_size=60), max_size=10))
def test_fuzz_any_bytes_are_a_value_or_an_error(values: list[bytes]) -> None:
    found = decode_batch(pa.array([*values, None], pa.binary()), RICH, None).to_pylist()
    assert len(found) == len(values) + 1
    assert found[-1] == {"value": None, "error": None}
    assert all((row["value"] is None) != (row["error"] is None) for row in found[:-1])
