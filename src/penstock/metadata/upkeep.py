"""What the controller does without being asked: it brings leaderships back to the preferred
replicas, and elects unclean leaders where a setting has begun to allow it.

`due_ms` says when there is something to do next, `run` does it. One run makes at most
`ELECTIONS_PER_RUN_MAX` changes, so that other decisions come in between; what is left is due at
once. Reassignments need no upkeep: the change that brings the last replica in sync completes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from penstock.config.broker_config import BrokerConfig
from penstock.metadata.image import MetadataImage
from penstock.metadata.partition_change import Election, PartitionChanges
from penstock.metadata.partition_index import PartitionIndex, PartitionKey
from penstock.metadata.records import ConfigRecord, MetadataRecord
from penstock.metadata.topic_rules import UNCLEAN_SETTING, TopicRules

ELECTIONS_PER_RUN_MAX: Final = 1_000
UNCLEAN_CHECK_INTERVAL_MS: Final = 300_000
"""How often leaderless partitions are checked, apart from changes of settings."""


class Upkeep:
    def __init__(
        self,
        image: MetadataImage,
        index: PartitionIndex,
        config: Callable[[], BrokerConfig],
        rules: TopicRules,
        now_ms: int,
    ) -> None:
        self._index = index
        self._config = config
        self._rules = rules
        self._changes = PartitionChanges(image, rules)
        self._balance_due_ms = now_ms + self._balance_interval_ms()
        self._unclean_due_ms = now_ms

    def noticed(self, record: MetadataRecord) -> None:
        """A record was taken into the image."""
        if isinstance(record, ConfigRecord) and record.name == UNCLEAN_SETTING:
            self._unclean_due_ms = 0

    def due_ms(self) -> int | None:
        """When to run next, as things are; None when there is nothing to wait for."""
        due = []
        if self._index.not_preferred and self._config().auto_leader_rebalance_enable:
            due.append(self._balance_due_ms)
        if self._index.leaderless:
            due.append(self._unclean_due_ms)
        return min(due, default=None)

    def run(self, now_ms: int) -> list[MetadataRecord]:
        records: list[MetadataRecord] = []
        if now_ms >= self._unclean_due_ms:
            self._elect_unclean(records)
            left = len(records) >= ELECTIONS_PER_RUN_MAX
            self._unclean_due_ms = now_ms + (0 if left else UNCLEAN_CHECK_INTERVAL_MS)
        if now_ms >= self._balance_due_ms and not records:
            if self._config().auto_leader_rebalance_enable:
                self._balance(records)
            left = len(records) >= ELECTIONS_PER_RUN_MAX
            self._balance_due_ms = now_ms + (0 if left else self._balance_interval_ms())
        return records

    def _balance_interval_ms(self) -> int:
        return self._config().leader_imbalance_check_interval_seconds * 1_000

    def _elect_unclean(self, records: list[MetadataRecord]) -> None:
        for key in self._index.leaderless:
            place = self._index.at(key)
            if self._rules.unclean(place.topic.name):
                record = self._changes.record(place, Election.UNCLEAN)
                if record is not None:
                    records.append(record)
                    if len(records) >= ELECTIONS_PER_RUN_MAX:
                        return

    def _balance(self, records: list[MetadataRecord]) -> None:
        """Elects the preferred leaders, where too many of a broker's partitions are led by
        others.
        """
        away: Counter[int] = Counter(self._preferred(key) for key in self._index.not_preferred)
        allowed = self._config().leader_imbalance_per_broker_percentage
        for key in self._index.not_preferred:
            broker_id = self._preferred(key)
            if away[broker_id] * 100 <= allowed * self._index.preferring[broker_id]:
                continue
            place = self._index.at(key)
            record = self._changes.record(place, Election.PREFERRED)
            if record is not None:
                records.append(record)
                if len(records) >= ELECTIONS_PER_RUN_MAX:
                    return

    def _preferred(self, key: PartitionKey) -> int:
        return self._index.at(key).partition.replicas[0]
