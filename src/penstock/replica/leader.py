"""What the leader of a partition knows of its replicas: which are in sync, and what is committed.

Events go in: a follower has fetched, this replica has appended, the metadata has changed, the
controller has answered, time has passed. Out come a moved high watermark and wanted changes of the
in-sync set (ISR), which the driver takes to the controller.

Invariants:
* The high watermark never goes back, and never lies above what this replica holds durably.
* It advances only over what every member of the *maximal* ISR has fetched: the committed ISR and
  the replica that is about to join it, since the controller may have added it already. So a leader
  elected from the ISR has all that is committed.
* It does not advance while the ISR is smaller than min(`min.insync.replicas`, replicas).
* One change of the ISR is in progress at a time; an answer to any other is ignored.
* A smaller ISR counts when the metadata has it, not when the controller's answer does. By then the
  `min.insync.replicas` by which the controller judged who stays eligible is in force here, too: the
  watermark never passes a replica that may lead from outside the ISR.

A follower joins when it has reached the high watermark and the start of this leader's epoch, under
the broker epoch that the metadata knows, unfenced. It leaves when it has not been caught up for
`replica.lag.time.max.ms`. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from penstock.base.errors import ApiError, ErrorCode, invariant

UNKNOWN_OFFSET = -1
UNKNOWN_BROKER_EPOCH = -1


class Registration(Protocol):
    """A partition as the cluster's metadata has it."""

    @property
    def replicas(self) -> Sequence[int]: ...
    @property
    def isr(self) -> Sequence[int]: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def partition_epoch(self) -> int: ...


class Brokers(Protocol):
    """The brokers as the cluster's metadata has them."""

    def broker_epoch(self, broker_id: int) -> int | None:
        """The epoch of the broker's registration; None when it has none."""

    def takes_part(self, broker_id: int) -> bool:
        """Whether the broker is unfenced and not about to stop."""


class FollowerProgress:
    """What the leader knows of one follower."""

    __slots__ = (
        "broker_epoch",
        "end_offset",
        "last_caught_up_ms",
        "last_fetch_leader_end",
        "last_fetch_ms",
        "log_start_offset",
    )

    def __init__(self) -> None:
        self.end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.broker_epoch = UNKNOWN_BROKER_EPOCH
        self.last_fetch_ms = 0
        self.last_fetch_leader_end = 0
        """The leader's end when the follower fetched last."""
        self.last_caught_up_ms = 0
        """The latest time at which the follower had all that the leader had."""

    def fetched(
        self, offset: int, log_start: int, broker_epoch: int, leader_end: int, now_ms: int
    ) -> None:
        if offset >= leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif offset >= self.last_fetch_leader_end:
            # It has now what the leader had when it asked last.
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.end_offset = offset
        self.log_start_offset = log_start
        self.broker_epoch = broker_epoch
        self.last_fetch_leader_end = max(self.last_fetch_leader_end, leader_end)
        self.last_fetch_ms = now_ms

    def begin_epoch(self, leader_end: int, now_ms: int, *, in_sync: bool) -> None:
        """A leader epoch begins: a member of the ISR has the full time to send a fetch."""
        self.last_caught_up_ms = self.last_fetch_ms = now_ms if in_sync else 0
        self.last_fetch_leader_end = leader_end


class IsrChange(NamedTuple):
    """A wanted ISR, with the broker epoch under which each member is known (-1: not yet)."""

    isr: tuple[tuple[int, int], ...]
    leader_epoch: int
    partition_epoch: int
    expands: bool

    @property
    def members(self) -> tuple[int, ...]:
        return tuple(broker_id for broker_id, _ in self.isr)


_REFUSED: Final = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
"""The controller knows the partition as we do and has changed nothing."""
_OUTDATED: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)
"""The controller is ahead of this node: the metadata that will arrive decides."""


class Leader:
    """One partition's leader, for one or several of its leader epochs in a row."""

    __slots__ = (
        "_brokers",
        "_me",
        "end_offset",
        "epoch_start_offset",
        "followers",
        "high_watermark",
        "isr",
        "lag_time_max_ms",
        "leader_epoch",
        "maximal_isr",
        "min_insync_replicas",
        "partition_epoch",
        "pending",
        "replicas",
    )

    def __init__(
        self,
        me: int,
        brokers: Brokers,
        registration: Registration,
        *,
        end_offset: int,
        high_watermark: int,
        min_insync_replicas: int,
        lag_time_max_ms: int,
        now_ms: int,
    ) -> None:
        invariant(high_watermark <= end_offset, "a high watermark lies above the log's end")
        self._me = me
        self._brokers = brokers
        self.end_offset = end_offset
        self.high_watermark = high_watermark
        self.min_insync_replicas = min_insync_replicas
        self.lag_time_max_ms = lag_time_max_ms
        self.followers: dict[int, FollowerProgress] = {}
        self.begin_epoch(registration, now_ms)

    # -- the metadata --------------------------------------------------------------------------

    def begin_epoch(self, registration: Registration, now_ms: int) -> None:
        """This replica leads under a new leader epoch, which begins at the end of its log."""
        self.leader_epoch = registration.leader_epoch
        self.epoch_start_offset = self.end_offset
        self._take(registration)
        for broker_id, follower in self.followers.items():
            follower.begin_epoch(self.end_offset, now_ms, in_sync=broker_id in self.isr)

    def follow(self, registration: Registration) -> None:
        """The metadata says something new within this leader epoch."""
        invariant(
            registration.leader_epoch == self.leader_epoch, "a leader follows its own epoch only"
        )
        if registration.partition_epoch > self.partition_epoch:
            self._take(registration)

    def _take(self, registration: Registration) -> None:
        self.replicas = tuple(registration.replicas)
        self.followers = {
            broker_id: self.followers.get(broker_id) or FollowerProgress()
            for broker_id in registration.replicas
            if broker_id != self._me
        }
        self._commit(tuple(registration.isr), registration.partition_epoch)

    def _commit(self, isr: tuple[int, ...], partition_epoch: int) -> None:
        self.isr = self.maximal_isr = isr
        self.partition_epoch = partition_epoch
        self.pending: IsrChange | None = None

    @property
    def under_min_isr(self) -> bool:
        return len(self.isr) < min(self.min_insync_replicas, len(self.replicas))

    # -- progress ------------------------------------------------------------------------------

    def appended(self, end_offset: int, now_ms: int) -> None:
        """This replica's log ends at `end_offset` now."""
        if end_offset == self.end_offset:
            return
        for follower in self.followers.values():
            if follower.end_offset >= self.end_offset:
                # It had everything until now, however long ago it said so.
                follower.last_caught_up_ms = max(follower.last_caught_up_ms, now_ms)
        self.end_offset = end_offset

    def fetched(
        self, broker_id: int, offset: int, log_start: int, broker_epoch: int, now_ms: int
    ) -> bool:
        """A follower asks for `offset`, so it has what lies below; whether it has moved on.

        ApiError when the request comes from an earlier run of the broker.
        """
        known = self._brokers.broker_epoch(broker_id)
        if broker_epoch != UNKNOWN_BROKER_EPOCH and known is not None and known > broker_epoch:
            raise ApiError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {broker_id} fetches with epoch {broker_epoch} and is registered with "
                f"{known}",
            )
        follower = self.followers[broker_id]
        before = follower.end_offset
        follower.fetched(offset, log_start, broker_epoch, self.end_offset, now_ms)
        return offset != before

    def advance(self, durable_offset: int, now_ms: int) -> bool:
        """Move the high watermark as far as it may go; whether it moved.

        `durable_offset` is what this replica itself holds durably.
        """
        if len(self.isr) < self.min_insync_replicas and self.under_min_isr:
            return False
        target = durable_offset
        maximal = self.maximal_isr
        for broker_id, follower in self.followers.items():
            if follower.end_offset < target and (
                broker_id in maximal or self._about_to_join(broker_id, follower, now_ms)
            ):
                target = follower.end_offset
        if target <= self.high_watermark:
            return False
        self.high_watermark = target
        return True

    def _about_to_join(self, broker_id: int, follower: FollowerProgress, now_ms: int) -> bool:
        """Whether the watermark waits for a replica outside the ISR, which otherwise might never
        reach it.
        """
        return self._caught_up(follower, now_ms) and self._eligible(broker_id, follower)

    def _caught_up(self, follower: FollowerProgress, now_ms: int) -> bool:
        return (
            follower.end_offset == self.end_offset
            or now_ms - follower.last_caught_up_ms <= self.lag_time_max_ms
        )

    def caught_up(self, now_ms: int) -> list[int]:
        """The followers that had everything not longer ago than a member of the ISR has to."""
        return [id_ for id_, f in self.followers.items() if self._caught_up(f, now_ms)]

    @property
    def low_watermark(self) -> int:
        """Below it no live follower keeps anything; the own log start is the caller's to add."""
        starts = [
            follower.log_start_offset
            for broker_id, follower in self.followers.items()
            if self._brokers.takes_part(broker_id)
        ]
        return min(starts, default=self.end_offset)

    # -- the in-sync set -----------------------------------------------------------------------

    def _eligible(self, broker_id: int, follower: FollowerProgress) -> bool:
        return (
            self._brokers.takes_part(broker_id)
            and self._brokers.broker_epoch(broker_id) == follower.broker_epoch
        )

    def expand(self, broker_id: int) -> IsrChange | None:
        """The change that lets a follower join, if it may and no other change is in progress."""
        if self.pending is not None or broker_id in self.isr:
            return None
        follower = self.followers[broker_id]
        reached = max(self.high_watermark, self.epoch_start_offset)
        if follower.end_offset < reached or not self._eligible(broker_id, follower):
            return None
        change = self._change((*self.isr, broker_id), expands=True)
        self.maximal_isr = change.members
        return change

    def shrink(self, now_ms: int) -> IsrChange | None:
        """The change that drops members that have fallen behind, if there are any."""
        if self.pending is not None:
            return None
        left = tuple(
            broker_id
            for broker_id in self.isr
            if broker_id == self._me
            or (broker_id in self.followers and self._caught_up(self.followers[broker_id], now_ms))
        )
        return None if left == self.isr else self._change(left, expands=False)

    def _change(self, isr: tuple[int, ...], *, expands: bool) -> IsrChange:
        epochs = {broker_id: f.broker_epoch for broker_id, f in self.followers.items()}
        mine = self._brokers.broker_epoch(self._me)
        epochs[self._me] = UNKNOWN_BROKER_EPOCH if mine is None else mine
        self.pending = IsrChange(
            tuple((broker_id, epochs[broker_id]) for broker_id in isr),
            self.leader_epoch,
            self.partition_epoch,
            expands,
        )
        return self.pending

    def altered(
        self, change: IsrChange, isr: Sequence[int], leader_epoch: int, partition_epoch: int
    ) -> bool:
        """The controller has taken `change`; whether that is news. A smaller ISR is not: what is
        needed to use it comes with the metadata.
        """
        if (
            self.pending is not change
            or not change.expands
            or leader_epoch != self.leader_epoch
            or partition_epoch < self.partition_epoch
        ):
            return False
        self._commit(tuple(isr), partition_epoch)
        return True

    def refused(self, change: IsrChange, code: int) -> bool:
        """The controller has not taken `change`; whether to ask again."""
        if self.pending is not change:
            return False
        if code in _REFUSED:
            self._commit(self.isr, self.partition_epoch)
            return False
        return code not in _OUTDATED
