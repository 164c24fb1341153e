"""Where a query starts and ends, and how its offsets are cut into tasks.

`resolve` turns the bounds that options give into offsets; what options name must exist, and what
they leave out is an error, so that no partition is silently read from elsewhere. `cut` and
`share_out` are pure.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from itertools import pairwise

from penstock.spark.cluster import Cluster
from penstock.spark.errors import DataLossError, OptionError
from penstock.spark.fetch import Range
from penstock.spark.offsets import EARLIEST, LATEST, Bound, Kind, Offsets, Partition
from penstock.spark.options import SourceOptions

log = logging.getLogger(__name__)


def resolve_start(
    bound: Bound, cluster: Cluster, partitions: list[Partition], options: SourceOptions
) -> Offsets:
    """The first offset of each partition that a query reads."""
    found = _resolve(bound, cluster, partitions)
    if absent := sorted(p for p, offset in found.items() if offset < 0):
        if not options.no_younger_is_latest:
            topic, partition = absent[0]
            raise OptionError(
                f"option {bound.option}: topic {topic} partition {partition} has no record of"
                " that time or later; give an earlier time, or set"
                " startingOffsetsByTimestampStrategy to latest"
            )
        found |= cluster.latest(absent)
    return found


def resolve_end(bound: Bound, cluster: Cluster, partitions: list[Partition]) -> Offsets:
    """The offset after the last one of each partition that a batch reads."""
    found = _resolve(bound, cluster, partitions)
    return found | cluster.latest(p for p, offset in found.items() if offset < 0)


def _resolve(bound: Bound, cluster: Cluster, partitions: list[Partition]) -> Offsets:
    """Offsets of a bound; -1 where it gives a time and nothing is that young."""
    if bound.kind is Kind.EARLIEST:
        return cluster.earliest(partitions)
    if bound.kind is Kind.LATEST:
        return cluster.latest(partitions)
    if bound.kind is Kind.TIME:
        return cluster.at_times(dict.fromkeys(partitions, bound.time_ms))
    _check_cover(bound, partitions)
    if bound.kind is Kind.TIMES:
        return cluster.at_times(bound.values)
    named = dict(bound.values)
    named |= cluster.earliest(p for p, offset in bound.values.items() if offset == EARLIEST)
    return named | cluster.latest(p for p, offset in bound.values.items() if offset == LATEST)


def _check_cover(bound: Bound, partitions: list[Partition]) -> None:
    there, named = set(partitions), set(bound.values)
    for wrong, what in ((there - named, "leaves out"), (named - there, "names")):
        if wrong:
            topic, partition = min(wrong)
            why = "" if what == "leaves out" else ", which the query does not read"
            raise OptionError(
                f"option {bound.option} {what} topic {topic} partition {partition}{why}; it must"
                " name every partition that is read (-2 is earliest, -1 latest), and no other"
            )


def clip(named: Offsets, bound: Bound, cluster: Cluster, options: SourceOptions) -> Offsets:
    """Offsets that the user gave, held against what the partitions have."""
    if bound.kind is not Kind.OFFSETS:
        return named
    first, last = cluster.earliest(named), cluster.latest(named)
    for (topic, partition), offset in sorted(named.items()):
        low, high = first[topic, partition], last[topic, partition]
        if low <= offset <= high:
            continue
        what = (
            f"option {bound.option}: topic {topic} partition {partition} has offsets {low} to"
            f" {high}, and {offset} is not among them"
        )
        if options.fail_on_data_loss:
            raise DataLossError(
                f"{what}; correct it, or set failOnDataLoss to false to read what is there"
            )
        log.warning("%s; reading what is there, as failOnDataLoss is false", what)
        named[topic, partition] = min(max(offset, low), high)
    return named


def cut(
    ranges: Mapping[Partition, tuple[int, int]], tasks_min: int | None, rows_max: int | None
) -> list[Range]:
    """The ranges of the tasks: whole partitions, or parts where more or smaller tasks are
    wanted.
    """
    total = sum(stop - start for start, stop in ranges.values())
    found = []
    for (topic, partition), (start, stop) in sorted(ranges.items()):
        size = stop - start
        parts = 1
        if rows_max is not None:
            parts = -(-size // rows_max)
        if tasks_min is not None and tasks_min > len(ranges):
            parts = max(parts, -(-size * tasks_min // total))
        parts = max(1, min(parts, size))
        edges = [start + size * n // parts for n in range(parts + 1)]
        found += [Range(topic, partition, a, b) for a, b in pairwise(edges) if a < b]
    return found


def share_out(sizes: Mapping[Partition, int], limit: int) -> dict[Partition, int]:
    """How much of each partition is taken when all together may be `limit`: small ones whole, the
    rest in equal parts, so that no partition waits for a larger one.
    """
    found: dict[Partition, int] = {}
    left = limit
    waiting = sorted(sizes, key=lambda p: (sizes[p], p))
    for n, partition in enumerate(waiting):
        found[partition] = min(sizes[partition], -(-left // (len(waiting) - n)))
        left -= found[partition]
    return found
