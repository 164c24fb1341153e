"""Close many logs: what has to be durable is synced by several threads at a time.

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
from penstock.log.flush import FlushTask
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
            begun.append((log, log.close_begin()))
        except StorageError as e:
            clean = _failed(log, e)
    list(pool.map(FlushTask.run, [task for _, task in begun if task is not None]))
    for log, task in begun:
        try:
            log.close_done(task)
        except StorageError as e:
            clean = _failed(log, e)
        clean = clean and log.failure is None
    return clean


def _failed(log: Log, error: StorageError) -> bool:
    logger.error("log %s was not closed cleanly: %s", log.name, error)
    return False
