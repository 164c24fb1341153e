"""Busy polling: the loop checks for the next request instead of sleeping, while that pays off.

A client that waits for each answer sends its next request some tens of microseconds after it. A
process that has gone to sleep by then must be woken up, which on a virtual machine takes longer
than all the rest of such a request. So after an answer the loop polls without sleeping for
`penstock.busy.poll.us`; every further answer starts that time again.

It is for few clients: after a turn of the loop with more than `ANSWERS_PER_TURN_MAX` answers it is
not used, since requests that arrive while the process sleeps are then served together. And it must
pay off (`_credit`): a poll during which nothing arrived costs credit, and without credit only one
answer in `TRIED_AGAIN_AFTER` is followed by another poll, so that clients that rarely send cost
almost nothing. Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
from time import monotonic_ns
from typing import Final

ANSWERS_PER_TURN_MAX: Final = 2
"""One acknowledgement to a producer, and its message to a waiting consumer."""
CREDIT_MAX: Final = 16
IN_VAIN_COSTS: Final = 4
"""A poll that finds a request earns one credit, so four of five polls must succeed."""
TRIED_AGAIN_AFTER: Final = 16


class BusyPoll:
    __slots__ = ("_answers", "_credit", "_for_ns", "_loop", "_not_tried", "_until_ns", "awake")

    def __init__(self, loop: asyncio.AbstractEventLoop, for_us: int) -> None:
        self._loop = loop
        self._for_ns = for_us * 1_000
        self._until_ns = 0
        self._answers = 0  # of this turn of the loop
        self._credit = CREDIT_MAX
        self._not_tried = 0
        self.awake = False

    def answered(self, now_ns: int) -> None:
        """An answer was sent: the next request may arrive soon."""
        self._until_ns = now_ns + self._for_ns
        if self.awake:
            self._answers += 1
            if self._answers == 1 and self._credit < CREDIT_MAX:
                self._credit += 1
        elif self._for_ns:
            if self._credit <= 0 and self._not_tried < TRIED_AGAIN_AFTER:
                self._not_tried += 1
                return
            self._not_tried = 0
            self._answers = 1
            self.awake = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        """Scheduled again and again: between two calls the loop reads what has arrived, without
        waiting.
        """
        answers, self._answers = self._answers, 0
        if answers > ANSWERS_PER_TURN_MAX:
            self.awake = False
        elif monotonic_ns() < self._until_ns:
            self._loop.call_soon(self._look)
        else:
            self.awake = False
            self._credit = max(0, self._credit - IN_VAIN_COSTS)
