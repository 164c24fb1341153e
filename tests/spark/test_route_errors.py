"""Dead letters: sorted out with their reason, and sent back once."""

from __future__ import annotations

import io
import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Message

from penstock.spark.ready import redrive, route_errors
from support.helpers import TopicMaker, produce_all, producer
from support.process import BrokerProcess
from support.spark_flows import run, send, start
from support.spark_sink import committed, values

pytestmark = pytest.mark.timeout(900)  # a busy machine takes its time

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "id int, price double"


def headers(message: Message) -> dict[str, str]:
    found: Any = message.headers() or []
    return {name: (value or b"").decode() for name, value in found}


def reasons(node: BrokerProcess, dead: str) -> Counter[str]:
    """The reasons of all letters; notes have none."""
    return Counter(
        headers(m)["penstock.dead.reason"]
        for m in committed(node, dead)
        if "penstock.dead.reason" in headers(m)
    )


def test_good_and_bad_records_part_and_come_back_once(
    spark: SparkSession, node: BrokerProcess, topic: TopicMaker, tmp_path: Path
) -> None:
    source, good, dead = topic(partitions=2), topic(), topic(partitions=3)
    settings = {"topic": source, "to": good, "dead": dead, "checkpoint": str(tmp_path)}
    settings |= {"value_schema": SCHEMA, "check": "value.price > 0"}
    fine = [json.dumps({"id": n, "price": n + 1}).encode() for n in range(20)]
    broken = [b'{"id": 1', b'{"id": "x"}', b'{"id": 7, "price": 0}', b'{"id": 8}']
    more: dict[str, Any] = {"key": b"k", "headers": [("mine", b"1")], "partition": 1}
    send(node, source, [*fine[:10], *broken], **more, timestamp=1_700_000_000_123)
    run(spark, node, route_errors.pipeline, **settings)
    assert values(node, good) == Counter(fine[:10])
    wanted = {
        broken[0]: "cannot be decoded as json: it is not JSON",
        broken[1]: "cannot be decoded as json: it does not fit the schema"
        " struct<id:int,price:double>",
        broken[2]: "is not value.price > 0",
        broken[3]: "is not value.price > 0",
    }
    letters = committed(node, dead)
    had = (TIMESTAMP_CREATE_TIME, 1_700_000_000_123)
    assert {m.timestamp() for m in [*letters, *committed(node, good)]} == {had}
    assert {m.value(): headers(m)["penstock.dead.reason"] for m in letters} == wanted
    first = next(m for m in letters if m.value() == broken[0])
    assert (first.key(), headers(first)) == (
        b"k",
        {
            "mine": "1",
            "penstock.dead.reason": wanted[broken[0]],
            "penstock.dead.topic": source,
            "penstock.dead.partition": "1",
            "penstock.dead.offset": "10",
            "penstock.dead.timestamp": "1700000000123",
            "penstock.dead.attempts": "1",
        },
    )
    # Goes on where it was, with nothing doubled.
    send(node, source, [*fine[10:], b"no JSON"])
    run(spark, node, route_errors.pipeline, **settings)
    assert values(node, good) == Counter(fine)
    assert values(node, dead) == Counter([*broken, b"no JSON"])

    # Two letters go back by their reason, the same command sends none twice, and they fail again.
    back: dict[str, Any] = {"dead": dead, "reason": "is not value.price"}
    for _ in range(2):
        start(spark, node, redrive.pipeline, **back)
    returned = [m for m in committed(node, source) if "penstock.dead.attempts" in headers(m)]
    assert Counter(m.value() for m in returned) == Counter(broken[2:])
    assert [(m.key(), headers(m), m.timestamp()) for m in returned] == [
        (b"k", {"mine": "1", "penstock.dead.attempts": "1"}, had)
    ] * 2
    run(spark, node, route_errors.pipeline, **settings)
    assert values(node, good) == Counter(fine)
    assert reasons(node, dead) == Counter(
        [*wanted.values(), *list(wanted.values())[2:], wanted[broken[0]]]
    )
    again = [m for m in committed(node, dead) if headers(m).get("penstock.dead.attempts") == "2"]
    assert Counter(m.value() for m in again) == Counter(broken[2:])

    # The rest, to a topic of choice, in two steps; letters that failed twice stay.
    other = topic()
    for limit in (2, None, None):
        start(spark, node, redrive.pipeline, dead=dead, to=other, limit=limit, attempts=1)
        if limit:
            assert len(committed(node, other)) == limit
    assert values(node, other) == Counter([*broken[:2], b"no JSON"])


def test_letters_of_a_time(spark: SparkSession, node: BrokerProcess, topic: TopicMaker) -> None:
    dead, target = topic(partitions=2), topic()
    for hour in range(4):
        made = {"timestamp": 1_700_000_000_000 + hour * 3_600_000, "partition": hour % 2}
        reason = [("penstock.dead.reason", b"r"), ("penstock.dead.topic", target.encode())]
        produce_all(producer(node), dead, [{"value": b"%d" % hour, "headers": reason, **made}])
    foreign = {"value": b"no letter", "timestamp": 1_700_003_600_000}
    produce_all(producer(node), dead, [foreign])
    span = {"since": "2023-11-14T23:13:20Z", "until": "2023-11-15T01:13:20Z"}  # hours 1 and 2
    start(spark, node, redrive.pipeline, dead=dead, **span)
    assert values(node, target) == {b"1": 1, b"2": 1}


def test_corrupt_avro(
    spark: SparkSession, node: BrokerProcess, topic: TopicMaker, tmp_path: Path
) -> None:
    source, good, dead = topic(), topic(), topic()
    schema = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}
    file = tmp_path / "r.avsc"
    file.write_text(json.dumps(schema))

    def body(number: int) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, {"id": number})
        return out.getvalue()

    fine = [body(n) for n in range(100)]
    send(node, source, [*fine, fine[-1] + b"x", None])
    run(
        spark,
        node,
        route_errors.pipeline,
        topic=source,
        to=good,
        dead=dead,
        checkpoint=str(tmp_path / "checkpoint"),
        value_format="avro",
        value_schema=f"@{file}",
    )
    assert values(node, good) == Counter([*fine, b""]), "a record without a value is no error"
    assert reasons(node, dead) == {
        "cannot be decoded as avro: it has 1 bytes more than the schema says": 1
    }
