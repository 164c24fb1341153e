"""Compaction's child process, on the simulated loop.

The job is done by the child's own code, as a whole and as the work of a thread: its answer comes
some time later. It goes both ways as the bytes that would be in the pipes. The child may die in the
middle of a job, and leaves then what it had written.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from typing import Any

from penstock.base.errors import CorruptRecord
from penstock.log import cleaner_worker
from penstock.log.cleaner_client import Cleaner, CleanFailed
from penstock.log.cleaner_job import LENGTH, frame, job_message, parse_job, result_message
from penstock.node import compaction

from .paths import Paths

DIES = 0.1


class ChildDied(BaseException):
    """The process is gone, with no chance to tidy up."""


class SimCleaner(Cleaner):
    rng: random.Random
    paths: Paths

    async def _exchange(self, task: Any) -> dict[str, Any]:
        message = _unframed(job_message(task.job, task.id))
        dies_after = self.rng.randrange(40) if self.rng.random() < DIES else None

        def pause(_: int) -> None:
            nonlocal dies_after
            if task.aborted:
                raise cleaner_worker.CleaningAborted
            if dies_after is not None:
                dies_after -= 1
                if dies_after < 0:
                    raise ChildDied

        def work() -> dict[str, Any]:
            try:
                answer = _answer(message, pause)
            except ChildDied:
                self.paths.reach("cleaner died")
                raise CleanFailed("the cleaner process died") from None
            self.paths.reach(f"cleaner said {answer['type']}")
            return answer

        answer: dict[str, Any] = await asyncio.get_running_loop().run_in_executor(None, work)
        return answer


def _answer(message: dict[str, Any], pause: Any) -> dict[str, Any]:
    """As `cleaner_worker` answers, without a pipe and the time that a throttle takes."""
    job, job_id = parse_job(message), message["id"]
    try:
        return _unframed(result_message(cleaner_worker.clean(job, pause), job_id))
    except cleaner_worker.CleaningAborted:
        return _unframed(frame({"type": "aborted", "id": job_id}))
    except CorruptRecord as e:
        return _unframed(frame({"type": "corrupt", "id": job_id, "message": str(e)}))
    except OSError as e:
        return _unframed(frame({"type": "failed", "id": job_id, "message": str(e)}))


def _unframed(data: bytes) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(data[LENGTH.size :])
    return message


def install_cleaner(rng: random.Random, paths: Paths) -> None:
    """Put it in the place of the client that starts a process."""

    def remove_unless_dead(directory: str) -> None:
        if not isinstance(sys.exc_info()[1], ChildDied):
            remove_cleaned(directory)

    remove_cleaned = cleaner_worker.remove_cleaned
    cleaner_worker.remove_cleaned = remove_unless_dead
    SimCleaner.rng, SimCleaner.paths = rng, paths
    compaction.Cleaner = SimCleaner  # type: ignore[misc]
