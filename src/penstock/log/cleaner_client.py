"""The broker's handle on the process that compacts logs.

Duty: start the child on the first job, hand it one job at a time, give back its result, notice
when it dies and start another one for the next job. `abort` ends the cleaning of a log that is
about to be deleted or truncated.

Invariants: while `clean` has not returned a result, the log's files are untouched, and when it
raises, no `.cleaned` file is left. A log whose bytes were found corrupt is not cleaned again
until the broker restarts or its entry in `uncleanable` is removed.

Owner: the node's event loop; all methods are called there.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from penstock.base.errors import (
    CorruptRecord,
    InvariantBroken,
    PenstockError,
    StorageError,
    invariant,
)
from penstock.log.cleaner_files import remove_cleaned
from penstock.log.cleaner_job import (
    LENGTH,
    MESSAGE_BYTES_MAX,
    CleanJob,
    CleanResult,
    frame,
    job_message,
    parse_result,
)

STOP_WAIT_S = 5.0
"""How long the child has to end by itself before it is killed."""


class CleanAborted(PenstockError):
    """The cleaning was ended by `abort` or `stop`."""


class CleanFailed(StorageError):
    """The cleaning failed (disk full, a file missing, the child lost): try again later."""


class LogUncleanable(CorruptRecord):
    """The log holds bytes that cannot be compacted without guessing."""


@dataclass(slots=True, eq=False)
class _Task:
    """One call of `clean`."""

    job: CleanJob
    id: int
    turn: asyncio.Future[None]
    """Done when the child is free for it."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    aborted: bool = False


class Cleaner:
    """One child process and the jobs that wait for it."""

    def __init__(self) -> None:
        self.uncleanable: dict[str, str] = {}
        """Directory of every log that was found corrupt, and what was found."""
        self._process: Process | None = None
        self._ids = count(1)
        self._tasks: dict[str, _Task] = {}
        """By directory, in the order of their coming; the first one runs."""
        self._stopped = False

    @property
    def pid(self) -> int | None:
        """The child's process id while it runs."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    async def clean(self, job: CleanJob) -> CleanResult:
        """Have the log cleaned; its segments are then swapped by the caller."""
        directory = job.directory
        invariant(directory not in self._tasks, f"{directory} is being cleaned already")
        if directory in self.uncleanable:
            raise LogUncleanable(self.uncleanable[directory])
        if self._stopped:
            raise _aborted(directory)
        task = _Task(job, next(self._ids), asyncio.get_running_loop().create_future())
        self._tasks[directory] = task
        self._pass_turn()
        try:
            await task.turn
            return await self._run(task)
        finally:
            del self._tasks[directory]
            self._pass_turn()
            task.ended.set()

    async def abort(self, directory: str) -> None:
        """End the cleaning of a log, if there is one; no file of it is written any more then."""
        task = self._tasks.get(directory)
        if task is not None:
            self._end(task)
            await task.ended.wait()

    async def stop(self) -> None:
        """Abort what runs and what waits, and end the child."""
        self._stopped = True
        for task in list(self._tasks.values()):
            await self.abort(task.job.directory)
        await self._end_child()

    def _pass_turn(self) -> None:
        first = next(iter(self._tasks.values()), None)
        if first is not None and not first.turn.done():
            first.turn.set_result(None)

    def _end(self, task: _Task) -> None:
        task.aborted = True
        if not task.turn.done():
            task.turn.set_exception(_aborted(task.job.directory))
        elif self._process is not None and self._process.stdin is not None:
            # Should the job have ended meanwhile, the child ignores this.
            with suppress(OSError):
                self._process.stdin.write(frame({"type": "abort", "id": task.id}))

    async def _run(self, task: _Task) -> CleanResult:
        directory = task.job.directory
        try:
            answer = await self._exchange(task)
        except CleanAborted:
            raise
        except BaseException:
            # Cancelled or lost: a child in an unknown state is not given another job.
            await asyncio.shield(self._kill_child())
            await asyncio.shield(asyncio.to_thread(remove_cleaned, directory))
            raise
        if answer["type"] == "done" and task.aborted:
            # The abort came too late for the child to notice.
            await asyncio.to_thread(remove_cleaned, directory)
            raise _aborted(directory)
        return self._judge(directory, answer)

    def _judge(self, directory: str, answer: dict[str, Any]) -> CleanResult:
        kind = answer["type"]
        if kind == "done":
            return parse_result(answer)
        if kind == "aborted":
            raise _aborted(directory)
        if kind == "corrupt":
            found = f"{directory} is not compacted any more: {answer['message']}"
            self.uncleanable[directory] = found
            raise LogUncleanable(found)
        raise CleanFailed(f"cleaning of {directory} failed: {answer['message']}")

    async def _exchange(self, task: _Task) -> dict[str, Any]:
        """Send the job and wait for the answer."""
        process = await self._child()
        if task.aborted:
            raise _aborted(task.job.directory)
        requests, answers = process.stdin, process.stdout
        if requests is None or answers is None:
            raise InvariantBroken("the cleaner process was started without pipes")
        try:
            requests.write(job_message(task.job, task.id))
            await requests.drain()
            (size,) = LENGTH.unpack(await answers.readexactly(LENGTH.size))
            invariant(size <= MESSAGE_BYTES_MAX, f"an answer of {size} bytes from the cleaner")
            answer: dict[str, Any] = json.loads(await answers.readexactly(size))
        except (asyncio.IncompleteReadError, ConnectionError) as e:
            raise CleanFailed(
                f"the cleaner process {process.pid} died; the log is as it was, "
                "and the next cleaning starts another process"
            ) from e
        invariant(answer["id"] == task.id, f"answer to job {answer['id']}, expected {task.id}")
        return answer

    async def _child(self) -> Process:
        if self._process is None or self._process.returncode is not None:
            # The child must find this very package, also where it was not installed.
            root = str(Path(__file__).resolve().parents[2])
            path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "penstock.log.cleaner_worker",
                stdin=PIPE,
                stdout=PIPE,
                env={**os.environ, "PYTHONPATH": path},
            )
        return self._process

    async def _end_child(self) -> None:
        process = self._process
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), STOP_WAIT_S)
        except TimeoutError:
            await self._kill_child()
        self._process = None

    async def _kill_child(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def _aborted(directory: str) -> CleanAborted:
    return CleanAborted(f"cleaning of {directory} was aborted")
