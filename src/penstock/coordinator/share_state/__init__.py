"""The share coordinator: what is persisted of share-partitions, for their leaders (KIP-932)."""

from __future__ import annotations

from penstock.coordinator.share_state.answers import refuse
from penstock.coordinator.share_state.config import ShareStateConfig
from penstock.coordinator.share_state.shard import PruneTo, ShareStateShard

__all__ = ["PruneTo", "ShareStateConfig", "ShareStateShard", "refuse"]
