"""The transaction coordinator: the owner of each transactional id, and how each
transaction ends.
"""

from __future__ import annotations

from penstock.coordinator.transaction.adding import (
    offsets_as_partitions,
    partitions_as_offsets,
)
from penstock.coordinator.transaction.config import EndCounts, TransactionConfig
from penstock.coordinator.transaction.ending import WriteMarkers
from penstock.coordinator.transaction.refusals import refuse
from penstock.coordinator.transaction.shard import TransactionShard

__all__ = [
    "EndCounts",
    "TransactionConfig",
    "TransactionShard",
    "WriteMarkers",
    "offsets_as_partitions",
    "partitions_as_offsets",
    "refuse",
]
