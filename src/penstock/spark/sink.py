"""What a query asks of the sink: options, columns, and how they are named in transactions.

Duty: the sink's own table of options, the check of a query's columns, and the names of
transactional ids. Spark's own Kafka sink has the same columns, but for `timestamp`, and the options
`topic` and `kafka.*`; the others are new, since that sink knows no transactions.

A task's transactional id is `PREFIX-QUERY-TASK`. For a stream QUERY is the id that lies in the
checkpoint, so that a restarted query finds its own transactions again; for a batch it is `txnAppId`
or, without it, chance.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.kafka.client import Client
from penstock.kafka.settings import BOOTSTRAP, Settings
from penstock.spark.client_settings import spark_client
from penstock.spark.errors import OptionError, SparkError
from penstock.spark.options import Options
from penstock.wire.compression import Compression

SINK_OPTIONS: Final[dict[str, str]] = {
    "topic": "the topic of all rows; else the column topic says it for each",
    "delivery": "exactly-once or at-least-once",
    "transactionalIdPrefix": "what names of transactions begin with; stays with a checkpoint",
    "txnAppId": "of a batch: rows of the same txnAppId and txnVersion are written once",
    "txnVersion": "of a batch: a number that rises with each batch of a txnAppId",
    "checkpointLocation": "where Spark keeps a stream's progress",
    "includeHeaders": "no effect: headers are written where rows have the column",
    "path": "not used; Spark may give it",
    "queryName": "not used; Spark hands the name of a stream on",
}
EXACTLY_ONCE: Final = "exactly-once"
AT_LEAST_ONCE: Final = "at-least-once"
PREFIX: Final = "penstock-spark"
TRANSACTION_TIMEOUT_MS: Final = 900_000
"""The largest that brokers allow by default: a task's transaction stays open until the last task of
the batch is done and the driver commits.
"""
SETTLE_MS: Final = 120_000
"""How long an election or a restart of a broker may take; Kafka's delivery.timeout.ms."""
ALWAYS: Final = {"acks": ("all", "-1"), "enable.idempotence": ("true",)}
"""kafka.* options that may be given, but only as they are anyway."""

_NAMES = {name.lower(): name for name in SINK_OPTIONS}
_TEXT = (StringType, BinaryType)
_COLUMNS: Final[dict[str, tuple[tuple[type[DataType], ...], str]]] = {
    "topic": ((StringType,), "string"),
    "key": (_TEXT, "string or binary"),
    "value": (_TEXT, "string or binary"),
    "partition": ((IntegerType,), "int"),
    "headers": ((ArrayType,), "array<struct<key:string,value:binary>>"),
    "timestamp": ((TimestampType,), "timestamp"),
}


@dataclass(frozen=True)
class SinkOptions:
    """The options of a query that writes."""

    bootstrap: str
    client: Client
    topic: str | None
    exactly_once: bool
    prefix: str
    app_id: str | None
    app_version: int | None
    compression: Compression
    transaction_timeout_ms: int
    settle_s: float
    checkpoint: str | None = None

    def transactional_id(self, query: str, task: int) -> str:
        return f"{self.prefix}-{query}-{task}"

    def given_up_id(self, job: str) -> str:
        """The transactional id that exists from the moment when a job of this name is given up."""
        return f"{self.prefix}-{job}-given-up"


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """The options, checked as far as they can be without a cluster."""
    options = Options(given, _NAMES)
    kafka = options.kafka
    _check_always(kafka)
    app_id, app_version = options.get("txnAppId"), options.whole_number("txnVersion", least=0)
    if (app_id is None) != (app_version is None):
        raise OptionError("options txnAppId and txnVersion go together: give both or none")
    if app_id is not None and not app_id.strip():
        raise OptionError("option txnAppId is empty: name the job, and always by the same name")
    delivery = options.one_of("delivery", (EXACTLY_ONCE, AT_LEAST_ONCE), EXACTLY_ONCE)
    timeout_ms = kafka.number("transaction.timeout.ms", TRANSACTION_TIMEOUT_MS)
    return SinkOptions(
        bootstrap=kafka.get(BOOTSTRAP),
        client=spark_client(kafka),
        topic=options.get("topic"),
        exactly_once=delivery == EXACTLY_ONCE,
        prefix=options.get("transactionalIdPrefix") or PREFIX,
        app_id=app_id,
        app_version=app_version,
        compression=_compression(kafka.get("compression.type", "none")),
        transaction_timeout_ms=timeout_ms,
        settle_s=kafka.number("delivery.timeout.ms", SETTLE_MS) / 1000,
        checkpoint=options.get("checkpointLocation"),
    )


def _check_always(kafka: Settings) -> None:
    for name, allowed in ALWAYS.items():
        if kafka.get(name, allowed[0]).strip().lower() not in allowed:
            raise OptionError(
                f"option kafka.{name} is {kafka.get(name)}: the sink always writes with"
                f" {allowed[0]}"
            )


def _compression(text: str) -> Compression:
    try:
        return Compression[text.strip().upper()]
    except KeyError:
        names = ", ".join(kind.name.lower() for kind in Compression)
        raise OptionError(
            f"option kafka.compression.type must be one of {names}, not {text!r}"
        ) from None


def check_columns(schema: StructType, options: SinkOptions) -> None:
    """Refuses a query whose rows cannot be written; columns of other names are not looked at."""
    found = {field.name: field for field in schema.fields}
    if "value" not in found:
        raise SparkError(
            "there is no column 'value' to write: the sink takes value (string or binary), and if"
            f" there are any key, topic, partition and headers; the query has"
            f" {', '.join(found) or 'no columns'}"
        )
    if options.topic is None and "topic" not in found:
        raise OptionError("give the option topic, or the rows a column 'topic'")
    for name, (kinds, wanted) in _COLUMNS.items():
        field = found.get(name)
        if field is not None and not (isinstance(field.dataType, kinds) and _is_whole(field)):
            raise SparkError(
                f"column {name!r} is {field.dataType.simpleString()}, the sink wants {wanted}:"
                " cast it, or give it another name"
            )


def _is_whole(field: StructField) -> bool:
    """Whether an array is one of headers; anything else is what its type says."""
    if not isinstance(field.dataType, ArrayType):
        return True
    element = field.dataType.elementType
    if not isinstance(element, StructType):
        return False
    kinds = [(inner.name, type(inner.dataType)) for inner in element.fields]
    return kinds == [("key", StringType), ("value", BinaryType)]
