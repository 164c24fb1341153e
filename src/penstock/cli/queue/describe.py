"""`penstock queue describe`: a share group per partition, and who holds what."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.cli.access import Access
from penstock.cli.errors import CliError
from penstock.cli.group.options import GroupName
from penstock.cli.group.others import Described
from penstock.cli.options import Format, OutputFormat
from penstock.cli.output import plural, print_json, print_table, title
from penstock.cli.queue.queues import Queue, Queues, numbers, runs_of
from penstock.cli.queue.waiting import Waiting, count_waiting, dead_facts
from penstock.wire.messages.describe_queues import DescribedRun

HELD = "acquired"
RESTING = ("parked", "archiving")


def describe(
    access: Access,
    name: GroupName,
    locks: Annotated[
        bool,
        typer.Option(
            "--locks", help="Show who holds which messages, since when, and what else waits."
        ),
    ] = False,
    output_format: OutputFormat = Format.TEXT,
) -> None:
    """Show where GROUP stands in each partition, and with --locks who holds what.

    A lock is of messages that were taken together and are alike; its times are in seconds.
    """
    queues = Queues(access)
    group = queues.require(name)
    members = queues.members(group)
    queue = queues.describe(name, members.places, runs=True)
    counted, uncounted = count_waiting(queues, [name])
    dead = counted.get(name)
    facts = _facts(members, queue, dead)
    if locks:
        facts["locks"] = _locks(members, queue)
    if output_format is Format.JSON:
        print_json(facts)
    else:
        _print(facts, dead)
    if uncounted:
        raise CliError(uncounted)


def _facts(members: Described, queue: Queue, dead: Waiting | None) -> dict[str, Any]:
    held: dict[str, int] = {}
    for _, run in runs_of(queue):
        if run.member_id:
            held[run.member_id] = held.get(run.member_id, 0) + _records(run)
    limits = queue.limits
    return {
        "group": members.group,
        "state": members.state,
        "record_locks": None if limits is None else limits.record_locks,
        "deliveries": None if limits is None else limits.deliveries,
        "lock_s": None if limits is None else limits.lock_ms / 1_000,
        "dead_letter_topic": None if dead is None else dead.topic,
        **dead_facts(dead),
        **numbers(queue.partitions.values()),
        "members": [
            {"member": m.id, "client": m.client, "host": m.host, "locked": held.get(m.id, 0)}
            for m in members.members
        ],
        "partitions": [
            {
                "topic": place[0],
                "partition": place[1],
                "start": partition.start_offset,
                "end": partition.log_end_offset,
                **numbers([partition]),
            }
            for place, partition in sorted(queue.partitions.items())
        ],
    }


def _locks(members: Described, queue: Queue) -> list[dict[str, Any]]:
    """What is held, and what waits for something else than a worker."""
    known = {member.id: member for member in members.members}
    rows = []
    for (topic, partition), run in runs_of(queue):
        state = run.state.lower()
        if not run.member_id and state not in RESTING:
            continue
        member = known.get(run.member_id)
        rows.append(
            {
                "topic": topic,
                "partition": partition,
                "first": run.first_offset,
                "last": run.last_offset,
                "state": "locked" if state == HELD else state,
                "member": run.member_id or None,
                "client": member.client if member else None,
                "host": member.host if member else None,
                "deliveries": run.delivery_count,
                "since_s": _seconds(run.age_ms),
                "left_s": _seconds(run.left_ms),
                "cause": run.cause.lower() or None,
            }
        )
    return rows


def _records(run: DescribedRun) -> int:
    return run.last_offset - run.first_offset + 1


def _seconds(ms: int) -> float | None:
    return ms / 1_000 if ms >= 0 else None


def _print(facts: dict[str, Any], dead: Waiting | None) -> None:
    title(f"queue {facts['group']}")
    at_most = (
        f", at most {facts['deliveries']} deliveries, locks of {facts['lock_s']:g} s"
        if facts["deliveries"] is not None
        else ""
    )
    print(f"state: {facts['state']}{at_most}")
    letters = "no dead-letter topic" if dead is None else f"{dead.text} dead in {dead.topic}"
    print(f"{plural(facts['lag'], 'message')} behind, {letters}")
    for rows in (facts["members"], facts["partitions"], facts.get("locks")):
        if rows:
            print_table(
                list(rows[0]),
                [["-" if cell is None else cell for cell in row.values()] for row in rows],
            )
