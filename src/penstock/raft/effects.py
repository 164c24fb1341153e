"""What the core asks its driver to do. A list of these is carried out from first to last.

`WriteState`, `Truncate` and `InstallSnapshot` are durable before the next effect is begun. An
`Append` is not: the driver flushes later and reports it by `on_flushed`.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from penstock.raft.types import OffsetAndEpoch
from penstock.wire.schema import Message


class Destination(NamedTuple):
    """`node_id` is -1 where only an address is known (a bootstrap server)."""

    node_id: int
    host: str
    port: int
    listener: str = ""
    """The name of the listener there, which says how it is spoken to."""


class WriteState(NamedTuple):
    """Replace the quorum-state file by `text`, durably."""

    text: str


class Append(NamedTuple):
    """Append `batches`, whole and with their offsets and epochs, to the metadata log.

    Their records have the offsets from `first` to `last`.
    """

    batches: bytes | memoryview
    first: int
    last: int


class Truncate(NamedTuple):
    """Cut the log so that it ends at `offset`, durably."""

    offset: int


class Send(NamedTuple):
    """Send `request`; report the outcome by `on_response` or `on_failed` with `token`.

    The core gives up after `timeout_ms`; a later answer is ignored.
    """

    token: int
    to: Destination
    request: Message
    version: int
    timeout_ms: int


class Reply(NamedTuple):
    """Answer the request that was handed in with `token`."""

    token: object
    response: Message


class WriteSnapshot(NamedTuple):
    """`chunk` of the fetched snapshot `id` goes to `position` of its partial file."""

    id: OffsetAndEpoch
    position: int
    chunk: bytes | memoryview


class LoadSnapshot(NamedTuple):
    """The partial file of `id` is complete: check and read it, without blocking if it is large, and
    call `on_snapshot_loaded`. Log and image stay as they are.
    """

    id: OffsetAndEpoch


class InstallSnapshot(NamedTuple):
    """The loaded snapshot takes the place of the log: make the file durable under its name, empty
    the log so that it starts and ends at `id.offset`, take the image as the committed one.
    """

    id: OffsetAndEpoch


class Committed(NamedTuple):
    """What lies below `high_watermark` is committed, and flushed here."""

    high_watermark: int


class BecameLeader(NamedTuple):
    """This node leads `epoch`, whose first record is at `start_offset`. It is the active
    controller once that record is committed.
    """

    epoch: int
    start_offset: int


class NoLongerLeader(NamedTuple):
    epoch: int


class LeaderChanged(NamedTuple):
    """The leader this node knows; -1: none. Emitted on every change, also when this node leads."""

    leader_id: int
    epoch: int


Effect: TypeAlias = (
    WriteState
    | Append
    | Truncate
    | Send
    | Reply
    | WriteSnapshot
    | LoadSnapshot
    | InstallSnapshot
    | Committed
    | BecameLeader
    | NoLongerLeader
    | LeaderChanged
)
