"""One replica of a partition on this node: its log, its offsets, and the waiters for them.

Offsets, each never above the one before:
* `log.log_end_offset`: the next offset to be written.
* `durable_offset`: what lies below it need not wait for the disk. It follows the log end, except
  while a flush that `flush.messages` demands is under way: then it stays until the fsync is done.
* `high_watermark`: what lies below it is committed and may be read.

Every append is staged (`stage`) and written with the others of its turn (`turns`); its waiter is
called with the result. Before the log is changed in any other way, what is staged is written
(`Log.before_change`).

A replica leads or follows, as the metadata has it (`leadership`). As the leader of several replicas
it has a `Leader`, which decides what is committed; the only replica of a partition commits what is
durable. As a follower it has a `Follower`, which decides for a `ReplicaFetcher`. A replica
that breaks an invariant is stopped for good (`stop`).

Knows no request, session or connection. Owned by the event loop's thread.
"""

from __future__ import annotations

import logging
from typing import Final

from penstock.base.errors import ApiError, ErrorCode, InvariantBroken, StorageError
from penstock.base.ids import Uuid
from penstock.config.log_config import LogConfig
from penstock.log.background_write import BackgroundWrite
from penstock.log.log import AppendInfo, Batch, Log
from penstock.log.producer_state import AppendOrigin
from penstock.log.verification import NOT_ASKED, VerificationGuard
from penstock.metadata import image as metadata
from penstock.observe.standard import TopicCounters
from penstock.partitions.batch_validation import BatchRules
from penstock.partitions.leadership import Leadership, Role, role_in
from penstock.partitions.replica_environment import ReplicaEnvironment
from penstock.partitions.waiting import (
    ACKS_ALL,
    AppendWaiter,
    AppendWaiters,
    DeletionWaiters,
    Readers,
)
from penstock.replica.divergence import end_of_epoch
from penstock.replica.follower import Append, Follower
from penstock.replica.leader import Leader
from penstock.wire.records import parse_header

log = logging.getLogger("penstock.partitions")

MOVED = "another broker leads now"
STOPPING = "the node stops"


_LEADER: Final = Role.LEADER  # for the hot path


class Partition:
    __slots__ = (
        "_append_waiters",
        "_env",
        "_remembered",
        "_stable",
        "_turns",
        "counters",
        "deletions",
        "durable_offset",
        "flush_wanted",
        "flusher",
        "follower",
        "high_watermark",
        "index",
        "leader",
        "leader_epoch",
        "leader_id",
        "leadership",
        "log",
        "readers",
        "registration",
        "role",
        "rules",
        "stopped",
        "topic",
        "topic_id",
        "under_min_isr",
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
        env: ReplicaEnvironment,
        high_watermark: int,
    ) -> None:
        """`high_watermark` is what the last run knew to be committed."""
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.rules = rules
        self.counters = counters
        self._env = env
        self.flusher = env.flusher
        self._turns = env.turns
        self.flush_wanted = False
        self.stopped: str | None = None
        """Why the replica was stopped, if it was."""
        self.readers = Readers()
        self._append_waiters = AppendWaiters()
        self.deletions = DeletionWaiters()
        self.leader: Leader | None = None
        self.follower: Follower | None = None
        self.under_min_isr = False
        # Everything that recovery kept was in the log before.
        self.durable_offset = log.log_end_offset
        self.high_watermark = self._stable = log.log_start_offset
        self._remembered = high_watermark
        """The high watermark of the last run. It counts only if this replica leads before it has
        fetched from a leader: after a loss of power the log may hold what had been truncated.
        """
        self.registration = registration
        self.role = role_in(registration, env.node_id)
        self.leader_id = registration.leader
        self.leader_epoch = registration.leader_epoch
        self.leadership = Leadership(self, env)
        self.leadership.begin()
        if self.role is _LEADER:
            self._advance()
        log.before_change = self.write_out

    def __repr__(self) -> str:
        return f"<{self.topic}-{self.index} {self.role.value}, epoch {self.leader_epoch}>"

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

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """(the largest epoch at or below `epoch`, where it ends); (-1, -1) when unknown."""
        return end_of_epoch(self.log, self.leader_epoch, epoch)

    # -- changes of leadership -----------------------------------------------------------------

    @property
    def known_watermark(self) -> int:
        """What is known to be committed, in this run or the last one."""
        return max(self.high_watermark, min(self._remembered, self.log.log_end_offset))

    def begin_leading(self, leader: Leader | None) -> None:
        """From now on this replica's log is the truth. `leader` is None for the only replica."""
        self.follower = None
        self.log.producers.guards.clear()
        self.high_watermark = self.known_watermark
        self._remembered = 0
        self.log.update_high_watermark(self.high_watermark)
        self.leader = leader

    def begin_following(self, follower: Follower | None) -> None:
        """`follower` is None while no broker leads."""
        self.leader = None
        self.log.producers.guards.clear()
        self.log.update_high_watermark(self.high_watermark)
        self.follower = follower

    def resign(self, follower: Follower | None) -> None:
        """Another broker leads, or none."""
        # What a producer waits for may be in the next leader's log. NOT_LEADER_OR_FOLLOWER would
        # mean that nothing was written, and it might send the same messages in other batches. So
        # it waits until what it sent is committed after all, or truncated.
        self._append_waiters.leadership_lost(ErrorCode.NOT_LEADER_OR_FOLLOWER, MOVED)
        self.deletions.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER, MOVED)
        self.begin_following(follower)
        self.wake_all()

    def isr_counted(self, *, under_min: bool) -> None:
        """`under_min`: the ISR is smaller than `min.insync.replicas` demands."""
        was_under, self.under_min_isr = self.under_min_isr, under_min
        if under_min and not was_under and self.role is _LEADER:
            self._append_waiters.fail(
                ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
                "too few replicas are in sync to commit what was written",
                ACKS_ALL,
            )

    def isr_changed(self) -> None:
        """The high watermark waits for other replicas than before."""
        self._advance()

    def reconfigure(self, config: LogConfig, rules: BatchRules) -> None:
        """The settings of the topic or of the node have changed."""
        self.log.config = config
        self.rules = rules
        if self.leader is not None:
            self.leader.min_insync_replicas = config.min_insync_replicas
            self.leader.lag_time_max_ms = self._env.lag_time_max_ms()
        self.leadership.count_in_sync()
        self.settle()

    # -- appending -----------------------------------------------------------------------------

    def stage(
        self,
        batch: Batch,
        now_ms: int,
        acks: int,
        waiter: AppendWaiter,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        guard: VerificationGuard | None = NOT_ASKED,
    ) -> AppendInfo:
        """Give a batch its offsets, and have it written with the others of this turn; `waiter` is
        told of it then. ApiError or StorageError if it is refused: then nothing is staged.
        """
        info = self.log.stage([batch], self.leader_epoch, now_ms, origin, guard)
        self._append_waiters.unwritten.append((info.last_offset + 1, acks, waiter))
        self._turns.add(self, len(batch.data))
        return info

    def write_staged(self) -> None:
        """Write what is staged, after what is being written, and call the waiters."""
        try:
            self.log.write_staged()
        except StorageError as refusal:
            self.not_written(refusal)
        except InvariantBroken as broken:
            self.stop(str(broken))
        else:
            self._written()

    def write_out(self) -> None:
        """Write until nothing is staged: an acknowledgement may let another request begin."""
        while self.log.has_staged:
            self.write_staged()

    def begin_write(self) -> BackgroundWrite | None:
        """Begin to write what is staged; None if it is not worth a worker. Calls no waiter: on
        `StorageError` the caller calls `not_written`.
        """
        return self.log.begin_write()

    def end_write(self, write: BackgroundWrite) -> None:
        """Make what a worker has written part of the log, waiting for it if necessary."""
        try:
            self.log.end_write(write)
        except StorageError as refusal:
            self.not_written(refusal)
        except InvariantBroken as broken:
            self.stop(str(broken))
        else:
            self._written()

    def _written(self) -> None:
        """The log has grown: move the offsets that follow, and tell those who staged it."""
        if self.stopped is None:
            self.settle()
            waiters = self._append_waiters
            end = self.log.log_end_offset
            if waiters.written(end, self.durable_offset, self.high_watermark):
                waiters.acknowledge(self.acknowledges)

    def not_written(self, error: StorageError) -> None:
        """The disk has refused: nothing of what was staged is in the log."""
        if self._append_waiters.unwritten:
            self._env.on_append_failed(self, error)
        self._written()  # a duplicate of what is in the log is not concerned
        self._append_waiters.not_written(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        self.check_log()

    def settle(self) -> None:
        """Move the offsets that follow from what is in the log."""
        log = self.log
        if log.unflushed_messages >= log.config.flush_messages:
            self.flush_wanted = True
            if not log.health.for_good:
                self.flusher.request(self)
        elif not self.flush_wanted:
            self.durable_offset = log.log_end_offset
        if self.role is _LEADER:
            self._advance()
            return
        self._append_waiters.acknowledge(self.acknowledges)

    def flushed(self, offset: int) -> None:
        """The flusher has made everything below `offset` durable."""
        self.flush_wanted = False
        self.durable_offset = max(self.durable_offset, offset)
        self.settle()

    def flush_failed(self, message: str) -> None:
        """A flush has failed. If what the disk holds is unknown, nothing more becomes durable."""
        self.flush_wanted = self.log.health.for_good
        self._fail_waiters(ErrorCode.KAFKA_STORAGE_ERROR, message)
        self.check_log()

    def check_log(self) -> None:
        """A leader whose log refuses writes for good is of no use where there are others."""
        if self.leader is not None and self.log.health.for_good:
            self._env.on_log_failed(self)

    def _advance(self) -> None:
        leader = self.leader
        if leader is not None:
            end = self.log.log_end_offset
            now_ms = self._env.clock.now_ms()
            if end != leader.end_offset:
                leader.appended(end, now_ms)
                if self.readers.followers:
                    self.readers.log_grew(self.log.bytes_in)
            if leader.advance(self.durable_offset, now_ms):
                self._commit(leader.high_watermark)
        elif self.durable_offset > self.high_watermark:
            self._commit(self.durable_offset)
        self._append_waiters.acknowledge(self.acknowledges)

    def _commit(self, high_watermark: int) -> None:
        lagged = self._stable < self.high_watermark
        self.high_watermark = high_watermark
        log_ = self.log
        log_.update_high_watermark(high_watermark)
        producers, was = log_.producers, self._stable
        self._stable = stable = (
            log_.last_stable_offset
            if producers.ongoing or producers.unreplicated
            else high_watermark
        )
        if self.role is not _LEADER:
            self._append_waiters.acknowledge(self.acknowledges)
        readers = self.readers
        if readers.consumers:
            readers.committed(log_.bytes_in, stable_moved=stable != was, released=lagged)
        if readers.followers:
            # Followers learn it with the next response. They are woken for it only if consumers
            # read there, or if one of them led when this was appended, and its producers wait.
            leader = self.leader
            prompt = self.prompts_followers or (
                leader is not None and high_watermark <= leader.epoch_start_offset
            )
            readers.notify_followers(log_.bytes_in, prompt=prompt)

    # -- leading -------------------------------------------------------------------------------

    def follower_fetched(
        self, broker_id: int, offset: int, log_start: int, broker_epoch: int
    ) -> None:
        """A follower has everything below `offset`."""
        leader = self.leader
        assert leader is not None
        moved = leader.fetched(broker_id, offset, log_start, broker_epoch, self._env.clock.now_ms())
        change = leader.expand(broker_id)
        if change is not None:
            self.leadership.propose(change)
        if moved:
            self._advance()
        if self.deletions:
            self.deletions.reached(self.low_watermark)

    def check_replica(self, broker_id: int) -> None:
        """Refuse a follower that is not a replica according to the metadata of this node (yet)."""
        if self.leader is None or broker_id not in self.leader.followers:
            raise ApiError(
                ErrorCode.UNKNOWN_LEADER_EPOCH,
                f"broker {broker_id} is no replica of {self.topic}-{self.index}",
            )

    @property
    def prompts_followers(self) -> bool:
        """Whether followers are woken for every commit, since consumers read from them."""
        return self._env.follower_reads

    def in_sync(self, broker_id: int) -> bool:
        return self.leader is not None and broker_id in self.leader.isr

    @property
    def offset_not_available(self) -> bool:
        """Whether a new leader does not know yet how far its predecessor had committed."""
        return self.leader is not None and self.leader.epoch_start_offset > self.high_watermark

    @property
    def low_watermark(self) -> int:
        """The first offset that some live replica still keeps."""
        start = self.log.log_start_offset
        return start if self.leader is None else min(start, self.leader.low_watermark)

    def delete_records(self, offset: int) -> None:
        """Move the log start to `offset`; StorageError if the disk refuses."""
        self.log.delete_records(offset)
        self.wake_all()

    # -- following a leader --------------------------------------------------------------------

    def replicate(self, records: memoryview | None, step: Append) -> None:
        """Append what the leader sent and adopt its offsets; StorageError if that fails."""
        log_ = self.log
        if records:
            self._make_room_for(records)
            log_.append_as_follower(records, self.leader_epoch)
            self.settle()
        if self._remembered:
            self._remembered = 0
            log_.mark_changed()  # what is known to be committed may be less now
        committed = min(step.high_watermark, log_.log_end_offset)
        if committed > self.high_watermark:
            self._commit(committed)
        start = min(step.log_start_offset, self.high_watermark)
        if start > log_.log_start_offset:
            self.delete_records(start)

    def _make_room_for(self, records: memoryview) -> None:
        """An empty log may have to begin below the leader's start, which can lie in a batch."""
        end = self.log.log_end_offset
        if end == self.log.log_start_offset and parse_header(records).base_offset < end:
            self.start_anew(parse_header(records).base_offset)

    def truncate_to(self, offset: int) -> None:
        self.log.truncate_to(offset)
        self._cut()

    def start_anew(self, offset: int) -> None:
        """Drop everything and begin at `offset`."""
        self.log.truncate_fully_and_start_at(offset)
        self._append_waiters.give_up_undecided(ErrorCode.NOT_LEADER_OR_FOLLOWER, MOVED)
        self._cut()

    def _cut(self) -> None:
        end = self.log.log_end_offset
        self.durable_offset = min(self.durable_offset, end)
        self.high_watermark = max(min(self.high_watermark, end), self.log.log_start_offset)
        self.log.update_high_watermark(self.high_watermark)
        self._stable = min(self._stable, self.high_watermark)
        self._append_waiters.cut(end, ErrorCode.NOT_LEADER_OR_FOLLOWER, MOVED)
        self.wake_all()

    # -- waiting -------------------------------------------------------------------------------

    def acknowledges(self, end_offset: int, acks: int) -> bool:
        reached = self.high_watermark if acks == ACKS_ALL else self.durable_offset
        return end_offset <= reached

    def wait_for(self, end_offset: int, acks: int, waiter: AppendWaiter) -> None:
        """`waiter` is called when all below `end_offset` is durable or committed."""
        self._append_waiters.add(end_offset, acks, waiter)

    def give_up_commits(self) -> None:
        """The node stops, and the other replicas have not decided in time: whether what was written
        here is committed will be known to the next leader. NETWORK_EXCEPTION says that nothing is
        known; no client is answered with it.
        """
        self._append_waiters.give_up_commits(
            self.durable_offset, ErrorCode.NETWORK_EXCEPTION, STOPPING
        )
        self.deletions.fail(ErrorCode.REQUEST_TIMED_OUT, STOPPING)

    def wake_all(self) -> None:
        """Wake all readers, whatever they wait for."""
        self.readers.changed(self.log.bytes_in)

    def _fail_waiters(self, code: ErrorCode, message: str) -> None:
        self._append_waiters.fail(code, message)
        self._append_waiters.give_up_undecided(code, message)
        self.deletions.fail(code, message)

    # -- the end -------------------------------------------------------------------------------

    def close(self, code: ErrorCode, message: str) -> None:
        """The partition leaves this node: fail all waiters."""
        self.write_out()
        self._dismiss(code, message)

    def stop(self, reason: str) -> None:
        """An invariant is broken: the state in memory is not trusted any more. For good: only a
        restart of the node reads the log again.
        """
        if self.stopped is not None:
            return
        self.stopped = reason
        log.critical("%r stops: %s", self, reason, stack_info=True)
        self.log.abandon(reason)
        message = f"the replica was stopped: {reason}"
        self._append_waiters.not_written(ErrorCode.KAFKA_STORAGE_ERROR, message)
        self._dismiss(ErrorCode.KAFKA_STORAGE_ERROR, message)
        self._env.on_stopped(self)

    def _dismiss(self, code: ErrorCode, message: str) -> None:
        self.log.before_change = None
        self._fail_waiters(code, message)
        self.wake_all()
        self.readers.dismiss()
