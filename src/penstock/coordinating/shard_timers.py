"""The timers of one shard on the event loop.

Heartbeats postpone timers all the time. So a postponed timer keeps its handle of the loop and is
checked again when that fires. Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from penstock.coordinator.effects import CancelTimer, SetTimer, TimerKey


class _Timer:
    __slots__ = ("armed_for", "deadline_ms", "due", "handle")

    def __init__(self, deadline_ms: int, due: float, handle: asyncio.TimerHandle) -> None:
        self.deadline_ms = deadline_ms
        self.due = due
        self.handle = handle
        self.armed_for = due  # when the handle fires; `due` may have been postponed since


class ShardTimers:
    def __init__(
        self, loop: asyncio.AbstractEventLoop, fired: Callable[[TimerKey, int], None]
    ) -> None:
        """`fired` is called with a timer's key and deadline when it is due."""
        self._loop = loop
        self._fired = fired
        self._timers: dict[TimerKey, _Timer] = {}

    def change(self, timer: SetTimer | CancelTimer, now_ms: int) -> None:
        if isinstance(timer, SetTimer):
            self._set(timer, now_ms)
        else:
            self._cancel(timer.key)

    def _set(self, timer: SetTimer, now_ms: int) -> None:
        due = self._loop.time() + max(timer.deadline_ms - now_ms, 0) / 1000
        found = self._timers.get(timer.key)
        if found is not None:
            if found.armed_for <= due:
                found.deadline_ms, found.due = timer.deadline_ms, due
                return
            found.handle.cancel()
        handle = self._loop.call_at(due, self._handle_fired, timer.key)
        self._timers[timer.key] = _Timer(timer.deadline_ms, due, handle)

    def _cancel(self, key: TimerKey) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.handle.cancel()

    def _handle_fired(self, key: TimerKey) -> None:
        timer = self._timers[key]
        if timer.due > timer.armed_for:
            timer.armed_for = timer.due
            timer.handle = self._loop.call_at(timer.due, self._handle_fired, key)
            return
        del self._timers[key]
        self._fired(key, timer.deadline_ms)

    def cancel_all(self) -> None:
        for timer in self._timers.values():
            timer.handle.cancel()
        self._timers.clear()
