"""The streaming queries of a running pipeline: watched, and stopped between two micro-batches.

Duty: tells when all queries that were started have ended, and why; hands their progress on.

Spark's own `stop` interrupts a micro-batch: a transactional sink is then left with open
transactions that hold readers back. So a stop first sets the state from which Spark reads that its
loop is to end, which lets the batch finish and starts no other, and interrupts only a loop that
waits for its next trigger, or one that takes longer than BATCH_END_S_MAX. That state is internal to
Spark (tested with 4.3); where it cannot be set, a moment between two batches is waited for.

The listener is called from a thread of PySpark's; all else belongs to the caller's.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from threading import Condition
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql.streaming.listener import StreamingQueryListener

from penstock.spark.pipeline.job import BATCH_END_S_MAX
from penstock.spark.pipeline.progress import summary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

POLL_S = 0.1
_TERMINATED = "org.apache.spark.sql.execution.streaming.runtime.TERMINATED$"


class Watcher(StreamingQueryListener):
    """Knows of every query that was started, since Spark tells of a start before it returns."""

    def __init__(self, on_progress: Callable[[dict[str, Any]], None]) -> None:
        self._on_progress = on_progress
        self._changed = Condition()
        self._running: set[str] = set()
        self.has_seen_any = False
        self.errors: list[str] = []

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802  # Spark's names
        with self._changed:
            self._running.add(str(event.runId))
            self.has_seen_any = True

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        self._on_progress(summary(json.loads(event.progress.json)))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Nothing new: the last progress still holds."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        with self._changed:
            self._running.discard(str(event.runId))
            if event.exception:
                self.errors.append(event.exception)
            self._changed.notify_all()

    def wait(self, timeout_s: float) -> bool:
        """Whether all queries have ended, or one has failed, at the latest after so long."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._running or bool(self.errors), timeout_s)


def stop_all(spark: SparkSession, limit_s: float = BATCH_END_S_MAX) -> bool:
    """Stops every query of the application, whichever session it belongs to. Tells whether each
    could finish its micro-batch.
    """
    deadline = time.monotonic() + limit_s
    is_clean = True
    while active := list(_active(spark)):
        is_late = time.monotonic() > deadline
        for query in active:
            _tell_to_end(spark, query)
            if is_late or not query.status().isTriggerActive():
                is_clean &= not is_late
                query.stop()
        time.sleep(POLL_S)
    return is_clean


def _active(spark: SparkSession) -> Iterator[Any]:
    """The JVM's objects of all running queries."""
    java: Any = spark
    queries = java._jsparkSession.sharedState().activeStreamingQueries().elements()
    while queries.hasMoreElements():
        yield queries.nextElement()


def _tell_to_end(spark: SparkSession, query: Any) -> None:
    jvm: Any = spark._jvm
    try:
        query.state().set(getattr(getattr(jvm, _TERMINATED), "MODULE$"))
    except (Py4JError, TypeError, AttributeError):
        return
