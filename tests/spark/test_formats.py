"""Formats in Spark: what is decoded, what is not and why, and the way back."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.spark.formats import decode, decode_checked, decode_rows, encode, infer, infer_topic
from support.helpers import TopicMaker, produce_all, producer
from support.process import BrokerProcess
from support.spark_flows import objects, send
from support.spark_source import batch, run_to_end, stream

pytestmark = pytest.mark.timeout(400)  # a busy machine takes its time

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "tags", "type": {"type": "map", "values": ["null", "int"]}},
        ],
    }
)


def checked(
    spark: SparkSession, values: list[bytes | None], form: str, schema: Any = None
) -> list[Any]:
    """The value of each, or the reason as a text."""
    rows = spark.createDataFrame([(value,) for value in values], "value binary").coalesce(1)
    found = rows.select(decode_checked("value", form, schema).alias("c")).select("c.*").collect()
    assert all(row["value"] is None or row["error"] is None for row in found)
    return [row["error"] if row["error"] is not None else row["value"] for row in found]


def test_json_of_a_schema(spark: SparkSession) -> None:
    unfit = "does not fit the schema struct<a:int,b:struct<c:timestamp>>"
    wanted: dict[bytes | None, Any] = {
        b'{"a": 1, "b": {"c": "2026-01-01T00:00:00Z"}}': (
            1,
            (datetime.datetime(2026, 1, 1),),
        ),
        b'{"other": "ignored"}': (None, None),
        None: None,
        b"null": None,
        b"": "is not one JSON value",
        b'{"a": 1': "is not JSON",
        b'{"a": 1} trailing': "is not JSON",
        b'{"a": 1}}': "is not JSON",
        b'{"a": 1},"x":{}': "is not JSON",
        b'{"a": 1},{"a": 2}': "is not one JSON value",
        b'{"a": "x"}': unfit,
        b'{"a": 1.5}': unfit,
        b'{"b": {"c": "soon"}}': unfit,
        b"[1]": unfit,
        b"17": unfit,
        b'{"a": "\xff"}': "is not UTF-8",
    }
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    found = checked(spark, list(wanted), "json", "a int, b struct<c: timestamp>")
    assert found == list(wanted.values())


def test_json_of_other_types_and_schemas_that_are_none(spark: SparkSession) -> None:
    assert checked(spark, [b"[1, 2]", b"{}"], "json", "array<int>") == [
        [1, 2],
        "does not fit the schema array<int>",
    ]
    for schema in ("a nonsense", '{"type": "nonsense"}'):
        with pytest.raises(ValueError, match="is neither DDL"):
            decode("value", "json", schema)


def test_text_and_bytes_there_and_back(spark: SparkSession) -> None:
    assert checked(spark, ["ü".encode(), b"\xff", None], "string") == ["ü", "is not UTF-8", None]
    assert checked(spark, [b"\xff", None], "raw") == [b"\xff", None]
    rows = spark.sql(
        "select 'ü' as s, 7 as n, named_struct('a', 1, 't', timestamp_seconds(0)) as v"
    )
    row = rows.select(encode("s", "raw"), encode("n", "string"), encode("v", "json")).first()
    assert row is not None
    assert [bytes(part) for part in row] == [
        "ü".encode(),
        b"7",
        b'{"a":1,"t":"1970-01-01T00:00:00.000Z"}',
    ]


def test_avro_there_and_back(spark: SparkSession) -> None:
    rows = spark.sql(
        "select named_struct('id', id, 'at', timestamp_millis(id), 'tags', map('x', int(id), 'y',"
        " null)) as v from range(100)"
    )
    for form in ("avro", "avro-confluent:5"):
        there = rows.select("v", encode("v", form, AVRO).alias("bytes"))
        back = there.select("v", decode("bytes", form, AVRO).alias("again"))
        assert back.where("v.id = again.id and v.at = again.at").count() == 100
        assert back.where("again.tags['x'] = v.id and again.tags['y'] is null").count() == 100


def test_a_corrupt_value_fails_with_its_place_and_the_query_goes_on_from_there(
    spark: SparkSession, node: BrokerProcess, topic: TopicMaker, tmp_path: Path
) -> None:
    source, target = topic(partitions=2), topic()
    send(node, source, [{"id": 1}, {"id": 2}], partition=1)
    send(node, source, [{"id": "three"}], partition=1)

    def copy(schema: str) -> None:
        rows = decode_rows(
            stream(spark, node, subscribe=source, startingOffsets="earliest"), "json", schema
        )
        writer = rows.select(encode("value", "json").alias("value")).writeStream
        writer = writer.format("penstock").option("kafka.bootstrap.servers", node.bootstrap)
        writer = writer.option("topic", target).option("checkpointLocation", str(tmp_path))
        run_to_end(writer.trigger(availableNow=True).start)

    with pytest.raises(Exception, match="cannot be decoded") as failed:
        copy("id int")
    assert (
        f"column value, topic {source}, partition 1, offset 2 cannot be decoded as json: it does"
        " not fit the schema struct<id:int>; correct the options format and schema"
    ) in str(failed.value)
    copy("id string")
    assert objects(node, target) == [{"id": "1"}, {"id": "2"}, {"id": "three"}]


def test_corrupt_avro_is_named_by_topic_and_offset(
    spark: SparkSession, node: BrokerProcess, topic: TopicMaker
) -> None:
    name = topic()
    produce_all(producer(node), name, [{"value": b"\x02\x00\x00"}, {"value": b"\x02\x00"}])
    rows = decode_rows(batch(spark, node, subscribe=name), "avro", AVRO)
    with pytest.raises(Exception, match="cannot be decoded") as failed:
        rows.select("value").collect()
    said = f"topic {name}, partition 0, offset 1 cannot be decoded as avro: it does not fit"
    assert said in str(failed.value)
    (row,) = rows.where("offset = 0").collect()
    assert row["value"]["id"] == 1


def test_a_schema_is_inferred_from_what_is_there(
    spark: SparkSession, node: BrokerProcess, topic: TopicMaker
) -> None:
    name = topic(partitions=2)
    options = {"kafka.bootstrap.servers": node.bootstrap}
    with pytest.raises(Exception, match=f"topic {name}: column value has no JSON objects"):
        infer_topic(spark, name, **options)
    send(node, name, [{"a": 1}, b"no JSON", None], partition=0)
    send(node, name, [{"a": 1.5, "b": [{"c": "x"}]}], partition=1)
    found = infer_topic(spark, name, **options)
    assert found.simpleString() == "struct<a:double,b:array<struct<c:string>>>"
    rows = spark.createDataFrame([('{"z": true}',)], "text string")
    assert infer(rows, "text").simpleString() == "struct<z:boolean>"
