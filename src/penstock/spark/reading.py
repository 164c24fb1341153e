"""How a task reads its range, from the options of the query."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from penstock.spark.fetch import Range, Reading, read_range
from penstock.spark.options import SourceOptions


def read(
    wanted: Range, options: SourceOptions, brokers: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    """The records of a range as rows of the source; `brokers` are others that may be asked."""
    how = Reading(
        bootstrap=",".join([options.bootstrap, *brokers]),
        client=options.client,
        committed=options.committed,
        fail_on_data_loss=options.fail_on_data_loss,
        headers=options.headers,
        poll_timeout_s=options.poll_timeout_s,
        bytes_max=options.fetch_bytes_max,
        bytes_min=options.fetch_bytes_min,
        wait_ms=options.fetch_wait_ms,
        rack=options.rack,
    )
    return read_range(wanted, how)
