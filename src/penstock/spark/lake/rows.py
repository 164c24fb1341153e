"""The rows of a table as DataFrames: their columns, their hours, and ranges of them.

Rows are read from the files that the last commit names, so that a reader sees whole batches only.
Hours are those of UTC, whatever time zone the session has, and are worked out from the timestamp
when rows are read.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from penstock.spark.errors import OptionError, SparkError
from penstock.spark.lake.remote import Remote
from penstock.spark.lake.table import DataFile, Table, Version

DATE: Final = "date"
HOUR: Final = "hour"
RECORD: Final = (
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
    "key",
    "value",
    "headers",
)
ORDER: Final = ("topic", "partition", "offset")
"""The columns that say where a record was."""
HOUR_MICROS: Final = 3_600_000_000
HOUR_LONG: Final = timedelta(hours=1)


def with_hours(frame: DataFrame) -> DataFrame:
    """The rows with the columns date and hour, of their timestamp in UTC."""
    hours = sf.floor(sf.unix_micros("timestamp") / HOUR_MICROS)
    return frame.withColumns(
        {
            DATE: sf.date_from_unix_date(sf.floor(hours / 24).cast("int")),
            HOUR: sf.pmod(hours, sf.lit(24)).cast("int"),
        }
    )


def with_decoded(frame: DataFrame, value_format: str | None, schema: str | None) -> DataFrame:
    """The rows with the columns decoded and decode_error, if a format is given."""
    if value_format is None:
        return frame
    from penstock.spark.formats import decode_checked

    checked = decode_checked("value", value_format, schema)
    names = {"value": "decoded", "error": "decode_error"}
    return frame.select("*", *(checked[name].alias(column) for name, column in names.items()))


@dataclass(frozen=True)
class Times:
    """A range of record times, `until` not included; None where it is open."""

    since: datetime | None = None
    until: datetime | None = None

    @classmethod
    def parse(cls, since: str | None, until: str | None) -> Times:
        found = cls(
            None if since is None else parse_time("since", since),
            None if until is None else parse_time("until", until),
        )
        if found.since and found.until and found.since >= found.until:
            raise OptionError(f"since ({since}) must be before until ({until})")
        return found

    def of_file(self, file: DataFile) -> bool:
        """Whether a file can hold rows of the range."""
        start = datetime.fromisoformat(file.date).replace(hour=file.hour, tzinfo=UTC)
        begins_in_time = self.until is None or start < self.until
        return begins_in_time and (self.since is None or start + HOUR_LONG > self.since)

    def of_rows(self, frame: DataFrame) -> DataFrame:
        for bound, is_start in ((self.since, True), (self.until, False)):
            if bound is not None:
                micros = sf.lit(int(bound.timestamp()) * 1_000_000 + bound.microsecond)
                at = sf.unix_micros("timestamp")
                frame = frame.where(at >= micros if is_start else at < micros)
        return frame


def parse_time(name: str, text: str) -> datetime:
    """The time that a setting says, in UTC unless it says otherwise."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise OptionError(
            f"{name} must be a time as 2026-11-16T05:00 or 2026-11-16T05:00+01:00, not {text!r}"
        ) from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)


def read(
    spark: SparkSession, table: Table, version: Version, times: Times | None = None
) -> DataFrame:
    """The rows of a range, without date and hour."""
    if not version.state.columns:
        raise SparkError(
            f"the last commits of the table in {table.folder} do not say what it holds: only tables"
            " that archive wrote can be read"
        )
    times = times or Times()
    schema = StructType.fromJson(json.loads(version.state.columns))
    paths = [table.folder / file.path for file in version.files if times.of_file(file)]
    if not paths:
        return spark.createDataFrame([], schema)
    if isinstance(table.folder, Remote):
        from penstock.spark.lake.remote_rows import read_files

        return times.of_rows(read_files(spark, schema, paths))
    return times.of_rows(spark.read.schema(schema).parquet(*map(str, paths)))
