"""`penstock queue list`: the share groups as queues."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from penstock.cli.access import Access
from penstock.cli.cluster.asking import ASKED_AT_ONCE_MAX
from penstock.cli.errors import CliError
from penstock.cli.group.listing import Listed
from penstock.cli.options import Format, OutputFormat
from penstock.cli.output import print_json, print_table, remark
from penstock.cli.queue.queues import Queues, numbers
from penstock.cli.queue.waiting import count_waiting, dead_facts
from penstock.kafka.errors import ClientError

COLUMNS = ("group", "state", "available", "locked", "parked", "dead", "lag")


def list_queues(access: Access, output_format: OutputFormat = Format.TEXT) -> None:
    """List the share groups: what is available, locked, parked, dead, and how far behind each is.

    Dead letters are those that were not redriven. Where a number is missing the reason follows.
    """
    queues = Queues(access)
    groups = queues.groups()
    with ThreadPoolExecutor(ASKED_AT_ONCE_MAX) as pool:
        found = list(pool.map(lambda group: _facts(queues, group), groups))
    dead, uncounted = count_waiting(queues, [group.group for group in groups])
    rows = [{**dict.fromkeys(COLUMNS), **facts} for facts, _ in found]
    if output_format is Format.JSON:
        print_json([row | dead_facts(dead.get(row["group"])) for row in rows])
    elif rows:
        for row in rows:
            row["dead"] = dead[row["group"]].text if row["group"] in dead else None
        print_table(COLUMNS, [["-" if row[c] is None else row[c] for c in COLUMNS] for row in rows])
    elif not queues.listing().problems:
        remark("no queues yet: `penstock topic consume TOPIC --share GROUP` makes one")
    if incomplete := queues.listing().incomplete:
        raise incomplete
    for problem in (*(problem for _, problem in found), uncounted):
        if problem:
            raise CliError(problem)


def _facts(queues: Queues, group: Listed) -> tuple[dict[str, Any], str]:
    """What is known of a group, and why it is not all."""
    facts: dict[str, Any] = {"group": group.group, "state": group.state}
    try:
        places = queues.members(group).places
        return facts | numbers(queues.describe(group.group, places).partitions.values()), ""
    except CliError as e:
        return facts, e.sentence
    except ClientError as e:
        return facts, str(e)
