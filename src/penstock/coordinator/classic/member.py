"""One member of a classic group."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.coordinator.effects import Caller
from penstock.wire.messages.join_group import JoinGroupRequestProtocol


@dataclass(slots=True, eq=False)
class ClassicMember:
    """A member's `protocols`, its `assignment`, and its requests that wait (`join`, `sync`)."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: dict[str, bytes]
    """Metadata by name of protocol, the most wanted first."""
    assignment: bytes = b""
    is_new: bool = False
    """In its first join phase: it may have lost its JoinGroup, so its time runs while it waits."""
    join: Caller | None = None
    """The caller of the JoinGroup that waits; changed only by the roster, which counts them."""
    sync: Caller | None = None
    """The caller of the SyncGroup that waits."""

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    @property
    def waits(self) -> bool:
        """A request of an old member waits here, so it need not send heartbeats."""
        return not self.is_new and (self.join is not None or self.sync is not None)

    def offers(self, protocols: dict[str, bytes]) -> bool:
        """Whether `protocols` is what the member offers already, order included."""
        return list(self.protocols.items()) == list(protocols.items())


def protocols_of(protocols: Iterable[JoinGroupRequestProtocol]) -> dict[str, bytes]:
    """The list of a JoinGroup by name; of two with one name the first counts."""
    by_name: dict[str, bytes] = {}
    for protocol in protocols:
        by_name.setdefault(protocol.name, protocol.metadata)
    return by_name
