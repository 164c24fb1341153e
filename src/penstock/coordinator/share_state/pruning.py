"""Where the newest snapshot of each share-partition stands in the log.

What is before the oldest of them says nothing any more: every share-partition has a newer snapshot,
or a tombstone. So a replay from there builds the same states.
"""

from __future__ import annotations

from penstock.coordinator.share_state.records import is_snapshot


class SnapshotOffsets:
    def __init__(self) -> None:
        # By the raw key, which is at hand where the offset is known.
        self._newest: dict[bytes, int] = {}
        self._end = 0

    def placed(self, key: bytes, value: bytes | None, offset: int) -> None:
        """A record stands at `offset`; records come in the order of the log."""
        self._end = offset + 1
        if not is_snapshot(key):
            return
        if value is None:
            self._newest.pop(key, None)
        else:
            self._newest[key] = offset

    @property
    def prunable(self) -> int | None:
        """Records below this offset are not needed; None while nothing has been placed."""
        if not self._end:
            return None
        return min(self._newest.values(), default=self._end)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SnapshotOffsets) and self._newest == other._newest

    __hash__ = None  # type: ignore[assignment]
