"""Where an archive that has no checkpoint yet begins to read: where its table ends.

Partitions that the table does not hold are read from their beginning. Spark follows the checkpoint
where there is one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from penstock.spark.cluster import Cluster
from penstock.spark.lake.table import Table
from penstock.spark.offsets import EARLIEST, to_json
from penstock.spark.options import source_options


def starting_offsets(table: Table, topics: Sequence[str], kafka: Mapping[str, str]) -> str:
    """The option startingOffsets."""
    state = table.load().state
    if not any(topic in state.spans for topic in topics):
        return "earliest"
    options = source_options({**kafka, "subscribe": ",".join(topics)})
    found = {}
    for partition in Cluster(options).partitions():
        span = state.span(partition)
        found[partition] = EARLIEST if span is None else span.end
    return json.dumps(to_json(found))
