"""How far groups are behind: in messages and in seconds, computed at each scrape.

Nothing is counted while messages flow. Messages are the partition's high watermark less the
committed offset. Seconds are the age of the first message that is not committed, to the precision
of a batch, as only its header is read; the time of an offset is kept from one scrape to the next,
so that an idle group costs no read. What a scrape may open and read is limited: the rest follows
with the next one. Owned by the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from penstock.base.errors import ApiError, StorageError
from penstock.log.time_lookup import timestamp_at
from penstock.observe.metrics import SAMPLES_PER_PART, Reading, Registry
from penstock.observe.table import GROUP_LAG_MESSAGES as _MESSAGES
from penstock.observe.table import GROUP_LAG_SECONDS as _SECONDS
from penstock.observe.table import GROUPS_LAG_MESSAGES as _TOTAL

if TYPE_CHECKING:
    from penstock.base.clock import Clock
    from penstock.coordinating.group_coordinator import GroupCoordinator
    from penstock.partitions.partition import Partition
    from penstock.partitions.replica_manager import ReplicaManager

LOGS_OPENED_MAX = 50
"""How many logs one scrape opens that have not been used since the start."""
HEADERS_READ_MAX = 1_000
"""How many batch headers one scrape reads."""


class Lag(NamedTuple):
    """One partition of one group; `seconds` is None while it is not known."""

    group_id: str
    topic: str
    partition: int
    messages: int
    seconds: float | None


class GroupLag:
    def __init__(
        self,
        registry: Registry,
        groups: GroupCoordinator,
        replicas: ReplicaManager,
        clock: Clock,
        *,
        per_group: bool,
    ) -> None:
        self._groups = groups
        self._replicas = replicas
        self._clock = clock
        self._per_group = per_group
        # The times of the offsets that the last scrape read, by topic, partition and offset.
        self._times: dict[tuple[str, int, int], int] = {}
        registry.add_source(self._collect)

    def _collect(self) -> Iterator[Reading]:
        # A part at a time, so that requests are served in between.
        lags: list[Lag] = []
        total = 0
        if self._per_group:
            yield Reading(_MESSAGES, [])
        for part in _parts(self.read(with_seconds=self._per_group)):
            total += sum(lag.messages for lag in part)
            if self._per_group:
                lags += part
                samples = [_MESSAGES.sample(lag.messages, *_labels(lag)) for lag in part]
                yield Reading(_MESSAGES, samples)
            else:
                yield Reading(_TOTAL, [])
        yield _TOTAL.one(total)
        if self._per_group:
            yield Reading(_SECONDS, [])
            seconds = (
                _SECONDS.sample(lag.seconds, *_labels(lag))
                for lag in lags
                if lag.seconds is not None
            )
            yield from _SECONDS.slices(seconds)

    def read(self, *, with_seconds: bool) -> Iterator[Lag]:
        """The lag of every committed offset whose partition this node leads."""
        now_ms = self._clock.now_ms()
        to_open, to_read = LOGS_OPENED_MAX, HEADERS_READ_MAX
        times: dict[tuple[str, int, int], int] = {}
        for group_id, topic, index, committed in self._groups.committed_offsets():
            partition = self._replicas.opened(topic, index)
            if partition is None and to_open:
                to_open -= 1
                partition = self._open(topic, index)
            if partition is None:
                continue
            start = max(committed.offset, partition.log.log_start_offset)
            messages = max(partition.high_watermark - start, 0)
            seconds: float | None = 0.0
            if messages and with_seconds:
                key = (topic, index, start)
                time_ms = times.get(key, self._times.get(key))
                if time_ms is None and to_read:
                    to_read -= 1
                    time_ms = _time_of(partition, start)
                if time_ms is not None:
                    times[key] = time_ms
                seconds = None if time_ms is None else max(now_ms - time_ms, 0) / 1000
            yield Lag(group_id, topic, index, messages, seconds)
        self._times = times

    def _open(self, topic: str, index: int) -> Partition | None:
        try:
            return self._replicas.leader_of(topic, index)
        except ApiError:
            return None  # the topic is gone, or another node leads it


def _parts(lags: Iterator[Lag]) -> Iterator[list[Lag]]:
    while part := list(islice(lags, SAMPLES_PER_PART)):
        yield part


def _time_of(partition: Partition, offset: int) -> int | None:
    try:
        found = timestamp_at(partition.log, offset)
    except StorageError:
        return None  # the read has logged and counted it
    return None if found is None or found < 0 else found


def _labels(lag: Lag) -> tuple[str, str, str]:
    return lag.group_id, lag.topic, str(lag.partition)
