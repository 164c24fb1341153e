"""A look-up by time, all of it in one thread."""

from __future__ import annotations

from penstock.log.log import Log
from penstock.log.time_lookup import TimestampOffset, search


def looked_up(log: Log, timestamp: int) -> TimestampOffset | None:
    steps = search(log, timestamp)
    try:
        while True:
            walk = next(steps)
            assert walk.run()
            walk.close()
            if walk.error is not None:
                raise walk.error
    except StopIteration as end:
        found: TimestampOffset | None = end.value
        return found
