"""Tells that a pipeline is at work while Spark has nothing to report yet.

Spark reports a micro-batch when it is over, and of other work nothing at all, which may be minutes.
Every `PULSE_S` the tasks of the jobs that run at the moment are counted and reported, as long as
there are any.

A daemon thread of the child; it reads from Spark's status tracker, and ends with the process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from pyspark import SparkContext

PULSE_S = 2.0


def start_pulse(context: SparkContext, report: Callable[[dict[str, Any]], None]) -> None:
    threading.Thread(target=_beat, args=(context, report), daemon=True).start()


def _beat(context: SparkContext, report: Callable[[dict[str, Any]], None]) -> None:
    begun_s: float | None = None
    while True:
        time.sleep(PULSE_S)
        try:
            found = tasks(context)
        except (Py4JError, OSError, AttributeError):  # Spark is being stopped
            return
        if found is None:
            begun_s = None
            continue
        begun_s = begun_s or time.monotonic()
        done, total = found
        seconds = round(time.monotonic() - begun_s + PULSE_S, 1)
        report({"tasks_done": done, "tasks": total, "seconds": seconds})


def tasks(context: SparkContext) -> tuple[int, int] | None:
    """How many tasks of the running jobs are done, and how many there are; None without a job."""
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(number) for number in tracker.getActiveJobsIds()]
    if not jobs:
        return None
    numbers = {number for job in jobs if job is not None for number in job.stageIds}
    stages = [tracker.getStageInfo(number) for number in sorted(numbers)]
    known = [stage for stage in stages if stage is not None]
    return sum(s.numCompletedTasks for s in known), sum(s.numTasks for s in known)
