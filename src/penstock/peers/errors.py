"""What can go wrong between two nodes, from the caller's side."""

from __future__ import annotations

from penstock.base.errors import PenstockError


class PeerError(PenstockError):
    """A request to another node has no answer. Whether the node acted on it is not known, except
    where a subclass says so.
    """


class PeerUnreachable(PeerError):
    """No connection could be made: the request was never sent."""


class PeerRefused(PeerUnreachable):
    """The peer's system refused the connection: nothing listens at that address."""


class PeerLost(PeerError):
    """The connection broke before the answer came."""


class PeerTimedOut(PeerLost):
    """The answer did not come in time; the connection was given up with it."""


class PeerIncompatible(PeerError):
    """The peer serves no version of this API that is spoken here: the request was never sent."""
