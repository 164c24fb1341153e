"""`penstock topic consume`: read a topic without a group, or as a member of a share group.

Partitions are assigned directly, nothing is committed. Without `--follow` each partition is
read up to the end it had when the command began, so that the command ends even while others
publish. With `--share` the module `consume_shared` reads.
"""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from penstock.cli.access import Access
from penstock.cli.errors import CliError, usage_error
from penstock.cli.kafka import Cluster, pick_partitions
from penstock.cli.offsets import Offsets
from penstock.cli.options import TopicName
from penstock.cli.topic.consume_shared import Ack, consume_shared
from penstock.cli.topic.render import Look, Renderer
from penstock.cli.values import Place, Position, parse_position
from penstock.kafka.offsets import Partition

POLL_S = 0.2
BATCH_MESSAGES = 1000
FROM_BEGINNING = "beginning"
PASSING_ERRORS = ("_TRANSPORT", "_ALL_BROKERS_DOWN")
CONSUMER_SETTINGS = {
    "group.id": "penstock-cli",  # the client insists on a name, but partitions are assigned by hand
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "fetch.queue.backoff.ms": 1,
    "fetch.wait.max.ms": 100,
}


def consume(
    access: Access,
    name: TopicName,
    look: Look,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="PLACE",
            help="beginning, end, an offset, -N for the last N of each partition, or a time:"
            " ISO 8601, relative (-1h), or epoch ms.",
        ),
    ] = FROM_BEGINNING,
    stop: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="PLACE", help="Stop before this offset or time; else at the end."
        ),
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", min=0, help="Only this partition; all if left out.")
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, metavar="N", help="Stop after N messages.")
    ] = None,
    follow: Annotated[
        bool | None,
        typer.Option(
            "--follow/--no-follow",
            help="Go on and wait for new messages (default with --from end).",
        ),
    ] = None,
    share: Annotated[
        str | None,
        typer.Option(
            "--share",
            metavar="GROUP",
            help="As a member of this share group: each message goes to one member, is"
            " acknowledged by itself, and comes again if it is not. Follows unless --no-follow.",
        ),
    ] = None,
    ack: Annotated[
        Ack | None,
        typer.Option(
            "--ack",
            help="With --share. auto: a message is done when it is printed; ask: you decide for"
            " each.",
        ),
    ] = None,
) -> None:
    """Print the messages of the topic NAME, up to its present end unless following, or work
    through them as a member of a share group.
    """
    if share is not None:
        if start != FROM_BEGINNING or stop is not None or partition is not None:
            raise usage_error(
                "--share excludes --from, --to and --partition: the group knows what is to be"
                " done; where a new group begins says its setting share.auto.offset.reset"
            )
        cluster = Cluster(access)
        cluster.topic(cluster.admin(), name)
        how = ack or Ack.AUTO
        consume_shared(
            cluster, name, share, how, look.renderer, count, following=follow is not False
        )
        return
    if ack is not None:
        raise usage_error("--ack goes with --share GROUP")
    now_ms = time.time_ns() // 1_000_000
    first = parse_position(start, now_ms)
    last = None if stop is None else parse_position(stop, now_ms)
    following = follow if follow is not None else first.place is Place.END and last is None
    if following and last is not None:
        raise usage_error("--follow and --to exclude each other: keep one of them")
    cluster = Cluster(access)
    partitions = pick_partitions(name, cluster.topic(cluster.admin(), name), partition)
    bounds = _bounds(cluster, [(name, p) for p in partitions], first, last)
    _read(cluster, name, bounds, look.renderer, count, following=following)


def _bounds(
    cluster: Cluster, places: list[Partition], first: Position, last: Position | None
) -> dict[int, tuple[int, int]]:
    """Per partition the offsets to begin at and to stop before."""
    offsets = Offsets(cluster, way_out="read the others one by one with --partition")
    starts, ends = offsets.starts(places), offsets.ends(places)

    def resolve(position: Position) -> dict[Partition, int]:
        if position.place is Place.TIME:
            found = offsets.at_time(places, position.value)
            return {p: ends[p] if offset < 0 else offset for p, offset in found.items()}
        wanted = {
            Place.BEGINNING: starts,
            Place.END: ends,
            Place.OFFSET: dict.fromkeys(places, position.value),
            Place.LAST: {p: ends[p] - position.value for p in places},
        }[position.place]
        return {p: min(max(wanted[p], starts[p]), ends[p]) for p in places}

    begins = resolve(first)
    stops = ends if last is None else resolve(last)
    return {p[1]: (begins[p], stops[p]) for p in places}


def _read(
    cluster: Cluster,
    name: str,
    bounds: dict[int, tuple[int, int]],
    renderer: Renderer,
    count: int | None,
    *,
    following: bool,
) -> None:
    reading = _Reading(cluster, bounds, following=following)
    consumer = cluster.consumer(CONSUMER_SETTINGS | {"enable.partition.eof": not following})
    try:
        consumer.assign([TopicPartition(name, p, bounds[p][0]) for p in reading.open_partitions])
        reading.print_messages(consumer, renderer, count)
    except KeyboardInterrupt:
        if not following:
            raise
    finally:
        sys.stdout.flush()
        consumer.close()


class _Reading:
    """Which partitions are still to be read, up to where."""

    def __init__(
        self, cluster: Cluster, bounds: dict[int, tuple[int, int]], *, following: bool
    ) -> None:
        self.open_partitions = {
            p for p, (begin, stop) in bounds.items() if following or begin < stop
        }
        self._cluster = cluster
        self._stops = {p: stop for p, (_, stop) in bounds.items()}
        self._following = following

    def print_messages(self, consumer: Consumer, renderer: Renderer, count: int | None) -> None:
        """Print until every partition has reached its stop, or `count` messages are out."""
        out = sys.stdout.buffer
        left = count
        quiet_since = time.monotonic()
        while self.open_partitions:
            for message in _next(consumer):
                if not self._belongs(message):
                    continue
                quiet_since = time.monotonic()
                out.write(renderer.render(message))
                if left is not None:
                    left -= 1
                    if not left:
                        return
            out.flush()
            if not self._following and time.monotonic() - quiet_since > self._cluster.timeout_s:
                raise self._silence()

    def _belongs(self, message: Message) -> bool:
        """Whether to print `message`; closes its partition at the stop."""
        error = message.error()
        partition, offset = message.partition() or 0, message.offset() or 0
        if error is not None:
            self._note(error, message.topic(), partition)
            return False
        if self._following:
            return True
        if partition not in self.open_partitions:
            return False
        stop = self._stops[partition]
        if offset + 1 >= stop:
            self.open_partitions.discard(partition)
        return offset < stop

    def _note(self, error: KafkaError, topic: str | None, partition: int) -> None:
        """An event instead of a message; one that names no topic is about a group, which is
        not used here.
        """
        if error.name() == "_PARTITION_EOF":
            self.open_partitions.discard(partition)
        elif topic is not None and not error.retriable() and error.name() not in PASSING_ERRORS:
            raise self._cluster.sentence(error, f"read {topic!r} partition {partition}")

    def _silence(self) -> CliError:
        waiting = ", ".join(map(str, sorted(self.open_partitions)))
        return CliError(
            f"nothing came for {self._cluster.timeout_s:g} s from partitions {waiting}, which have"
            " more: check their leaders with `penstock topic describe`, or wait longer with"
            " --timeout"
        )


def _next(consumer: Consumer) -> list[Message]:
    """What is there; waits only for the first message, since a batch call would wait to be
    filled.
    """
    first = consumer.poll(POLL_S)
    return [] if first is None else [first, *consumer.consume(BATCH_MESSAGES, 0)]
