"""One partition that this node leads: its log, its offsets and who waits for them.

Offsets, each never above the one before:
* `log.log_end_offset`: the next offset to be written.
* `durable_offset`: what lies below it need not wait for the disk. It follows the log end, except
  while a flush that `flush.messages` demands is under way: then it stays until the fsync is done.
* `high_watermark`: what lies below it is committed and may be read.

Requests wait here in two ways: a Produce for its offsets to be durable (acks=1) or committed
(acks=all), as a coordinator waits for its records, and a Fetch for the high watermark to move.
Owned by the event loop's thread.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

from penstock.base.errors import ApiError, ErrorCode
from penstock.base.ids import Uuid
from penstock.broker.batch_validation import BatchRules
from penstock.config.log_config import LogConfig
from penstock.log.log import Log
from penstock.metadata import image as metadata
from penstock.observe.standard import TopicCounters

if TYPE_CHECKING:
    from penstock.broker.fetch import FetchInFlight
    from penstock.broker.flusher import Flusher

ACKS_ALL = -1


class AppendWaiter(Protocol):
    """Who waits for appended records to be durable or committed."""

    def partition_done(self) -> None:
        """They are."""

    def partition_failed(self, partition: Partition, code: ErrorCode, message: str) -> None:
        """They never will be, as far as this node knows."""


class Partition:
    __slots__ = (
        "_append_waiters",
        "_registration",
        "counters",
        "durable_offset",
        "fetch_waiters",
        "flush_wanted",
        "flusher",
        "high_watermark",
        "index",
        "leader_epoch",
        "leader_id",
        "log",
        "rules",
        "topic",
        "topic_id",
        "under_min_isr",
        "woken",
    )

    def __init__(
        self,
        topic: str,
        topic_id: Uuid,
        index: int,
        log: Log,
        *,
        registration: metadata.Partition,
        rules: BatchRules,
        counters: TopicCounters,
        flusher: Flusher,
        woken: set[FetchInFlight],
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.rules = rules
        self.follow(registration)
        self.counters = counters
        self.flusher = flusher
        self.flush_wanted = False
        # Everything that recovery kept was in the log before; there is no other replica to ask.
        self.durable_offset = self.high_watermark = log.log_end_offset
        log.update_high_watermark(self.high_watermark)
        self.fetch_waiters: set[FetchInFlight] = set()
        self.woken = woken  # the node's fetches that may have become answerable in this turn
        self._append_waiters: deque[tuple[int, int, AppendWaiter]] = deque()

    @property
    def last_stable_offset(self) -> int:
        """What read_committed may read: below every open transaction, never above the watermark."""
        return self.log.last_stable_offset

    def check_leader_epoch(self, claimed: int) -> None:
        """Fence a request that was made under another leader epoch; -1 claims nothing."""
        if claimed < 0 or claimed == self.leader_epoch:
            return
        if claimed < self.leader_epoch:
            raise ApiError(ErrorCode.FENCED_LEADER_EPOCH)
        raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def follow(self, registration: metadata.Partition) -> None:
        """The cluster's metadata of this partition has changed."""
        self._registration = registration
        self.leader_id = registration.leader
        self.leader_epoch = registration.leader_epoch
        self._count_in_sync()

    def _count_in_sync(self) -> None:
        # No more replicas can be asked for than there are: with one replica, one is enough.
        replicas, isr = self._registration.replicas, self._registration.isr
        wanted = min(self.log.config.min_insync_replicas, len(replicas))
        self.under_min_isr = len(isr) < wanted

    def reconfigure(self, config: LogConfig, rules: BatchRules) -> None:
        """The topic's settings have changed."""
        self.log.config = config
        self.rules = rules
        self._count_in_sync()
        self.settle()

    # -- after an append -----------------------------------------------------------------------

    def write_staged(self) -> None:
        """Write what was staged and move the offsets that follow; StorageError if the disk
        refuses.
        """
        self.log.write_staged()
        self.settle()

    def settle(self) -> None:
        log = self.log
        if log.unflushed_messages >= log.config.flush_messages:
            self.flush_wanted = True
            if not log.health.for_good:
                self.flusher.request(self)
        elif not self.flush_wanted:
            self.durable_offset = log.log_end_offset
        self._advance()

    def flushed(self, offset: int) -> None:
        """The flusher has made everything below `offset` durable."""
        self.flush_wanted = False
        self.durable_offset = max(self.durable_offset, offset)
        self.settle()

    def flush_failed(self, message: str) -> None:
        """The disk refused to keep what was written: those who wait for it are told.

        After a failed fsync nobody knows what the disk has: nothing more becomes durable here.
        """
        self.flush_wanted = self.log.health.for_good
        waiters, self._append_waiters = self._append_waiters, deque()
        for _, _, waiter in waiters:
            waiter.partition_failed(self, ErrorCode.KAFKA_STORAGE_ERROR, message)

    def _advance(self) -> None:
        if self.durable_offset > self.high_watermark:
            self.high_watermark = self.durable_offset
            self.log.update_high_watermark(self.durable_offset)
            if self.fetch_waiters:
                self.woken |= self.fetch_waiters
        waiters = self._append_waiters
        while waiters and self.acknowledges(waiters[0][0], waiters[0][1]):
            waiters.popleft()[2].partition_done()

    # -- waiting -------------------------------------------------------------------------------

    def acknowledges(self, end_offset: int, acks: int) -> bool:
        reached = self.high_watermark if acks == ACKS_ALL else self.durable_offset
        return end_offset <= reached

    def wait_for(self, end_offset: int, acks: int, waiter: AppendWaiter) -> None:
        self._append_waiters.append((end_offset, acks, waiter))

    def close(self, code: ErrorCode, message: str) -> None:
        """The partition leaves this node: nobody may go on waiting for it."""
        waiters, self._append_waiters = self._append_waiters, deque()
        for _, _, waiter in waiters:
            waiter.partition_failed(self, code, message)
        self.wake_all()

    def wake_all(self) -> None:
        """Something other than new data has happened: every waiting Fetch is to be answered."""
        for fetch in self.fetch_waiters:
            fetch.overdue = True
        self.woken |= self.fetch_waiters
