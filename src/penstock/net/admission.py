"""Who may connect: how many at once, how many from one address, how many new ones per second.

A node's limits bind all addresses, a quota of `connection_creation_rate` (in the metadata) those
that it names: what is above it is held for a while and then closed, so that its client does not
come again at once. At most `HELD_MAX` are held at a time; more are closed at once.

One object for all listeners of a node; its limits are replaced as a whole while it runs. What is
connected stays, also when a limit falls below it. Beyond a number, a new connection is closed;
beyond a rate, it is held up until its time has come, as Kafka's acceptors do. The listener by which
nodes reach each other is not bound by `max.connections`, nor by quotas, if there is another for
clients: clients must not keep the cluster from working. Owned by the event loop's thread.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

UNLIMITED = 2**31 - 1
BURST_S = 1.0
"""For how long unused connections of a rate may be made up for."""
HELD_UP_S_MAX = 30.0
"""Clients do not wait longer; one that would have to is closed."""

HELD_MAX: Final = 256
"""Connections that wait to be closed, of all addresses."""

TOTAL = "max.connections"
PER_IP = "max.connections.per.ip"
RATE = "max.connection.creation.rate"
QUOTA = "connection_creation_rate"
DESCRIPTORS = "ulimit -n"


@dataclass(frozen=True, slots=True)
class ListenerLimits:
    """Those of one listener, beside those of the node."""

    connections_max: int = UNLIMITED
    rate_max: int = UNLIMITED


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    connections_max: int = UNLIMITED
    descriptors_max: int = UNLIMITED
    """How many files each listener may open."""
    per_ip_max: int = UNLIMITED
    per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    rate_max: int = UNLIMITED
    """New connections per second."""
    of_listeners: Mapping[str, ListenerLimits] = field(default_factory=dict)
    protected: frozenset[str] = frozenset()
    """The listeners that `connections_max` does not bind."""


class Entry(NamedTuple):
    """What becomes of a new connection."""

    wait_s: float = 0.0
    """Before it is served, or else closed."""
    refusal: str = ""
    """The limit that keeps it out, if one does."""


class Pace:
    """When the next of many may happen, at so many per second."""

    __slots__ = ("_next_s",)

    def __init__(self) -> None:
        self._next_s = 0.0

    def wait_s(self, rate: int, now_s: float) -> float:
        """How long one more at `now_s` would have to wait."""
        if rate >= UNLIMITED:
            return 0.0
        if rate <= 0:
            return float("inf")
        return max(self._next_s, now_s - BURST_S) + 1 / rate - now_s

    def take(self, rate: int, now_s: float) -> None:
        """One more happens, as soon as it may."""
        if 0 < rate < UNLIMITED:
            self._next_s = max(self._next_s, now_s - BURST_S) + 1 / rate


class Admission:
    def __init__(
        self,
        limits: ConnectionLimits | None = None,
        over_quota_s: Callable[[str], float] = lambda _: 0.0,
    ) -> None:
        """`over_quota_s`: for how long a connection from an address is to be held before it is
        closed; 0 if it may stay.
        """
        self.limits = limits or ConnectionLimits()
        self._over_quota_s = over_quota_s
        self.held = 0
        self.per_ip: Tally[str] = Tally()
        self.per_listener: Tally[str] = Tally()
        self._pace = Pace()
        self._paces: dict[str, Pace] = {}

    def enter(self, listener: str, ip: str, now_s: float) -> Entry:
        """One more has connected; it counts until it has `left` in any case."""
        refusal = self.refusal(listener, ip)
        self.entered(listener, ip)
        if refusal:
            return Entry(refusal=refusal)
        held_s = 0.0 if listener in self.limits.protected else self._over_quota_s(ip)
        if held_s:
            return Entry(held_s if self.held < HELD_MAX else 0.0, QUOTA)
        wait_s = self.held_up_s(listener, now_s)
        return Entry(refusal=RATE) if wait_s is None else Entry(wait_s)

    def refusal(self, listener: str, ip: str) -> str:
        """The limit that keeps a connection out; empty if none does."""
        limits = self.limits
        own = limits.of_listeners.get(listener)
        if self.per_listener[listener] >= limits.descriptors_max:
            return DESCRIPTORS
        if listener not in limits.protected and self.per_listener.total() >= limits.connections_max:
            return TOTAL
        if own is not None and self.per_listener[listener] >= own.connections_max:
            return TOTAL
        if self.per_ip[ip] >= limits.per_ip_overrides.get(ip, limits.per_ip_max):
            return PER_IP
        return ""

    def held_up_s(self, listener: str, now_s: float) -> float | None:
        """How long a connection has to wait before it is served; None for too long."""
        limits = self.limits
        own = limits.of_listeners.get(listener)
        paces = [(self._pace, limits.rate_max)]
        if own is not None:
            paces.append((self._paces.setdefault(listener, Pace()), own.rate_max))
        wait_s = max(pace.wait_s(rate, now_s) for pace, rate in paces)
        if wait_s > HELD_UP_S_MAX:
            return None
        for pace, rate in paces:
            pace.take(rate, now_s)
        return max(wait_s, 0.0)

    def entered(self, listener: str, ip: str) -> None:
        self.per_ip[ip] += 1
        self.per_listener[listener] += 1

    def left(self, listener: str, ip: str) -> None:
        self.per_listener[listener] -= 1
        self.per_ip[ip] -= 1
        if not self.per_ip[ip]:
            del self.per_ip[ip]
