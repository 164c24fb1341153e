"""Close logs: what has to be durable is synced by several threads at a time.

One fsync after the other, a file system writes its journal for each; those of several threads share
a write. Ten thousand logs that were written to are closed in seconds instead of minutes.

Each log's files are synced by one thread, as in any flush; a log that fails is reported and does
not keep the others from being closed. The calling thread owns the logs and waits for the syncing
threads: nobody else may use the logs meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from penstock.base.errors import StorageError
from penstock.log.flush import FlushTask, flush_begin, flush_done
from penstock.log.limits import CLOSED_AT_ONCE, SYNC_THREADS
from penstock.log.log import Log

logger = logging.getLogger("penstock.log")


def close_logs(logs: Sequence[Log]) -> bool:
    """Close `logs`; whether all of them were closed cleanly."""
    clean = True
    with ThreadPoolExecutor(SYNC_THREADS, thread_name_prefix="close") as pool:
        # A few at a time, as the files of each stay open until it is synced.
        for start in range(0, len(logs), CLOSED_AT_ONCE):
            clean = _close(logs[start : start + CLOSED_AT_ONCE], pool) and clean
    return clean


def _close(logs: Sequence[Log], pool: ThreadPoolExecutor) -> bool:
    clean = True
    begun: list[tuple[Log, FlushTask | None]] = []
    for log in logs:
        try:
            begun.append((log, close_begin(log)))
        except StorageError as e:
            clean = _failed(log, e)
    list(pool.map(FlushTask.run, [task for _, task in begun if task is not None]))
    for log, task in begun:
        try:
            close_done(log, task)
        except StorageError as e:
            clean = _failed(log, e)
        clean = clean and log.failure is None
    return clean


def close_begin(log: Log) -> FlushTask | None:
    """Write indexes and a snapshot; what has to be synced before `close_done`, if anything."""
    if log.abandoned:
        log.release()
        raise StorageError(f"{log.name} was abandoned: {log.failure}")
    log.write_out()
    try:
        log.segments.active.on_become_inactive()
        for segment in log.segments:
            segment.flush_indexes()
        log.producers.take_snapshot(log.log_end_offset)
        return flush_begin(log) if log.unflushed_messages or log.rolled_unflushed else None
    except OSError as e:
        log.release()
        raise log.refused(e) from e
    except BaseException:
        log.release()
        raise


def close_done(log: Log, task: FlushTask | None) -> None:
    """Record what `task` has synced, and release descriptors and memory."""
    try:
        if task is not None:
            flush_done(log, task)
    finally:
        log.release()


def _failed(log: Log, error: StorageError) -> bool:
    logger.error("log %s was not closed cleanly: %s", log.name, error)
    return False
