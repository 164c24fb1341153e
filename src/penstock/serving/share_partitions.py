"""The share-partitions of this node: one for each group that consumes a partition which it leads.

They are made when a member first fetches, and dropped when the node leads the partition no more,
when the partition stops or its topic is deleted, and when no session of the group is left here and
nothing of them is being written: the next fetch reads what was persisted. Who waits for one that is
dropped is told why.

Follows the metadata: leader epochs, deleted topics, settings of groups. Owned by the event loop's
thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from penstock.base.clock import Clock
from penstock.base.errors import ApiError, ErrorCode
from penstock.base.ids import Uuid
from penstock.config.broker_config import BrokerConfig
from penstock.config.group_config import ShareGroupConfig, reset_age_ms, share_group_config
from penstock.coordinating.share_persister import SharePersister
from penstock.log.manager import LogManager
from penstock.log.time_lookup import Allowance
from penstock.metadata.delta import MetadataDelta
from penstock.metadata.image import MetadataImage, ResourceType
from penstock.partitions.leadership import Role
from penstock.partitions.partition import Partition
from penstock.partitions.replica_manager import ReplicaManager
from penstock.serving.dead_letters import DeadLetters
from penstock.serving.share_driver import ShareCounts, ShareDriver, ShareEnvironment
from penstock.share.partition import ShareLimits
from penstock.share.types import ShareKey
from penstock.share.values import BackoffType, RetryBackoff

LATEST: Final = "latest"
EARLIEST: Final = "earliest"
_MOVED: Final = ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another broker leads now")
_DELETED: Final = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted")


class _InForce(NamedTuple):
    """What is in force for a group, and what it was made of."""

    stored: Mapping[str, str]
    broker: BrokerConfig
    config: ShareGroupConfig


class SharePartitions:
    def __init__(
        self,
        image: MetadataImage,
        replicas: ReplicaManager,
        logs: LogManager,
        persister: SharePersister,
        dead_letters: DeadLetters,
        clock: Clock,
        config: Callable[[], BrokerConfig],
    ) -> None:
        self._image = image
        self._replicas = replicas
        self._logs = logs
        self._clock = clock
        self._config = config
        self._env = ShareEnvironment(
            persister, clock, self._limits, dead_letters.of, self._begin_offset
        )
        self.dead_letters = dead_letters
        self._drivers: dict[ShareKey, ShareDriver] = {}
        self._of_partition: dict[tuple[Uuid, int], dict[ShareKey, ShareDriver]] = {}
        self._of_group: dict[str, dict[ShareKey, ShareDriver]] = {}
        self._configs: dict[str, _InForce] = {}

    def __len__(self) -> int:
        return len(self._drivers)

    def __iter__(self) -> Iterator[ShareDriver]:
        return iter(list(self._drivers.values()))

    @property
    def counts(self) -> ShareCounts:
        return self._env.counts

    # -- finding -------------------------------------------------------------------------------

    def found(self, key: ShareKey) -> ShareDriver:
        """The one that a member holds records of; `ApiError` if there is none."""
        driver = self._drivers.get(key)
        if driver is not None and self._leads(driver):
            return driver
        self._replicas.leader_of(key.topic_id, key.partition)
        raise ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no member of the group has fetched here"
        )

    def opened(self, key: ShareKey) -> ShareDriver:
        """The one to fetch from, which is loaded on first need; `ApiError` if the node does not
        lead the partition.
        """
        driver = self._drivers.get(key)
        if driver is not None and self._leads(driver):
            driver.serve_on()
            return driver
        partition = self._replicas.leader_of(key.topic_id, key.partition)
        driver = ShareDriver(self._env, key, partition, self._gone)
        self._drivers[key] = driver
        self._of_partition.setdefault((key.topic_id, key.partition), {})[key] = driver
        self._of_group.setdefault(key.group_id, {})[key] = driver
        driver.load()
        return driver

    def _leads(self, driver: ShareDriver) -> bool:
        """Whether its partition is still led here; if not, it is dropped."""
        partition = driver.partition
        if partition.role is Role.LEADER and partition.stopped is None:
            return True
        driver.fence(_MOVED)
        return False

    def _gone(self, driver: ShareDriver) -> None:
        key = driver.key
        if self._drivers.get(key) is not driver:
            return
        del self._drivers[key]
        for table, place in (
            (self._of_partition, (key.topic_id, key.partition)),
            (self._of_group, key.group_id),
        ):
            kept = table[place]  # type: ignore[index]
            del kept[key]
            if not kept:
                del table[place]  # type: ignore[arg-type]
        if key.group_id not in self._of_group:
            self._configs.pop(key.group_id, None)

    # -- dropping ------------------------------------------------------------------------------

    def group_unused(self, group_id: str) -> None:
        """The last session of the group here has ended."""
        for driver in list(self._of_group.get(group_id, {}).values()):
            driver.retire()

    def drop_all(self, error: ApiError) -> None:
        for driver in self:
            driver.fence(error)

    # -- following the metadata ----------------------------------------------------------------

    def apply(self, delta: MetadataDelta) -> None:
        """`delta` was applied to the image, and the replicas follow it."""
        if not self._drivers:
            return
        for driver in self:
            if driver.key.topic_id in delta.deleted_topics:
                driver.fence(_DELETED)
        for place in delta.changed_partitions:
            for driver in list(self._of_partition.get(place, {}).values()):
                self._follow(driver)
        changed = {name for kind, name in delta.changed_configs if kind == ResourceType.GROUP}
        for driver in self:
            if driver.key.group_id in changed or delta.features_changed:
                driver.take_limits()
        if delta.created_topics or delta.changed_configs or delta.changed_partitions:
            self.dead_letters.metadata_changed()

    def _follow(self, driver: ShareDriver) -> None:
        partition = driver.partition
        hosted = self._replicas.hosted(partition.log.topic_partition)
        if hosted is not partition or partition.role is not Role.LEADER:
            driver.fence(_MOVED)
        elif partition.leader_epoch == driver.leader_epoch + 1:
            driver.led_again(partition.leader_epoch)
        elif partition.leader_epoch != driver.leader_epoch:
            driver.fence(_MOVED)  # others led in between, and may have changed what is persisted

    def settings_changed(self) -> None:
        """The node's own settings have changed."""
        for driver in self:
            driver.take_limits()
        self.dead_letters.metadata_changed()

    # -- settings of groups --------------------------------------------------------------------

    def config(self, group_id: str) -> ShareGroupConfig:
        """Of groups that fetch here it is kept: every request asks. A change of what is stored is
        another mapping, one of the node's settings another object.
        """
        stored, broker = self._image.config(ResourceType.GROUP, group_id), self._config()
        known = self._configs.get(group_id)
        if known is not None and known.stored is stored and known.broker is broker:
            return known.config
        config = share_group_config(stored, broker)
        if group_id in self._of_group:
            self._configs[group_id] = _InForce(stored, broker, config)
        return config

    def _limits(self, key: ShareKey) -> ShareLimits:
        config = self.config(key.group_id)
        return ShareLimits(
            config.share_partition_max_record_locks,
            config.share_delivery_count_limit,
            config.share_record_lock_duration_ms,
            config.share_renew_acknowledge_enable,
            dead_letters=self.dead_letters.topics.wanted(key.group_id, key.topic_id),
            retry=_retry(config),
        )

    async def _begin_offset(self, partition: Partition, group_id: str) -> int:
        """Where the group begins by its `share.auto.offset.reset`."""
        reset = self.config(group_id).share_auto_offset_reset
        if reset == EARLIEST:
            return partition.log.log_start_offset
        if partition.offset_not_available:
            raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE)
        age_ms = reset_age_ms(reset)
        if age_ms is None:
            return partition.high_watermark
        since_ms = self._clock.now_ms() - age_ms
        found = await self._logs.lookups.find(partition.log, since_ms, Allowance())
        end = partition.high_watermark
        return end if found is None else min(found.offset, end)


def _retry(config: ShareGroupConfig) -> RetryBackoff | None:
    """How records of the group rest; None if they do not."""
    if config.share_retry_backoff_ms == 0:
        return None
    return RetryBackoff(
        BackoffType(config.share_retry_backoff_type),
        config.share_retry_backoff_ms,
        config.share_retry_backoff_multiplier,
        config.share_retry_backoff_max_ms,
    )
