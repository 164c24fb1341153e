"""Compares two sets of records: a topic with its archive, or with its copy in another topic.

Rows are counted and added up by partition and hour: the sum of a 64-bit hash of each row's key,
value and headers, which does not depend on their order. Of an archive the offset belongs to the
row, too; of a copy, the headers that replay adds do not. Each side is read once. Only where groups
differ are rows looked at one by one, to name the places: a missing, doubled, changed or additional
row.

The topic is what a reader of committed data gets. Offsets without a row are no fault: transaction
markers, aborted records and compacted ones take offsets, too. They are told as `holes`; a record
that the archive lacks is a difference in its group.

Limits: groups (partitions times hours) are held by the driver, up to `GROUPS_MAX`. Hashes show
mistakes, not somebody who makes two sets look equal on purpose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from penstock.spark.errors import SparkError
from penstock.spark.headers import given_headers
from penstock.spark.lake.origin import original_time, own_headers
from penstock.spark.lake.rows import HOUR_MICROS, Times

GROUPS_MAX: Final = 1_000_000
PLACES_MAX: Final = 20
"""How many places of differences are named."""
GROUP: Final = ["part", "hour"]
ALL_PARTITIONS: Final = -1
ALWAYS: Final = Times()


class Group(msgspec.Struct, frozen=True):
    """The rows of a partition (-1 for all together) and hour (since 1970), on both sides."""

    partition: int
    hour: int
    rows: tuple[int, int]
    checksums: tuple[str, str]

    @property
    def equal(self) -> bool:
        return self.rows[0] == self.rows[1] and self.checksums[0] == self.checksums[1]


class Place(msgspec.Struct, frozen=True):
    """A row that differs, where it is, or should be, on the side that is named."""

    what: str
    side: str
    partition: int
    offset: int


class Extent(msgspec.Struct, frozen=True):
    """The offsets of a partition on one side, and how many of them have no row."""

    side: str
    partition: int
    first: int
    last: int
    rows: int

    @property
    def holes(self) -> int:
        return max(self.last - self.first + 1 - self.rows, 0)


class Audit(msgspec.Struct, frozen=True):
    """What an audit has found."""

    left: str
    right: str
    groups: list[Group]
    extents: list[Extent]
    places: list[Place]
    notes: list[str]

    @property
    def differing(self) -> list[Group]:
        return [group for group in self.groups if not group.equal]

    @property
    def equal(self) -> bool:
        return not self.differing


@dataclass(frozen=True)
class Side:
    """Records with the columns of the source, under the name of where they are."""

    name: str
    rows: DataFrame


@dataclass(frozen=True)
class Comparison:
    """How two sides are held against each other."""

    left: Side
    right: Side
    by_offset: bool
    """Whether a row has the same partition and offset on both sides, as in an archive."""
    by_partition: bool = True
    by_hour: bool = True
    times: Times = ALWAYS

    def run(self, notes: Sequence[str] = ()) -> Audit:
        sides = [self._prepared(side.rows) for side in (self.left, self.right)]
        found = [_counted(rows) for rows in sides]
        groups = _groups(*(_sums(rows) for rows in found))
        extents = _extents(self.left.name, found[0]) + _extents(self.right.name, found[1])
        bad = [(group.partition, group.hour) for group in groups if not group.equal]
        places = self._places(sides, bad) if bad else []
        return Audit(self.left.name, self.right.name, groups, extents, places, list(notes))

    def _prepared(self, rows: DataFrame) -> DataFrame:
        """Group, place and hash of each row of the range."""
        if not self.by_offset:
            rows = rows.withColumns({"timestamp": original_time(), "headers": own_headers()})
        rows = self.times.of_rows(rows)
        hour = sf.floor(sf.unix_micros("timestamp") / HOUR_MICROS)
        part = sf.col("partition") if self.by_partition else sf.lit(ALL_PARTITIONS)
        return rows.select(
            part.alias("part"),
            (hour if self.by_hour else sf.lit(0)).cast("long").alias("hour"),
            "partition",
            "offset",
            row_hash(self.by_offset).alias("hash"),
        )

    def _places(self, sides: list[DataFrame], bad: list[tuple[int, int]]) -> list[Place]:
        """Rows of differing groups that are not equally often on both sides, the first ones."""
        spark = sides[0].sparkSession
        groups = sf.broadcast(spark.createDataFrame(bad, "part int, hour long"))
        same = ["partition", "offset"] if self.by_offset else ["hash"]
        found = []
        for name, rows in zip("ab", sides, strict=True):
            of_bad = rows.join(groups, GROUP, "leftsemi")
            found.append(
                of_bad.groupBy(*same).agg(
                    sf.count("*").alias(f"{name}_count"),
                    sf.min(sf.struct("partition", "offset")).alias(f"{name}_place"),
                    sf.sum(sf.col("hash").cast("decimal(38,0)")).alias(f"{name}_hash"),
                )
            )
        a, b = sf.coalesce("a_count", sf.lit(0)), sf.coalesce("b_count", sf.lit(0))
        changed = ~sf.col("a_hash").eqNullSafe(sf.col("b_hash"))
        rows = (
            found[0]
            .join(found[1], same, "full_outer")
            .select(a.alias("a"), b.alias("b"), "a_place", "b_place", changed.alias("changed"))
            .where((sf.col("a") != sf.col("b")) | sf.col("changed"))
            .orderBy(sf.coalesce("a_place", "b_place"))
            .limit(PLACES_MAX)
        )
        return [self._place(row) for row in rows.collect()]

    def _place(self, row: Any) -> Place:
        what = "changed"
        if row["a"] != row["b"]:
            few = "missing" if row["b"] == 0 else "too few"
            what = few if row["b"] < row["a"] else "doubled" if row["a"] else "additional"
        at_left = row["a_place"] is not None
        place = row["a_place"] if at_left else row["b_place"]
        side = self.left.name if at_left else self.right.name
        return Place(what, side, place["partition"], place["offset"])


def row_hash(with_offset: bool) -> Column:
    """A number that tells rows apart. Spark's hash passes over nulls, so that they would not be
    told from their neighbours: each is hashed with a mark of its own.
    """
    marked = sf.transform(
        given_headers(), lambda h: sf.struct(h["key"], h["value"].isNull(), h["value"])
    )
    parts = [sf.col("offset")] if with_offset else []
    for column in (sf.col("key"), sf.col("value")):
        parts += [column.isNull(), column]
    return sf.xxhash64(*parts, sf.size(marked), marked)


Sums = dict[tuple[int, int], tuple[int, int]]
"""Rows and checksum of each partition and hour."""


def _counted(rows: DataFrame) -> list[Any]:
    """Counts, sums and offsets by group and partition, which all else is worked out from."""
    found = (
        rows.groupBy(*GROUP, "partition")
        .agg(
            sf.count("*").alias("rows"),
            sf.sum(sf.col("hash").cast("decimal(38,0)")).alias("checksum"),
            sf.min("offset").alias("first"),
            sf.max("offset").alias("last"),
        )
        .limit(GROUPS_MAX + 1)
        .collect()
    )
    if len(found) > GROUPS_MAX:
        raise SparkError(
            f"there are more than {GROUPS_MAX} partitions and hours: audit a shorter time with"
            " since and until"
        )
    return found


def _sums(found: list[Any]) -> Sums:
    sums: Sums = {}
    for row in found:
        group = row["part"], row["hour"]
        rows, checksum = sums.get(group, (0, 0))
        sums[group] = rows + row["rows"], checksum + int(row["checksum"])
    return sums


def _groups(left: Sums, right: Sums) -> list[Group]:
    groups = []
    for part, hour in sorted(left.keys() | right.keys()):
        a, b = (side.get((part, hour), (0, 0)) for side in (left, right))
        groups.append(Group(part, hour, (a[0], b[0]), (str(a[1]), str(b[1]))))
    return groups


def _extents(side: str, found: list[Any]) -> list[Extent]:
    extents = []
    for partition in sorted({row["partition"] for row in found}):
        mine = [row for row in found if row["partition"] == partition]
        first, last = min(r["first"] for r in mine), max(r["last"] for r in mine)
        extents.append(Extent(side, partition, first, last, sum(r["rows"] for r in mine)))
    return extents
