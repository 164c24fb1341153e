"""Bugs in transactions, put into the product on purpose: one for each promise that is checked.

As in `mutants`, each is a function that changes a module in place, in the process of the run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def aborted_reads() -> None:
    """Readers are not told which transactions were aborted."""
    from penstock.log.log import Log

    Log.aborted_transactions = lambda self, fetch_offset, upper_bound: []  # type: ignore


def precommitted_reads() -> None:
    """Reads of committed data end at the high watermark, whatever is open below it."""
    from penstock.log.log import Log

    def last_stable_offset(self: Any) -> int:
        return int(self.log_end_offset if self.high_watermark is None else self.high_watermark)

    Log.last_stable_offset = property(last_stable_offset)  # type: ignore


def stable_before_committed() -> None:
    """The last stable offset does not wait for the high watermark."""
    from penstock.log.log import Log

    def last_stable_offset(self: Any) -> int:
        unstable = next(iter(self.producers.ongoing), None)
        return int(self.log_end_offset if unstable is None else unstable)

    Log.last_stable_offset = property(last_stable_offset)  # type: ignore


def torn_transactions() -> None:
    """The last of several partitions is told that the transaction was aborted."""
    from penstock.coordinating import transaction_markers

    def marker(action: Any, partitions: Any) -> Any:
        partitions = list(partitions)
        data = [tp for tp in action.partitions if not tp.topic.startswith("__")]
        if len(data) > 1 and data[-1] in partitions:
            action = action._replace(commit=False)
        return original(action, partitions)

    original = transaction_markers._marker
    transaction_markers._marker = marker


def offsets_before_the_end() -> None:
    """Offsets count as soon as they are stored, whatever becomes of their transaction."""
    from penstock.coordinator.offsets import OffsetStore

    def take(self: Any, *args: Any, **more: Any) -> None:
        original(self, *args, **more)
        for producer_id in list(self.pending._by_producer):
            for place, offset in self.pending.end(producer_id):
                self._put(place, offset)

    original = OffsetStore.take
    OffsetStore.take = take  # type: ignore[method-assign]


def unstable_offsets() -> None:
    """Who asks for stable offsets is told the last one though another is pending."""
    from penstock.coordinator.offsets import OffsetStore

    def fetch(self: Any, *args: Any, **more: Any) -> Any:
        pending, self.pending = self.pending, type(self.pending)()
        try:
            return original(self, *args, **more)
        finally:
            self.pending = pending

    original = OffsetStore.fetch
    OffsetStore.fetch = fetch  # type: ignore[method-assign]


def zombies_commit() -> None:
    """Whoever comes with an epoch of the past may end the transaction."""
    from penstock.coordinator.transaction import ending

    def decide(metadata: Any, request: Any) -> Any:
        request.producer_epoch = metadata.producer_epoch
        return original(metadata, request)

    original = ending._decide_version_1
    ending._decide_version_1 = decide


def zombies_write() -> None:
    """Nobody asks the coordinator whether a partition is in the transaction."""
    from penstock.serving.append_verification import AppendVerification

    def begin(self: Any, append: Any, resume: Any) -> bool:
        waits = original(self, append, resume)
        if not waits and append.transaction is not None:
            append.transaction.verifies = False
        return waits

    original = AppendVerification.begin
    AppendVerification._guard = lambda self, transaction, batches: False  # type: ignore
    AppendVerification.begin = begin  # type: ignore[method-assign]


def markers_are_not_resumed() -> None:
    """A coordinator that takes over forgets what was decided and not told to all."""
    from penstock.coordinator.effects import Effects
    from penstock.coordinator.transaction.shard import TransactionShard

    TransactionShard.loaded = lambda self, now_ms: Effects()  # type: ignore[method-assign]


def commits_become_aborts() -> None:
    """The coordinator says commit and tells the partitions to abort."""
    from penstock.coordinating import transaction_markers

    def marker(action: Any, partitions: Any) -> Any:
        partitions = list(partitions)
        if not any(tp.topic.startswith("__") for tp in partitions):
            action = action._replace(commit=False)
        return original(action, partitions)

    original = transaction_markers._marker
    transaction_markers._marker = marker


def leaders_alone_know_what_was_aborted() -> None:
    """A follower keeps no list of aborted transactions."""
    from penstock.log.log import Log

    def append_as_follower(self: Any, *args: Any, **more: Any) -> None:
        Log._complete = lambda self, txn: self.producers.complete(txn)  # type: ignore
        try:
            original(self, *args, **more)
        finally:
            Log._complete = complete  # type: ignore[method-assign]

    original, complete = Log.append_as_follower, Log._complete
    Log.append_as_follower = append_as_follower  # type: ignore[method-assign]


def repeated_ends_end_the_next() -> None:
    """An EndTxn that comes again ends whatever is open by then."""
    from penstock.coordinator.transaction import ending

    def decide(metadata: Any, request: Any) -> Any:
        if request.producer_epoch + 1 == metadata.producer_epoch:
            request.producer_epoch += 1
        return original(metadata, request)

    original = ending._decide_version_2
    ending._decide_version_2 = decide


TXN_MUTANTS: dict[str, Callable[[], Any]] = {
    "aborted-reads": aborted_reads,
    "precommitted-reads": precommitted_reads,
    "stable-before-committed": stable_before_committed,
    "torn-transactions": torn_transactions,
    "offsets-before-the-end": offsets_before_the_end,
    "unstable-offsets": unstable_offsets,
    "zombies-commit": zombies_commit,
    "zombies-write": zombies_write,
    "markers-are-not-resumed": markers_are_not_resumed,
    "commits-become-aborts": commits_become_aborts,
    "leaders-alone-know-what-was-aborted": leaders_alone_know_what_was_aborted,
    "repeated-ends-end-the-next": repeated_ends_end_the_next,
}
