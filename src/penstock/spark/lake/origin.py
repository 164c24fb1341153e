"""Headers that say where a replayed record comes from.

They begin with `penstock.source.` and are written as text: topic, partition, offset, and timestamp
in milliseconds. They are no part of a record's content: audit passes over them, and takes the hour
of a replayed record from them.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as sf

from penstock.spark.headers import header, headers_without, made_headers

PREFIX: Final = "penstock.source."


def headers_with_origin() -> Column:
    """The headers of a row of a table, and after them where it comes from."""
    origin = {
        "topic": sf.col("topic"),
        "partition": sf.col("partition"),
        "offset": sf.col("offset"),
        "timestamp": sf.unix_millis("timestamp"),
    }
    return sf.concat(own_headers(), made_headers(PREFIX, origin))


def own_headers() -> Column:
    """The headers without those that say where a record comes from."""
    return headers_without(PREFIX)


def original_time() -> Column:
    """When a record was first written: as its header says, or else its own timestamp."""
    millis = header(f"{PREFIX}timestamp").try_cast("long")
    return sf.coalesce(sf.timestamp_millis(millis), sf.col("timestamp"))
