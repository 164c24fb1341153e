"""A pipeline's child that runs in the process of the test, on the Spark that all tests share.

It stands for `penstock.spark.pipeline.process.Child`: everything before it (options, checks,
checkpoints, the state folder, the supervisor) is as users have it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.spark.pipeline.child import _load
from penstock.spark.pipeline.job import Job
from penstock.spark.pipeline.process import Ending
from penstock.spark.pipeline.settings import arguments
from penstock.spark.pipeline.signature import FUNCTION, signature_of
from penstock.spark.pipeline.state import Folder

from .spark_flows import RUN_S_MAX, stop_all, to_end
from .waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SharedChild:
    """Runs a job to its end; one without `once` until it is told to stop."""

    spark: ClassVar[SparkSession]
    while_running: ClassVar[Callable[[], None]]
    """Called when an endless pipeline has done all that is there."""

    def __init__(
        self,
        job: Job,
        _folder: Folder,
        on_event: Callable[[str, dict[str, Any]], None],
        _on_output: Callable[[str], None],
    ) -> None:
        self._job, self._on_event = job, on_event
        self._was_told = False
        self.pid = os.getpid()

    def send(self, _number: int) -> None:
        self._was_told = True

    def wait(self, on_tick: Callable[[], None]) -> Ending:
        spark, file = self.spark, Path(self._job.file)
        self._on_event("started", {"version": spark.version})
        values = arguments(signature_of(file), self._job.settings)
        pipeline = getattr(_load(file), FUNCTION)
        if values.get("once"):
            to_end(spark, lambda: pipeline(spark, **values))
            return Ending(0)
        code = pipeline(spark, **values)
        if not spark.streams.active:
            return Ending(code or 0)
        for query in spark.streams.active:
            query.processAllAvailable()
        type(self).while_running()
        eventually(lambda: on_tick() or self._was_told, RUN_S_MAX)
        stop_all(spark)
        return Ending(0, was_stopped=True)
