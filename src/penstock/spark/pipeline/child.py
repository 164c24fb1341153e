"""The process that runs one pipeline on Spark: `python -m penstock.spark.pipeline.child EVENTS_FD`.

Duty: starts Spark, runs the file, waits for its queries, reports on the pipe, and stops cleanly
when told. The exit code is the pipeline's own, 0 if it has none. What fails is reported as one
sentence; its whole traceback goes to stderr, which is the run's log.

The main thread runs the pipeline, which may block in Java for as long as it likes. SIGTERM, SIGINT
and the end of stdin (the parent is gone) start one thread that stops the queries; the main thread
then finds them ended. Work that is no query is cancelled.
"""

from __future__ import annotations

import atexit
import importlib.util
import json
import os
import runpy
import signal
import sys
import threading
import traceback
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from penstock.spark.pipeline import job as words
from penstock.spark.pipeline.failure import Cause, Failure, of_exception, of_text
from penstock.spark.pipeline.job import Job
from penstock.spark.pipeline.project import READY_FOLDER
from penstock.spark.pipeline.settings import arguments
from penstock.spark.pipeline.signature import FUNCTION, signature_of
from penstock.spark.session import start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.pipeline.queries import Watcher

WATCH_S = 0.2
WORKERS_PYTHON = "spark.pyspark.python"
"""Spark reads it only for programs that are submitted; else the environment says it."""
EXIT_FAILED = 1
EXIT_STOPPED = 130
"""Batch work that was stopped before it was done, as shells say it."""
LOCAL_SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
    "spark.ui.enabled": "false",
}
"""For a Spark of this machine alone: it listens to nobody else and shuffles among its own cores."""
SETTINGS = {
    "spark.log.level": "WARN",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
}
"""Times without a zone mean the same on every machine."""


class Reporter:
    """Lines of JSON to the parent; a parent that is gone is no error."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()

    def __call__(self, event: str, **more: Any) -> None:
        line = json.dumps({"event": event, **more}).encode() + b"\n"
        with self._lock, suppress(BrokenPipeError):
            while line:
                line = line[os.write(self._fd, line) :]

    def failed(self, failure: Failure) -> None:
        self(words.FAILED, sentence=failure.sentence, cause=failure.cause.value)


class Stopper:
    """Turns the first request to stop into a clean stop, whenever it comes."""

    def __init__(self) -> None:
        self.requested = threading.Event()
        self._spark: SparkSession | None = None
        self._watcher: Watcher | None = None
        self._begun = threading.Lock()

    def listen(self) -> None:
        """Signals from now on; again once Spark has put its own handler in place."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def guard(self, spark: SparkSession, watcher: Watcher) -> None:
        """From now on there is something to stop."""
        self._spark, self._watcher = spark, watcher
        self.listen()
        threading.Thread(target=self._until_parent_ends, daemon=True).start()

    def _on_signal(self, _number: int, _frame: object) -> None:
        if self._spark is None:
            raise SystemExit(0)  # Spark is not there yet, and nothing has begun
        self.request()

    def _until_parent_ends(self) -> None:
        while os.read(0, 4096):
            """Nothing is said after the job."""
        self.request()

    def request(self) -> None:
        if self._begun.acquire(blocking=False):
            threading.Thread(target=self._stop, daemon=True).start()

    def _stop(self) -> None:
        from penstock.spark.pipeline.queries import stop_all

        assert self._spark is not None
        self.requested.set()
        is_clean = stop_all(self._spark)
        if not is_clean:
            sys.stderr.write(f"a micro-batch was cut off after {words.BATCH_END_S_MAX:.0f} s\n")
        if not self.had_queries:
            self._spark.sparkContext.cancelAllJobs()

    @property
    def had_queries(self) -> bool:
        """Whether there were streams, which a restart goes on with, or only batch work."""
        return self._watcher is not None and self._watcher.has_seen_any


def main() -> int:
    report = Reporter(int(sys.argv[1]))
    stopper = Stopper()
    stopper.listen()
    job = Job.of(sys.stdin.buffer.readline())
    if python := job.spark.get(WORKERS_PYTHON):
        os.environ["PYSPARK_PYTHON"] = python
    try:
        return _run(job, report, stopper)
    except SystemExit as e:
        return _exit_code(e, report)
    except BaseException as e:
        if stopper.requested.is_set():
            report(words.STOPPED)
            return 0 if stopper.had_queries else EXIT_STOPPED
        traceback.print_exc()
        report.failed(_crash() or of_exception(e, Path(job.file)))
        return EXIT_FAILED


def _exit_code(error: SystemExit, report: Reporter) -> int:
    if isinstance(error.code, str):  # sys.exit("a sentence")
        report.failed(Failure(error.code, Cause.OWN))
        return EXIT_FAILED
    return error.code or 0


def _run(job: Job, report: Reporter, stopper: Stopper) -> int:
    if job.is_declarative:
        from penstock.spark.pipeline.declarative import run_declarative

        return run_declarative(job, report, stopper)
    signature = signature_of(Path(job.file))
    values = arguments(signature, job.settings)
    if Path(job.file).parent != READY_FOLDER:
        _make_importable(Path(job.file).parent)
    spark = start_session(job.name, job.master, spark_settings(job))
    from penstock.spark.pipeline.pulse import start_pulse
    from penstock.spark.pipeline.queries import Watcher

    watcher = Watcher(lambda line: report(words.PROGRESS, **line))
    spark.streams.addListener(watcher)
    stopper.guard(spark, watcher)
    report(words.STARTED, version=spark.version, java_pid=java_pid(spark))
    start_pulse(spark.sparkContext, lambda line: report(words.WORKING, **line))
    if signature.is_function:
        code = getattr(_load(Path(job.file)), FUNCTION)(spark, **values)
    else:
        runpy.run_path(job.file, run_name="__main__")
        code = None
    _wait(watcher, stopper, spark)
    if stopper.requested.is_set():
        report(words.STOPPED)
    elif watcher.errors:
        return _query_failed(watcher, report, spark)
    spark.stop()
    return code if isinstance(code, int) else 0


def _make_importable(folder: Path) -> None:
    """The file may import its neighbours, here and in Spark's workers on this machine."""
    sys.path.insert(0, str(folder))
    paths = [str(folder), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))


def spark_settings(job: Job) -> dict[str, str]:
    """Spark's configuration: what the user gives stands above what is set here."""
    local = LOCAL_SETTINGS if job.master.startswith("local") else {}
    return {**SETTINGS, **local, **job.spark}


def _load(file: Path) -> ModuleType:
    """The file as a module. Its functions travel to Spark's workers by value: they cannot import
    it.
    """
    from pyspark import cloudpickle

    spec = importlib.util.spec_from_file_location("penstock_pipeline_" + file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return module


def _wait(watcher: Watcher, stopper: Stopper, spark: SparkSession) -> None:
    """Until all queries have ended or one has failed."""
    from penstock.spark.pipeline.queries import stop_all

    while not watcher.wait(WATCH_S):
        if crash := _crash():
            raise RuntimeError(crash.sentence)
        if stopper.requested.is_set():
            stop_all(spark)  # also a query that was started after the request


def _query_failed(watcher: Watcher, report: Reporter, spark: SparkSession) -> int:
    """One query has failed; the others are stopped cleanly: they start again together."""
    from penstock.spark.pipeline.queries import stop_all

    for error in watcher.errors:
        sys.stderr.write(error + "\n")
    report.failed(of_text(watcher.errors[0]))
    stop_all(spark)
    return EXIT_FAILED


def _crash() -> Failure | None:
    """Whether Spark's Java has died."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    code = process.poll() if process is not None else None
    if code is None:
        return None
    ending = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return Failure(f"the Java that Spark runs on {ending}", Cause.CRASH)


def java_pid(spark: SparkSession) -> int:
    jvm: Any = spark._jvm
    return int(jvm.java.lang.ProcessHandle.current().pid())


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    atexit._run_exitfuncs()
    # Threads that wait on Java or on stdin end with the process, and Java with its own stdin.
    os._exit(code)
