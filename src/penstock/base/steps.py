"""Work in steps: a generator does a part of its work, stops, and in the end returns the result.

Whoever calls decides what happens in between: nothing (`at_once`), or other work on the event loop
(`net.turn`). What stops and where is up to the generator; nothing here knows a clock or a loop.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeAlias, TypeVar

R = TypeVar("R")

Steps: TypeAlias = Generator[None, None, R]


def at_once(steps: Steps[R]) -> R:
    """What `steps` returns, without a stop."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: R = done.value
            return result
