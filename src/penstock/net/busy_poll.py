"""Looking for the next request instead of sleeping, as long as that pays.

A client that waits for each answer sends its next request some tens of microseconds after it. A
process that has gone to sleep by then must be woken up, which on a virtual machine takes longer
than all the rest of such a request. So after an answer the loop goes round without sleeping for
`penstock.busy.poll.us`, and every further answer begins that time anew.

It is for few clients: when a turn of the loop had more than `ANSWERS_PER_TURN_MAX`, there is enough
to do, and what comes while the process sleeps is done together. And it must pay (`_credit`): a time
in which nothing came counts against it, and when the credit is used up only one answer in
`TRIED_AGAIN_AFTER` is followed by another try, so that clients that send now and then cost next to
nothing. Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
from time import monotonic_ns

ANSWERS_PER_TURN_MAX = 2
"""A client's acknowledgement, and its message for a consumer that waits for it."""
CREDIT_MAX = 16
IN_VAIN_COSTS = 4
"""An answer to what came meanwhile gives one, so four of five times must pay."""
TRIED_AGAIN_AFTER = 16


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
        """An answer was sent: the next request may be near."""
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
        """Between two of these the loop looks for what has arrived, without waiting for it."""
        answers, self._answers = self._answers, 0
        if answers > ANSWERS_PER_TURN_MAX:
            self.awake = False
        elif monotonic_ns() < self._until_ns:
            self._loop.call_soon(self._look)
        else:
            self.awake = False
            self._credit = max(0, self._credit - IN_VAIN_COSTS)
