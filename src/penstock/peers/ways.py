"""By which of their listeners this node reaches others, and as whom.

A node calls each other one by the listener that its own settings name for that. While another one
does not offer that, since it has not been restarted with it yet, it is called by another listener
of the same name as one that this node has open itself. What a node has closed, it speaks no more;
and once the other one offers the right listener, nothing else is tried, whatever becomes of it.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from penstock.kafka.sasl import Sasl


@dataclass(frozen=True, slots=True)
class Ways:
    brokers: tuple[str, ...] = ()
    """The listener by which brokers are reached, then those to fall back on."""
    quorum: tuple[str, ...] = ()
    """The same for the metadata quorum and the active controller."""
    tls: Callable[[str], ssl.SSLContext | None] = lambda _: None
    """The context of a new connection to a listener of that name; None for a plain one."""
    logins: Mapping[str, Sasl] = field(default_factory=dict)
    """The logins of this node, by listener; none where a listener asks for none."""

    def is_fallback(self, listener: str) -> bool:
        """Whether others are to be reached by another listener than this."""
        right = {*self.brokers[:1], *self.quorum[:1]}
        return bool(right) and listener not in right
