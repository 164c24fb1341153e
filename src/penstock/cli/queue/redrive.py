"""`penstock queue redrive`: dead letters become work again, at a rate, until all are or Ctrl-C."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.base.errors import ApiError
from penstock.cli.access import Access
from penstock.cli.errors import EXIT_INTERRUPTED, CliError, usage_error
from penstock.cli.group.options import GroupName
from penstock.cli.options import Format, OutputFormat
from penstock.cli.output import plural, print_json
from penstock.cli.queue.dead_letters import Choice, Source
from penstock.cli.queue.queues import Queues
from penstock.cli.queue.redriving import NO_TOPIC, Counts, Order, Redriving, Stop
from penstock.cli.values import parse_headers, parse_rate
from penstock.metadata.names import check_topic_name

RETRY_PREFIX = "retry."


All = Annotated[bool, typer.Option("--all", help="All dead letters that were not redriven yet.")]
Messages = Annotated[
    list[str] | None,
    typer.Option(
        "--message",
        metavar="TOPIC:PARTITION:OFFSET",
        help="This message of the source topic, also if it was redriven before; may be repeated.",
    ),
]
Reason = Annotated[
    str | None,
    typer.Option("--reason", metavar="REASON", help="Only for this reason: rejected or limit."),
]
Key = Annotated[
    str | None, typer.Option("--key", metavar="KEY", help="Only messages with this key.")
]
Headers = Annotated[
    list[str] | None,
    typer.Option(
        "--header", metavar="KEY=VALUE", help="Only messages with this header; may be repeated."
    ),
]
Rate = Annotated[
    str | None,
    typer.Option("--rate", metavar="N/s", help="At most so many, as 50/s; else all at once."),
]
RetryTopic = Annotated[
    str | None,
    typer.Option(
        "--retry-topic",
        metavar="TOPIC",
        help="Where copies go of what the source does not have any more; else retry.GROUP.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]


def redrive(
    access: Access,
    name: GroupName,
    everything: All = False,
    messages: Messages = None,
    reason: Reason = None,
    key: Key = None,
    headers: Headers = None,
    rate: Rate = None,
    retry_topic: RetryTopic = None,
    dry_run: DryRun = False,
    output_format: OutputFormat = Format.TEXT,
) -> None:
    """Make dead letters the work of GROUP again: in place, or as copies in a retry topic."""
    choice = Choice(
        reason, None if key is None else key.encode(), tuple(parse_headers(headers or ()))
    )
    if sum((everything, bool(messages), choice != Choice())) != 1:
        raise usage_error(
            "what is to be redriven? give --all, or --message TOPIC:PARTITION:OFFSET, or a filter"
            " of --reason, --key and --header"
        )
    sources = list(dict.fromkeys(map(parse_source, messages or ())))
    per_s = None if rate is None else _per_s(rate)
    into = _retry_topic(name, retry_topic)
    queues = Queues(access)
    queues.require(name)
    order = Order(name, queues.dead_letter_topic(name), into, dry_run, per_s)
    _carry_out(queues, order, sources, choice, as_json=output_format is Format.JSON)


def _carry_out(
    queues: Queues, order: Order, sources: list[Source], choice: Choice, *, as_json: bool
) -> None:
    if order.dead_letter_topic is None and not sources:
        raise CliError(
            f"{NO_TOPIC.format(order.group)}, so nobody knows what it has given up: name single"
            " messages with --message, and set errors.deadletterqueue.topic.name with `penstock"
            f" config set group:{order.group}` for those to come"
        )
    with Stop() as stop:
        work = Redriving(queues, order, stop)
        try:
            if sources:
                work.redrive_sources(sources)
            else:
                work.redrive(choice.takes)
        finally:
            work.close()
        _report(order, work.counts, cancelled=stop.asked, as_json=as_json)


def parse_source(text: str) -> Source:
    """What `--message` takes."""
    topic, first, partition_offset = text.partition(":")
    partition, second, offset = partition_offset.partition(":")
    if not (topic and first and second and partition.isdecimal() and offset.isdecimal()):
        raise usage_error(f"{text!r} is no message: write it as TOPIC:PARTITION:OFFSET")
    return Source(topic, int(partition), int(offset))


def _per_s(text: str) -> float:
    per_s = parse_rate(text)
    if per_s <= 0:
        raise usage_error("a rate of 0 would never end: give more, as 50/s")
    return per_s


def _retry_topic(group: str, given: str | None) -> str:
    topic = given or RETRY_PREFIX + group
    try:
        check_topic_name(topic)
    except ApiError:
        raise usage_error(
            f"{topic!r} cannot be the name of a topic: name another one with --retry-topic"
        ) from None
    return topic


def _report(order: Order, counts: Counts, *, cancelled: bool, as_json: bool) -> None:
    """Say how far it came; an error if that is not all that was asked for."""
    if as_json:
        print_json(
            {
                "group": order.group,
                "dead_letter_topic": order.dead_letter_topic,
                "retry_topic": order.retry_topic if counts.copied else None,
                "dry_run": order.dry_run,
                "cancelled": cancelled,
                **counts.facts(),
            }
        )
    else:
        print(_sentence(order, counts))
    if cancelled:
        raise CliError("stopped before the end: run it again to go on from there", EXIT_INTERRUPTED)
    if counts.not_copied:
        raise CliError(
            f"{plural(counts.not_copied, 'message')} cannot be redriven: their topic does not have"
            " them any more, and their dead letters do not have the record; set"
            " errors.deadletterqueue.copy.record.enable=true with `penstock config set"
            f" group:{order.group}` for those to come"
        )
    if counts.not_yet:
        raise CliError(
            f"{plural(counts.not_yet, 'message')} cannot be redriven yet: the group has not given"
            " them up for good, or was moved to before them; try again later"
        )


def _sentence(order: Order, counts: Counts) -> str:
    would = "would be " if order.dry_run else ""
    parts = [f"{plural(counts.revived, 'message')} {would}revived in place"]
    if counts.copied:
        parts.append(f"{counts.copied:,} {would}copied to {order.retry_topic}")
    if counts.unfinished:
        parts.append(f"{counts.unfinished:,} are the group's work already")
    return ", ".join(parts)
