"""By which of its listeners a node is reached: the one rule for the quorum and for brokers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar


class Named(Protocol):
    @property
    def name(self) -> str: ...


E = TypeVar("E", bound=Named)


def choose(endpoints: Iterable[E], listeners: Sequence[str]) -> E | None:
    """The endpoint of the first of `listeners` that a node offers, None if it offers none of them;
    where there is no list, the first endpoint.
    """
    by_name = {endpoint.name: endpoint for endpoint in endpoints}
    for name in listeners or by_name:
        if name in by_name:
            return by_name[name]
    return None
