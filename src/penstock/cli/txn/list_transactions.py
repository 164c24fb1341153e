"""`penstock txn list`: the transactions that coordinators know, or those that hang."""

from __future__ import annotations

import time
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer

from penstock.cli.access import Access
from penstock.cli.cluster.asking import Brokers
from penstock.cli.cluster.choice import choose
from penstock.cli.cluster.options import Topics
from penstock.cli.cluster.state import read_partitions
from penstock.cli.errors import CliError, usage_error
from penstock.cli.options import (
    Format,
    OutputFormat,
)
from penstock.cli.output import print_json, print_table, remark
from penstock.cli.txn.hanging import find_hanging, find_open
from penstock.cli.txn.transactions import Transactions
from penstock.cli.values import parse_duration_ms, time_text

HANGING_AFTER = "15m"
"""As long as `transaction.max.timeout.ms` lets a transaction last unless it is set."""


class TransactionState(StrEnum):
    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    DEAD = "Dead"


def list_transactions(
    access: Access,
    states: Annotated[
        list[TransactionState] | None,
        typer.Option(
            "--state",
            metavar="STATE",
            help="Only those in this state, as Ongoing; may be repeated.",
            case_sensitive=False,
        ),
    ] = None,
    producer_ids: Annotated[
        list[int] | None,
        typer.Option("--producer-id", metavar="N", help="Only of this producer; may be repeated."),
    ] = None,
    longer_than: Annotated[
        str | None,
        typer.Option(
            "--longer-than",
            metavar="TIME",
            help=f"Only those open for longer, as 90s or 15m; with --hanging, {HANGING_AFTER}"
            " unless it is given.",
        ),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option("--id-pattern", metavar="REGEX", help="Only ids that match all of it (RE2)."),
    ] = None,
    hanging: Annotated[
        bool,
        typer.Option(
            "--hanging", help="Those open in a partition that no coordinator will ever end."
        ),
    ] = False,
    topics: Topics = None,
    output_format: OutputFormat = Format.TEXT,
) -> None:
    """List transactional ids with coordinator, producer id and state; or, with --hanging, the
    transactions that hold partitions back and will not end by themselves.
    """
    as_json = output_format is Format.JSON
    longer_ms = None if longer_than is None else parse_duration_ms(longer_than)
    if hanging:
        if states or pattern is not None:
            raise usage_error(
                "--state and --id-pattern are about what coordinators know: leave them out with"
                " --hanging"
            )
        older_ms = parse_duration_ms(HANGING_AFTER) if longer_ms is None else longer_ms
        transactions = Transactions(Brokers(access))
        _list_hanging(transactions, topics or [], producer_ids or [], older_ms, as_json=as_json)
        return
    if topics:
        raise usage_error("--topic goes with --hanging: coordinators list by id")
    listed = Transactions(Brokers(access)).listed(
        states=[state.value for state in states or ()],
        producer_ids=producer_ids or (),
        longer_than_ms=longer_ms,
        pattern=pattern,
    )
    filtered = bool(states or producer_ids or longer_than or pattern is not None)
    nothing = (
        "no transaction is like that: see all with `penstock txn list`"
        if filtered
        else "no transactions yet: a producer with a transactional.id makes one"
    )
    columns = ("transactional_id", "coordinator", "producer_id", "state")
    _show(columns, listed, nothing, as_json=as_json)


def _list_hanging(
    transactions: Transactions,
    topics: Sequence[str],
    producer_ids: Sequence[int],
    older_ms: int,
    *,
    as_json: bool,
) -> None:
    partitions = choose(read_partitions(transactions.brokers), topics)
    found = find_open(transactions.brokers, partitions)
    now_ms = int(time.time() * 1000)
    candidates = [
        o
        for o in found.open
        if now_ms - o.last_ms >= older_ms and (not producer_ids or o.producer_id in producer_ids)
    ]
    rows = [
        (
            h.open.topic,
            h.open.partition,
            h.open.start_offset,
            h.open.producer_id,
            h.open.producer_epoch,
            h.open.coordinator_epoch,
            time_text(h.open.last_ms),
            h.why,
        )
        for h in find_hanging(transactions, partitions, candidates)
    ]
    columns = (
        "topic",
        "partition",
        "start_offset",
        "producer_id",
        "producer_epoch",
        "coordinator_epoch",
        "last_write",
        "why",
    )
    _show(columns, rows, "no transaction hangs", as_json=as_json)
    if found.not_asked:
        (topic, partition), why = next(iter(found.not_asked.items()))
        others = f" and {len(found.not_asked) - 1} more" if len(found.not_asked) > 1 else ""
        raise CliError(
            f"could not look at {topic}-{partition} ({why}){others}: see `penstock cluster status`"
        )


def _show(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], nothing: str, *, as_json: bool
) -> None:
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    elif rows:
        print_table([column.replace("_", " ") for column in columns], rows)
    else:
        remark(nothing)
