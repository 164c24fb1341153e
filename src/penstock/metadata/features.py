"""The features of this release and the levels of each that it supports.

A node supports a range of levels, and the cluster has finalised one level that all its nodes work
at. Starting newer nodes changes nothing: the operator finalises a new level (UpdateFeatures) when
no older node will come back. A new cluster begins at the newest level, but for `_BEGINS_AT`. The
range of metadata.version covers the release before this one, so that the two can run together.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from penstock.metadata.records import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    METADATA_VERSION,
    METADATA_VERSION_MAX,
    METADATA_VERSION_MIN,
    BrokerFeature,
)
from penstock.metadata.security_records import ROLES_VERSION

KRAFT_VERSION: Final = "kraft.version"
"""How the quorum keeps its voters; the quorum's own records finalise it, not the controller."""
TRANSACTION_VERSION: Final = "transaction.version"
"""1: the coordinator's records are flexible; 2: every transaction has an epoch of its own, and
partitions come into it by being written to (KIP-890).
"""
GROUP_VERSION: Final = "group.version"
"""1: groups whose members are assigned by the coordinator (KIP-848). At level 0 they are not
served; where no level was ever finalised they are: clusters of earlier releases have them so.
"""
SHARE_VERSION: Final = "share.version"
"""1: share groups (KIP-932). 2: their dead letters (KIP-1191). At level 0, and where no level was
ever finalised, share groups are not served.
"""
STREAMS_VERSION: Final = "streams.version"
"""1: streams groups (KIP-1071). At level 0, and where no level was ever finalised, they are not
served.
"""


class Levels(NamedTuple):
    lowest: int
    highest: int

    def __contains__(self, level: object) -> bool:
        return isinstance(level, int) and self.lowest <= level <= self.highest

    def __str__(self) -> str:
        if self.lowest == self.highest:
            return str(self.lowest)
        return f"{self.lowest} to {self.highest}"


SUPPORTED_FEATURES: Final[dict[str, Levels]] = {
    METADATA_VERSION: Levels(METADATA_VERSION_MIN, METADATA_VERSION_MAX),
    KRAFT_VERSION: Levels(1, 1),
    TRANSACTION_VERSION: Levels(0, 2),
    GROUP_VERSION: Levels(0, 1),
    SHARE_VERSION: Levels(0, 2),
    STREAMS_VERSION: Levels(0, 1),
    ELIGIBLE_LEADER_REPLICAS_VERSION: Levels(0, 1),
    ROLES_VERSION: Levels(0, 1),
}
NOT_SUPPORTED: Final = Levels(0, 0)
_BEGINS_AT: Final = {SHARE_VERSION: 1}
"""The levels of new clusters that are not the newest: those of Kafka 4.3."""


def new_cluster_levels() -> dict[str, int]:
    """What a new cluster finalises through the controller."""
    return {
        name: _BEGINS_AT.get(name, levels.highest)
        for name, levels in SUPPORTED_FEATURES.items()
        if name != KRAFT_VERSION
    }


def levels_of(features: Iterable[BrokerFeature]) -> dict[str, Levels]:
    """What a registered broker supports."""
    return {f.name: Levels(f.min_supported_version, f.max_supported_version) for f in features}
