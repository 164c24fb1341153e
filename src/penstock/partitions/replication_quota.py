"""How fast throttled replicas may be copied: `leader.replication.throttled.rate` on the sending,
`follower.replication.throttled.rate` on the receiving side.

Which replicas are throttled is a setting of the topic: `*`, or a list of `partition:broker`. A
throttled replica that is not in sync waits while the rate is exceeded; one that is in sync never
waits, but what it takes counts. The rate is held over `BURST_S`. Owned by the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from penstock.base.clock import Clock
from penstock.config.log_config import LogConfig
from penstock.partitions.partition import Partition

BURST_S = 1.0
"""What was left unused for so long may be used at once."""

Throttled = Callable[[LogConfig], tuple[str, ...]]


def on_leader(config: LogConfig) -> tuple[str, ...]:
    return config.leader_replication_throttled_replicas


def on_follower(config: LogConfig) -> tuple[str, ...]:
    return config.follower_replication_throttled_replicas


class ReplicationQuota:
    def __init__(
        self, node_id: int, clock: Clock, replicas: Throttled, rate: Callable[[], int]
    ) -> None:
        """`replicas` picks the topic's list, `rate` is in bytes per second."""
        self._node_id = node_id
        self._clock = clock
        self._replicas = replicas
        self._rate = rate
        self._paid_until_s = 0.0

    def covers(self, partition: Partition) -> bool:
        """Whether this node's replica of the partition is throttled."""
        listed = self._replicas(partition.log.config)
        return bool(listed) and _lists(listed, partition.index, self._node_id)

    def record(self, partition: Partition, size: int) -> None:
        """So many bytes of the partition were copied."""
        if self.covers(partition):
            rate = self._rate()
            begin_s = max(self._paid_until_s, self._clock.monotonic() - BURST_S)
            self._paid_until_s = begin_s + (size / rate if rate else 0.0)

    def throttles(self, partition: Partition) -> bool:
        """Whether the partition has to wait, unless it is in sync."""
        return self.covers(partition) and self.wait_s() > 0

    def wait_s(self) -> float:
        """How long throttled replicas have to wait now."""
        if not self._rate():
            return BURST_S
        return max(self._paid_until_s - self._clock.monotonic(), 0.0)


@lru_cache(maxsize=1024)
def _lists(listed: tuple[str, ...], index: int, node_id: int) -> bool:
    return "*" in listed or f"{index}:{node_id}" in listed
