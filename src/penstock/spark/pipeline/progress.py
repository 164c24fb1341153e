"""A query's progress as Spark tells it, boiled down to what people and scripts watch.

Pure. Rows behind are what a source knows to be there less what this batch has read up to, so they
were true when the batch was planned. A source that does not say where its data ends has none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

UNNAMED_LENGTH = 8


def summary(progress: Mapping[str, Any]) -> dict[str, Any]:
    """The line about one micro-batch."""
    sources = progress.get("sources") or []
    states = progress.get("stateOperators") or []
    durations = progress.get("durationMs") or {}
    lags = [lag for source in sources if (lag := rows_behind(source)) is not None]
    return {
        "query": query_name(progress),
        "id": progress.get("id"),
        "batch": progress.get("batchId"),
        "time_ms": _time_ms(progress.get("timestamp")),
        "rows": sum(s.get("numInputRows") or 0 for s in sources),
        "rows_per_s": round(sum(s.get("processedRowsPerSecond") or 0.0 for s in sources), 1),
        "batch_ms": durations.get("triggerExecution", progress.get("batchDuration")),
        "lag_rows": sum(lags) if lags else None,
        "state_rows": sum(s.get("numRowsTotal") or 0 for s in states),
        "state_bytes": sum(s.get("memoryUsedBytes") or 0 for s in states),
    }


def query_name(progress: Mapping[str, Any]) -> str:
    """The name the user gave, else the beginning of the query's id."""
    return str(progress.get("name") or str(progress.get("id") or "?")[:UNNAMED_LENGTH])


def rows_behind(source: Mapping[str, Any]) -> int | None:
    """How many rows of a source this batch has left unread; None if the source does not say."""
    read, there = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
    if not there:
        return None
    return sum(max(0, end - read.get(place, 0)) for place, end in there.items())


def _offsets(written: object) -> dict[tuple[str, str], int]:
    """`{topic: {partition: offset}}`, bare as Spark's Kafka source has it or under "offsets"."""
    if isinstance(written, str):
        try:
            written = json.loads(written)
        except ValueError:
            return {}
    if not isinstance(written, dict):
        return {}
    written = written.get("offsets", written)
    found = {}
    for topic, partitions in written.items() if isinstance(written, dict) else ():
        for partition, offset in partitions.items() if isinstance(partitions, dict) else ():
            if isinstance(offset, int):
                found[(topic, partition)] = offset
    return found


def _time_ms(text: object) -> int | None:
    if not isinstance(text, str):
        return None
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        return None
