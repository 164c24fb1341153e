"""By which of its listeners a node is reached: the one rule for the quorum and for brokers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar


class Named(Protocol):
    @property
    def name(self) -> str: ...


E = TypeVar("E", bound=Named)


def choose(endpoints: Sequence[E], listeners: Sequence[str]) -> E | None:
    """The endpoint of the first of `listeners` that a node offers, None if it offers none of them;
    where there is no list, the first endpoint.
    """
    if not listeners:
        return endpoints[0] if endpoints else None
    for name in listeners:
        for endpoint in endpoints:
            if endpoint.name == name:
                return endpoint
    return None
