"""The column `headers` of rows that hold messages: what we write there, and find again.

Ours have names with a prefix and values that are text; they stand behind those of the message, so
where a name is there twice, the last one counts.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as sf

HEADERS: Final = "array<struct<key: string, value: binary>>"
"""The type of the column."""


def given_headers() -> Column:
    """The headers; none are an empty list."""
    return sf.coalesce(sf.col("headers"), sf.array().cast(HEADERS))


def headers_without(prefix: str) -> Column:
    """The headers whose names do not begin so."""
    return sf.filter(given_headers(), lambda header: ~header["key"].startswith(prefix))


def header(name: str) -> Column:
    """The text of a header; null without it."""
    found = sf.filter("headers", lambda header: header["key"] == sf.lit(name))
    return sf.try_element_at(found, sf.lit(-1))["value"].cast("string")


def made_headers(prefix: str, said: dict[str, Column]) -> Column:
    """A list of headers: their names without the prefix, and what they say."""
    return sf.array(
        *(
            sf.struct(
                sf.lit(prefix + name).alias("key"),
                value.cast("string").cast("binary").alias("value"),
            )
            for name, value in said.items()
        )
    ).cast(HEADERS)
