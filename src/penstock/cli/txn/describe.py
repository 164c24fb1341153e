"""`penstock txn describe`: what the coordinator knows of transactional ids."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from penstock.cli.access import Access
from penstock.cli.cluster.asking import Brokers
from penstock.cli.options import (
    Format,
    OutputFormat,
)
from penstock.cli.output import print_json, print_pairs, title
from penstock.cli.txn.transactions import Described, Transactions
from penstock.cli.values import duration_text, time_text

TransactionalIds = Annotated[
    list[str], typer.Argument(metavar="ID", help="Transactional ids of producers.")
]


def describe(
    access: Access,
    ids: TransactionalIds,
    output_format: OutputFormat = Format.TEXT,
) -> None:
    """Show state, producer id and epoch, timeout, start, age and partitions of each ID."""
    transactions = Transactions(Brokers(access))
    facts = [_facts(transactions.require(name)) for name in dict.fromkeys(ids)]
    if output_format is Format.JSON:
        print_json(facts)
        return
    for i, fact in enumerate(facts):
        if i:
            print()
        _print(fact)


def _facts(found: Described) -> dict[str, Any]:
    begun = found.start_ms >= 0
    return {
        "transactional_id": found.transactional_id,
        "state": found.state,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "timeout_ms": found.timeout_ms,
        "start": time_text(found.start_ms) if begun else None,
        "age_ms": max(0, int(time.time() * 1000) - found.start_ms) if begun else None,
        "partitions": [{"topic": topic, "partition": p} for topic, p in found.partitions],
    }


def _print(fact: dict[str, Any]) -> None:
    age = None if fact["age_ms"] is None else duration_text(fact["age_ms"])
    partitions = [f"{p['topic']}-{p['partition']}" for p in fact["partitions"]]
    title(f"transactional id {fact['transactional_id']}")
    print_pairs(
        [
            ("state", fact["state"]),
            ("producer id", str(fact["producer_id"])),
            ("producer epoch", str(fact["producer_epoch"])),
            ("timeout", duration_text(fact["timeout_ms"])),
            ("start", fact["start"] or "-"),
            ("age", age or "-"),
            ("partitions", ", ".join(partitions) or "-"),
        ]
    )
