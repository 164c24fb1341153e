"""The small value types of this room."""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.base.ids import ZERO_UUID, Uuid, uuid_text

NO_NODE: Final = -1
NO_EPOCH: Final = -1
NEVER_MS: Final = 1 << 62
"""A deadline that never comes."""


class ReplicaKey(NamedTuple):
    """A replica is its node id and the id of its data folder: a lost disk makes another one."""

    id: int
    directory_id: Uuid = ZERO_UUID

    def __str__(self) -> str:
        return f"{self.id}:{uuid_text(self.directory_id)}"


class Endpoint(NamedTuple):
    name: str
    host: str
    port: int


class OffsetAndEpoch(NamedTuple):
    """Where a log or a snapshot ends, and in which epoch the last record there was written."""

    offset: int
    epoch: int


class QuorumConfig(NamedTuple):
    cluster_id: str | None
    """None: not known yet; no request is refused for it, and ours carry none."""
    listeners: tuple[str, ...] = ()
    """The listener by which this replica reaches others, and then those that it may use instead
    while another one does not offer it. Without any the first one of each is used.
    """
    bootstrap_servers: tuple[tuple[str, int], ...] = ()
    """Where to ask for the leader while none is known."""
    listed: tuple[tuple[int, str, int], ...] = ()
    """Where settings say that voters are: for one that offers none of `listeners`."""
    auto_join: bool = False
    """Whether this node asks to be a voter from the start; `Quorum.join` lets it begin later."""
    founder: bool = False
    """A log without a voter set makes this node its only voter. With an empty log that founds a
    cluster: true only when it is known that there is none.
    """
    election_timeout_ms: int = 1_000
    fetch_timeout_ms: int = 2_000
    election_backoff_max_ms: int = 1_000
    request_timeout_ms: int = 2_000
    retry_backoff_ms: int = 20
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 8 * 1024 * 1024
    snapshot_chunk_bytes: int = 1024 * 1024
