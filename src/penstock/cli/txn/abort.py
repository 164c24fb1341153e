"""`penstock txn abort`: end a transaction from outside.

One that a coordinator knows is aborted by taking its transactional id over, which fences the
producer. One that hangs in a partition is ended there by an abort marker, which Penstock writes
only when no coordinator will: a marker in one partition of a living transaction would tear it.
"""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.access import Access
from penstock.cli.cluster.asking import Brokers
from penstock.cli.cluster.choice import choose
from penstock.cli.cluster.options import Yes, confirm, require_yes
from penstock.cli.cluster.state import read_partitions
from penstock.cli.errors import CliError, usage_error
from penstock.cli.options import (
    Format,
    OutputFormat,
)
from penstock.cli.output import plural, print_json
from penstock.cli.txn.hanging import Open, find_open, known_id, write_abort_marker
from penstock.cli.txn.transactions import Transactions

_TWO_WAYS = (
    "name either the ID of a transaction, or --topic and --partition with --start-offset or"
    " --producer-id of one that hangs"
)


def abort(
    access: Access,
    transactional_id: Annotated[
        str | None,
        typer.Argument(metavar="[ID]", help="Transactional id whose open transaction is aborted."),
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option("--topic", metavar="TOPIC", help="Where a hanging transaction is."),
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", min=0, metavar="P", help="The partition of it.")
    ] = None,
    start_offset: Annotated[
        int | None,
        typer.Option("--start-offset", min=0, metavar="O", help="Where it begins there."),
    ] = None,
    producer_id: Annotated[
        int | None, typer.Option("--producer-id", min=0, metavar="N", help="Whose it is.")
    ] = None,
    producer_epoch: Annotated[
        int | None,
        typer.Option("--producer-epoch", min=0, metavar="E", help="Only if it is of this epoch."),
    ] = None,
    yes: Yes = False,
    output_format: OutputFormat = Format.TEXT,
) -> None:
    """Abort the open transaction of ID and fence its producer; or end, in one partition, a
    transaction that hangs.
    """
    as_json = output_format is Format.JSON
    by_place = (topic, partition, start_offset, producer_id, producer_epoch)
    if transactional_id is not None:
        if any(option is not None for option in by_place):
            raise usage_error(f"that is two transactions: {_TWO_WAYS}")
        _abort_known(access, transactional_id, yes=yes, as_json=as_json)
        return
    if topic is None or partition is None or (start_offset is None and producer_id is None):
        raise usage_error(f"which transaction is meant? {_TWO_WAYS}")
    _require_yes(yes, f"the transaction in {topic}-{partition}")
    brokers = Brokers(access)
    found = _find(brokers, (topic, partition), start_offset, producer_id, producer_epoch)
    _abort_hanging(brokers, found, yes=yes, as_json=as_json)


def _require_yes(yes: bool, what: str) -> None:
    require_yes(yes, f"aborting {what}")


def _abort_known(access: Access, transactional_id: str, *, yes: bool, as_json: bool) -> None:
    _require_yes(yes, f"the transaction of {transactional_id}")
    transactions = Transactions(Brokers(access))
    found = transactions.require(transactional_id)
    if found.state != "Ongoing":
        raise CliError(
            f"{transactional_id!r} has no transaction that could be aborted, it is in state"
            f" {found.state}: see `penstock txn describe {transactional_id}`"
        )
    places = plural(len(found.partitions), "partition")
    confirm(yes, f"Abort the transaction of {transactional_id} in {places}, fence its producer?")
    producer_id, producer_epoch = transactions.fence(found)
    if as_json:
        print_json(
            {
                "transactional_id": transactional_id,
                "aborted": True,
                "producer_id": producer_id,
                "producer_epoch": producer_epoch,
            }
        )
    else:
        print(f"aborted the transaction of {transactional_id} in {places}")


def _find(
    brokers: Brokers,
    key: tuple[str, int],
    start_offset: int | None,
    producer_id: int | None,
    producer_epoch: int | None,
) -> Open:
    """The open transaction that is meant."""
    topic, partition = key
    chosen = choose(read_partitions(brokers), [f"{topic}:{partition}"])
    found = find_open(brokers, chosen)
    if found.not_asked:
        raise CliError(f"cannot look at {topic}-{partition}: {found.not_asked[key]}")
    for transaction in found.open:
        if (
            start_offset in (None, transaction.start_offset)
            and producer_id in (None, transaction.producer_id)
            and producer_epoch in (None, transaction.producer_epoch)
        ):
            return transaction
    open_at = ", ".join(str(transaction.start_offset) for transaction in found.open)
    what_is = f"those open begin at {open_at}" if open_at else "none is open there"
    raise CliError(
        f"{topic}-{partition} has no such open transaction: {what_is}; see"
        " `penstock txn list --hanging`"
    )


def _abort_hanging(brokers: Brokers, found: Open, *, yes: bool, as_json: bool) -> None:
    place = f"{found.topic}-{found.partition}"
    known = known_id(Transactions(brokers), found)
    if known is not None:
        raise CliError(
            f"the transaction at offset {found.start_offset} of {place} does not hang: it is"
            f" {known}'s, and to end it here alone would tear it; abort all of it with"
            f" `penstock txn abort {known}`"
        )
    question = f"Abort the transaction at offset {found.start_offset} of {place}?"
    confirm(yes, f"{question} What it wrote there will never be read with read_committed.")
    write_abort_marker(brokers, read_partitions(brokers)[found.key], found)
    if as_json:
        print_json({**found._asdict(), "aborted": True})
    else:
        print(f"aborted the transaction at offset {found.start_offset} of {place}")
