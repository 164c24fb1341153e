"""`penstock queue peek`: the next messages of a queue, or its dead letters, by an ordinary fetch.

Nothing is taken, locked or counted. Workers may take what is shown while it is shown.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated, Any, Final

import typer
from confluent_kafka import Consumer, Message

from penstock.cli.access import Access
from penstock.cli.errors import CliError
from penstock.cli.group.options import GroupName
from penstock.cli.options import Format, OutputFormat
from penstock.cli.output import print_json, print_table, remark
from penstock.cli.queue.dead_letters import (
    CONSUMER_SETTINGS,
    Box,
    DeadLetter,
    Reading,
    dead_letter,
)
from penstock.cli.queue.queues import Queue, Queues
from penstock.cli.queue.redriving import NO_TOPIC
from penstock.cli.topic.lines import display_text, json_fields, json_headers
from penstock.cli.values import time_text
from penstock.kafka.offsets import Partition
from penstock.wire.messages.describe_queues import DescribedQueuePartition

SHOWN_DEFAULT: Final = 10
OPEN: Final = ("available", "unseen")
"""States of what the next fetch may take."""
Range = tuple[int, int]
"""First offset, and the one to stop before."""


def peek(
    access: Access,
    name: GroupName,
    dead: Annotated[
        bool, typer.Option("--dead", help="The dead letters that were not redriven, and why.")
    ] = False,
    count: Annotated[
        int, typer.Option("--count", "-n", min=1, metavar="N", help="At most so many.")
    ] = SHOWN_DEFAULT,
    output_format: OutputFormat = Format.TEXT,
) -> None:
    """Show the next messages of GROUP, or its dead letters, without taking them.

    Partition after partition, in each in the order in which they would be delivered.
    """
    queues = Queues(access)
    group = queues.require(name)
    if dead:
        rows = _dead(queues, name, count)
        columns = ["message", "reason", "deliveries", "at", "key", "value"]
    else:
        queue = queues.describe(name, queues.members(group).places, runs=True)
        rows = _available(queues, queue, count)
        columns = ["message", "deliveries", "at", "key", "value"]
    if output_format is Format.JSON:
        print_json([row.facts for row in rows])
    elif rows:
        print_table(columns, [row.cells(columns) for row in rows])
    else:
        remark("no dead letter waits" if dead else "nothing is available")


class Row:
    """One message."""

    def __init__(self, **facts: Any) -> None:
        self.data = {name: facts.pop(name) for name in ("key", "value", "headers")}
        self.facts = {
            **facts,
            **json_fields("key", self.data["key"]),
            **json_fields("value", self.data["value"]),
            "headers": json_headers(self.data["headers"]),
        }

    def cells(self, columns: list[str]) -> list[object]:
        facts = self.facts
        at = facts["timestamp"]
        terminal = sys.stdout.isatty()
        shown = {
            **facts,
            "message": f"{facts['topic']}:{facts['partition']}:{facts['offset']}",
            "at": None if at is None else time_text(at),
            "key": display_text(self.data["key"], for_terminal=terminal),
            "value": display_text(self.data["value"], for_terminal=terminal),
        }
        return ["-" if shown[column] is None else shown[column] for column in columns]


# -- what is available -----------------------------------------------------------------------------


def _available(queues: Queues, queue: Queue, count: int) -> list[Row]:
    committed_only = queue.limits is not None and queue.limits.read_committed
    isolation = "read_committed" if committed_only else "read_uncommitted"
    settings = CONSUMER_SETTINGS | {"group.id": "penstock-cli", "isolation.level": isolation}
    consumer = queues.cluster.consumer(settings)
    rows: list[Row] = []
    try:
        for place, partition in sorted(queue.partitions.items()):
            for begin, end, deliveries in open_ranges(partition):
                for message in _messages(queues, consumer, place, (begin, end)):
                    rows.append(_row(message, deliveries))
                    if len(rows) == count:
                        return rows
    finally:
        consumer.close()
    return rows


def open_ranges(partition: DescribedQueuePartition) -> Iterator[tuple[int, int, int]]:
    """What the next fetch may take, as ranges of offsets, and how often it was delivered."""
    for run in partition.runs:
        if run.state.lower() in OPEN:
            yield run.first_offset, run.last_offset + 1, run.delivery_count
    beyond = max(partition.window_end_offset + 1, partition.log_start_offset)
    if beyond < partition.log_end_offset:
        yield beyond, partition.log_end_offset, 0


def _messages(
    queues: Queues, consumer: Consumer, place: Partition, bounds: Range
) -> Iterator[Message]:
    topic, partition = place
    for found in Reading(queues.cluster, consumer, topic, {partition: bounds}).batches():
        yield from found


def _row(message: Message, deliveries: int) -> Row:
    kind, at = message.timestamp()
    return Row(
        topic=message.topic(),
        partition=message.partition(),
        offset=message.offset(),
        timestamp=at if kind else None,
        deliveries=deliveries,
        key=message.key(),
        value=message.value(),
        headers=message.headers() or [],
    )


# -- what is dead ----------------------------------------------------------------------------------


def _dead(queues: Queues, group: str, count: int) -> list[Row]:
    topic = queues.dead_letter_topic(group)
    if topic is None:
        raise CliError(
            f"{NO_TOPIC.format(group)}: set errors.deadletterqueue.topic.name with `penstock config"
            f" set group:{group}`"
        )
    if topic not in queues.cluster.topics(queues.cluster.admin()):
        return []
    rows: list[Row] = []
    with Box(queues.cluster, group, topic) as box:
        for messages in box.batches(box.bounds()):
            for letter in map(dead_letter, messages):
                if letter is not None and box.waits(letter):
                    rows.append(_dead_row(letter, topic))
                    if len(rows) == count:
                        return rows
    return rows


def _dead_row(letter: DeadLetter, topic: str) -> Row:
    source = letter.source
    return Row(
        topic=source.topic,
        partition=source.partition,
        offset=source.offset,
        timestamp=letter.timestamp,
        reason=letter.reason or None,
        explanation=letter.message,
        deliveries=letter.deliveries,
        dead_letter={"topic": topic, "partition": letter.partition, "offset": letter.offset},
        has_record=letter.has_record,
        key=letter.key,
        value=letter.value,
        headers=letter.headers,
    )
