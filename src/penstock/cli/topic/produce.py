"""`penstock topic produce`: publish lines of a file or of stdin.

Messages are handed to librdkafka as they are read; a message that cannot be delivered is
reported with the number of its line, and the others go on.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from typing import IO, Annotated, Any

import typer
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from penstock.cli.access import Access
from penstock.cli.errors import EXIT_FAILED, CliError, usage_error
from penstock.cli.kafka import Cluster, pick_partitions
from penstock.cli.options import (
    Acks,
    Format,
    OutputFormat,
    TopicName,
)
from penstock.cli.output import plural, print_json, progress, remark
from penstock.cli.topic.create import create_topic
from penstock.cli.topic.lines import BadLine, line_parser
from penstock.cli.values import parse_headers

REPORTED_FAILURES_MAX = 10
"""So many failed lines are named one by one; the rest is only counted."""

MESSAGE_BYTES_MAX = 1_000_000_000
"""librdkafka's own ceiling: the topic's max.message.bytes decides, not the client."""


LINGER_MS = 5


class Input(StrEnum):
    LINES = "lines"
    KEY_VALUE = "key-value"
    JSON = "json"


class CompressionName(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Publisher:
    """One producer and what became of its messages."""

    def __init__(self, producer: Producer, topic: str) -> None:
        self.sent = 0
        self.failed = 0
        self._producer = producer
        self._topic = topic

    def publish(self, line: int, fields: dict[str, Any]) -> None:
        """Queue one message, waiting while librdkafka's queue is full."""
        fields["on_delivery"] = partial(self._delivered, line)
        while True:
            try:
                self._producer.produce(self._topic, **fields)
                break
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as e:
                self.fail(line, e.args[0].str())
                return
        self.sent += 1
        self._producer.poll(0)

    def fail(self, line: int, reason: str) -> None:
        self.failed += 1
        if self.failed <= REPORTED_FAILURES_MAX:
            print(f"line {line}: {reason}", file=sys.stderr)

    def _delivered(self, line: int, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self.sent -= 1
            self.fail(line, error.str())

    def finish(self) -> None:
        """Wait until every message is delivered or has failed; the client's own time limit bounds
        it.
        """
        while self._producer.flush(0.2):
            pass


def produce(
    access: Access,
    name: TopicName,
    input_form: Annotated[
        Input,
        typer.Option(
            "--input",
            help="lines: a line is a value; key-value: KEY:VALUE; json: an object per line with"
            " value and, if wanted, key, headers, timestamp (ms) and partition.",
        ),
    ] = Input.LINES,
    key_separator: Annotated[
        str | None,
        typer.Option(
            "--key-separator",
            metavar="TEXT",
            help="What parts key and value, ':' if left out; implies --input key-value.",
        ),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(
            "--header",
            "-H",
            metavar="KEY=VALUE",
            help="A header for every message; may be repeated.",
        ),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option("--partition", min=0, help="Partition for all messages; by key if left out."),
    ] = None,
    compression: Annotated[
        CompressionName, typer.Option("--compression", help="How batches are compressed.")
    ] = CompressionName.NONE,
    acks: Annotated[
        Acks, typer.Option("--acks", help="Who must have a message before it counts as delivered.")
    ] = Acks.ALL,
    file: Annotated[
        str, typer.Option("--file", "-f", metavar="FILE", help="File to read, - for stdin.")
    ] = "-",
    create: Annotated[
        bool, typer.Option("--create", help="Create the topic if it does not exist.")
    ] = False,
    output_format: OutputFormat = Format.TEXT,
) -> int:
    """Publish each line of stdin or of a file as a message to the topic NAME."""
    if key_separator is not None:
        if not key_separator or input_form is Input.JSON:
            raise usage_error(
                "--key-separator needs at least one character, and lines that are not JSON"
            )
        input_form = Input.KEY_VALUE
    headers = parse_headers(header or ())
    cluster = Cluster(access)
    _prepare_topic(cluster, name, partition, create=create)
    with _open(file) as stream:
        started = time.monotonic()
        publisher = Publisher(_producer(cluster, acks, compression), name)
        try:
            _publish_lines(
                publisher, stream, input_form, (key_separator or ":").encode(), headers, partition
            )
        finally:
            publisher.finish()
    _summary(publisher, name, time.monotonic() - started, output_format)
    return EXIT_FAILED if publisher.failed else 0


def _producer(cluster: Cluster, acks: Acks, compression: CompressionName) -> Producer:
    timeout_ms = int(cluster.timeout_s * 1000)
    settings = {
        "acks": acks.value,
        "compression.type": compression.value,
        "linger.ms": LINGER_MS,
        "message.timeout.ms": timeout_ms,
        "request.timeout.ms": timeout_ms,
        "message.max.bytes": MESSAGE_BYTES_MAX,
    }
    return cluster.producer(settings)


def _prepare_topic(cluster: Cluster, name: str, partition: int | None, *, create: bool) -> None:
    admin = cluster.admin()
    topics = cluster.topics(admin)
    if name not in topics:
        if not create:
            advice = f"make it with `penstock topic create {name}`, or add --create"
            raise cluster.missing_topic(name, topics, advice)
        create_topic(cluster, admin, name, None, None, {}, may_exist=True)
    elif partition is not None:
        pick_partitions(name, topics[name], partition)


@contextmanager
def _open(file: str) -> Iterator[IO[bytes]]:
    if file == "-":
        if sys.stdin.isatty():
            print("type one message per line; Ctrl-D ends the input", file=sys.stderr)
        yield sys.stdin.buffer
        return
    try:
        with open(file, "rb") as stream:
            yield stream
    except OSError as e:
        if e.filename != file:
            raise
        reason = (e.strerror or str(e)).lower()
        raise CliError(f"cannot read {file}: {reason}; check --file") from None


def _publish_lines(
    publisher: Publisher,
    stream: IO[bytes],
    form: Input,
    separator: bytes,
    headers: list[tuple[str, bytes]],
    partition: int | None,
) -> None:
    parse = line_parser(form.value, separator)
    with progress("publishing", None, wanted=not stream.isatty()) as bar:
        for number, raw in enumerate(stream, start=1):
            line = raw.removesuffix(b"\n").removesuffix(b"\r")
            if form is Input.JSON and not line.strip():
                continue
            try:
                message = parse(line)
            except BadLine as e:
                publisher.fail(number, str(e))
                continue
            fields: dict[str, Any] = {"key": message.key, "value": message.value}
            if all_headers := headers + (message.headers or []):
                fields["headers"] = all_headers
            if message.timestamp is not None:
                fields["timestamp"] = message.timestamp
            if (chosen := message.partition if partition is None else partition) is not None:
                fields["partition"] = chosen
            publisher.publish(number, fields)
            bar.advance()


def _summary(publisher: Publisher, name: str, seconds: float, output_format: Format) -> None:
    if output_format is Format.JSON:
        print_json(
            {
                "topic": name,
                "published": publisher.sent,
                "failed": publisher.failed,
                "seconds": round(seconds, 3),
            }
        )
        return
    failed = f", {publisher.failed:,} failed" if publisher.failed else ""
    remark(f"published {plural(publisher.sent, 'message')} to {name} in {seconds:.1f} s{failed}")
