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
from penstock.cli.errors import EXIT_FAILED, EXIT_INTERRUPTED, CliError, usage_error
from penstock.cli.kafka import Cluster, pick_partitions
from penstock.cli.offsets import Offsets
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
from penstock.kafka.errors import ClusterError

REPORTED_FAILURES_MAX = 10
"""So many failed lines are named one by one; the rest is only counted."""

MESSAGE_BYTES_MAX = 1_000_000_000
"""librdkafka's own ceiling: the topic's max.message.bytes decides, not the client."""


LINGER_MS = 5
TIMED_OUT = {"_MSG_TIMED_OUT", "_TIMED_OUT", "_TRANSPORT", "REQUEST_TIMED_OUT"}


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

    def __init__(self, cluster: Cluster, producer: Producer, topic: str) -> None:
        self.delivered = 0
        self.failed = 0
        self._cluster = cluster
        self._producer = producer
        self._topic = topic
        self._timed_out: dict[int | None, str] = {}
        """By partition, what was found when its leader did not answer."""

    @property
    def under_way(self) -> int:
        """Messages of which nobody knows whether they are delivered."""
        return len(self._producer)

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
        self._producer.poll(0)

    def fail(self, line: int, reason: str) -> None:
        self.failed += 1
        if self.failed <= REPORTED_FAILURES_MAX:
            print(f"line {line}: {reason}", file=sys.stderr)

    def _delivered(self, line: int, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.delivered += 1
        elif error.name() in TIMED_OUT and self.failed < REPORTED_FAILURES_MAX:
            self.fail(line, self._why_late(message.partition()))
        else:
            self.fail(line, error.str())

    def _why_late(self, partition: int | None) -> str:
        if partition not in self._timed_out:
            self._timed_out[partition] = self._look(partition)
        return self._timed_out[partition]

    def _look(self, partition: int | None) -> str:
        """librdkafka says only that time is over: the leader is asked what is wrong."""
        late = f"it was not acknowledged within {self._cluster.timeout_s:g} s"
        if partition is None or partition < 0:
            return f"{late}, since no partition of {self._topic} can be written to"
        try:
            trouble = Offsets(self._cluster).trouble_of((self._topic, partition))
        except ClusterError as e:
            return f"{late}: {e}"
        name = f"{self._topic}-{partition}"
        return (
            f"{late}, though the leader of {name} answers"
            if trouble is None
            else trouble.text([name])
        )

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
        publisher = Publisher(cluster, _producer(cluster, acks, compression), name)
        interrupted = False
        try:
            try:
                _publish_lines(
                    publisher,
                    stream,
                    input_form,
                    (key_separator or ":").encode(),
                    headers,
                    partition,
                )
            except KeyboardInterrupt:
                interrupted = True
            publisher.finish()
        except KeyboardInterrupt:  # the second one, or while the last messages are on their way
            interrupted = True
    _summary(publisher, name, time.monotonic() - started, output_format)
    if interrupted:
        return EXIT_INTERRUPTED
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
                "published": publisher.delivered,
                "failed": publisher.failed,
                "unknown": publisher.under_way,
                "seconds": round(seconds, 3),
            }
        )
        return
    failed = f", {publisher.failed:,} failed" if publisher.failed else ""
    unknown = f", {publisher.under_way:,} not acknowledged yet" if publisher.under_way else ""
    published = plural(publisher.delivered, "message")
    remark(f"published {published} to {name} in {seconds:.1f} s{failed}{unknown}")
