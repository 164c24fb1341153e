"""The metadata quorum as its driver sees it, and its form with a single voter.

Duties of the driver, which owns the log, the quorum-state file and the clock:

1. Carry the effects out in the order given. `WriteState` is on disk (fsync) before the next
effect. 2. `Append` goes to the end of the metadata log as it is: offsets and epoch are in the
batch. 3. When an fsync of the log is done, call `on_flushed` with the end offset it covered.
Flushes may cover several appends.
4. What lies below `high_watermark` is committed: only then is it applied to the image that is
   served, and answers that wait for it are given.

Invariants: the epoch grows with every election and is never used twice; the high watermark never
goes back, never passes what is flushed, and moves only once a batch of the current epoch is
flushed, so that an older leader's entries are committed only together with our own.

With one voter each start elects this node in a new epoch; there is nobody to ask.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from penstock.base.errors import invariant
from penstock.raft.state import QuorumState
from penstock.wire.messages.control_records import (
    LeaderChangeMessage,
    LeaderChangeVoter,
)
from penstock.wire.records import ControlType, Record, build_batch

_CONTROL_KEY_VERSION = 0
_LEADER_CHANGE_VERSION = 0


class WriteState(NamedTuple):
    """Replace the quorum-state file by `text`, durably."""

    text: str


class Append(NamedTuple):
    """Append `batch` to the metadata log; its records have the offsets from `first` to `last`."""

    batch: bytes
    first: int
    last: int


Effect: TypeAlias = WriteState | Append


class Quorum:
    """A quorum of one voter: this node."""

    __slots__ = ("_epoch_start", "_state", "high_watermark", "log_end_offset", "node_id")

    def __init__(
        self, node_id: int, state: QuorumState | None, *, log_end_offset: int, last_epoch: int
    ) -> None:
        """`state`: what the file says, None when there is none; `last_epoch`: the log's latest."""
        stored = state or QuorumState()
        invariant(
            set(stored.voters) <= {node_id},
            f"the quorum's voters are {stored.voters}, but node {node_id} can only be alone",
        )
        epoch = max(stored.leader_epoch, last_epoch, 0)
        self.node_id = node_id
        self.log_end_offset = log_end_offset
        self.high_watermark = 0
        self._state = stored._replace(leader_epoch=epoch, voters=(node_id,))
        self._epoch_start: int | None = None

    @property
    def epoch(self) -> int:
        return self._state.leader_epoch

    @property
    def leader_id(self) -> int | None:
        """The leader of the current epoch, None before this node has been elected."""
        return None if self._epoch_start is None else self.node_id

    def start(self, now_ms: int) -> list[Effect]:
        """Elects this node in a new epoch, which begins with a control record in the log."""
        invariant(self._epoch_start is None, "the quorum is started twice")
        self._state = QuorumState(self.epoch + 1, self.node_id, voters=(self.node_id,))
        self._epoch_start = self.log_end_offset
        return [WriteState(self._state.to_json()), self._leader_change(now_ms)]

    def append(self, values: Sequence[bytes], now_ms: int) -> Append:
        """One batch of metadata records; they are committed when its last offset is."""
        invariant(self._epoch_start is not None, "only a leader appends to the metadata log")
        records = [Record(0, now_ms, None, value) for value in values]
        return self._appended(records, control=False)

    def on_refused(self, append: Append) -> None:
        """The log did not take `append`, the latest: it has not happened."""
        invariant(self.log_end_offset == append.last + 1, "only the latest append can be refused")
        self.log_end_offset = append.first

    def on_flushed(self, end_offset: int) -> int:
        """The log is on disk up to `end_offset`; answers the high watermark."""
        invariant(
            end_offset <= self.log_end_offset,
            f"the metadata log is flushed to {end_offset}, beyond its end {self.log_end_offset}",
        )
        if self._epoch_start is not None and end_offset > self._epoch_start:
            self.high_watermark = max(self.high_watermark, end_offset)
        return self.high_watermark

    def _leader_change(self, now_ms: int) -> Append:
        voters = [LeaderChangeVoter(voter_id=self.node_id)]
        message = LeaderChangeMessage(
            version=_LEADER_CHANGE_VERSION,
            leader_id=self.node_id,
            voters=voters,
            granting_voters=voters,
        )
        key = _CONTROL_KEY_VERSION.to_bytes(2, "big") + ControlType.LEADER_CHANGE.to_bytes(2, "big")
        value = message.encode(_LEADER_CHANGE_VERSION)
        return self._appended([Record(0, now_ms, key, value)], control=True)

    def _appended(self, records: list[Record], *, control: bool) -> Append:
        first = self.log_end_offset
        batch = build_batch(
            records, base_offset=first, control=control, partition_leader_epoch=self.epoch
        )
        self.log_end_offset = first + len(records)
        return Append(batch, first, self.log_end_offset - 1)
