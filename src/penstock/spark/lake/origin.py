"""Headers that say where a replayed record comes from.

They begin with `penstock.source.` and are written as text: topic, partition, offset, and timestamp
in milliseconds. They are no part of a record's content: audit passes over them, and takes the hour
of a replayed record from them.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as sf

PREFIX: Final = "penstock.source."
HEADER: Final = "struct<key: string, value: binary>"
HEADERS: Final = f"array<{HEADER}>"


def headers_with_origin() -> Column:
    """The headers of a row of a table, and after them where it comes from."""
    origin = {
        "topic": sf.col("topic"),
        "partition": sf.col("partition").cast("string"),
        "offset": sf.col("offset").cast("string"),
        "timestamp": sf.unix_millis("timestamp").cast("string"),
    }
    made = [
        sf.struct(sf.lit(PREFIX + name).alias("key"), value.cast("binary").alias("value"))
        for name, value in origin.items()
    ]
    return sf.concat(own_headers(), sf.array(*made).cast(HEADERS))


def given_headers() -> Column:
    """The headers; none are an empty list."""
    return sf.coalesce(sf.col("headers"), sf.array().cast(HEADERS))


def own_headers() -> Column:
    """The headers without those that say where a record comes from."""
    return sf.filter(given_headers(), lambda header: ~header["key"].startswith(PREFIX))


def original_time() -> Column:
    """When a record was first written: as its header says, or else its own timestamp."""
    named = sf.filter(
        sf.col("headers"), lambda header: header["key"] == sf.lit(f"{PREFIX}timestamp")
    )
    millis = sf.try_element_at(named, sf.lit(1))["value"].cast("string").try_cast("long")
    return sf.coalesce(sf.timestamp_millis(millis), sf.col("timestamp"))
