"""Which transactional data and markers the cleaner may drop.

The cleaner shows every batch it meets, in offset order. Data of an aborted transaction may go at
once. A marker may go when no batch of its transaction was met before it: then all its data is gone
from the log. Until then an abort marker needs its entry in the transaction index of the new
segment, so that readers still skip the data.

Pure; one instance serves one walk over the log.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.log.index import AbortedTxn
from penstock.wire.records import BatchHeader, ControlType, control_type, read_records


class CleanedTransactions:
    """The transactions that are open at the point the walk has reached."""

    __slots__ = ("_aborted", "_committed", "_observed", "_upcoming", "kept")

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        self._upcoming = sorted(aborted, key=lambda txn: txn.first_offset, reverse=True)
        self._aborted: dict[int, AbortedTxn] = {}
        self._observed: set[int] = set()
        """Producers of `_aborted` of whose open transaction a batch was met."""
        self._committed: set[int] = set()
        self.kept: list[AbortedTxn] = []
        """Index entries of the abort markers that stay; the writer of the new segment takes them.
        """

    def may_drop(self, header: BatchHeader, batch: bytes | memoryview) -> bool:
        """Whether the transaction rules allow this batch to go; call once per batch, in order."""
        while self._upcoming and self._upcoming[-1].first_offset <= header.last_offset:
            txn = self._upcoming.pop()
            self._aborted.setdefault(txn.producer_id, txn)
        if header.is_control:
            return self._may_drop_marker(header, batch)
        if not header.is_transactional:
            return False
        producer_id = header.producer_id
        if producer_id in self._aborted:
            self._observed.add(producer_id)
            return True
        self._committed.add(producer_id)
        return False

    def _may_drop_marker(self, header: BatchHeader, batch: bytes | memoryview) -> bool:
        if not header.record_count:
            return True
        kind = control_type(read_records(batch)[0])
        producer_id = header.producer_id
        if kind is ControlType.ABORT:
            txn = self._aborted.pop(producer_id, None)
            if txn is None or producer_id not in self._observed:
                return True
            self._observed.discard(producer_id)
            self.kept.append(txn)
            return False
        if kind is ControlType.COMMIT:
            if producer_id not in self._committed:
                return True
            self._committed.discard(producer_id)
        return False
