"""The settings that the group coordinator reads, each field named after its broker setting."""

from __future__ import annotations

from dataclasses import dataclass

INT32_MAX = 2**31 - 1
MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """The defaults are the broker settings' own; times are in ms unless the name says otherwise."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = INT32_MAX

    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_max_size: int = INT32_MAX
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    group_consumer_migration_policy: str = "bidirectional"
    """`disabled`, `upgrade`, `downgrade` or `bidirectional`, in lower case."""
    group_consumer_assignment_interval_ms: int = 1_000

    group_share_max_size: int = 200
    group_share_initialize_retry_interval_ms: int = 30_000

    group_streams_max_size: int = INT32_MAX

    offset_metadata_max_bytes: int = 4_096
    offsets_retention_minutes: int = 10_080

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * MINUTE_MS

    @property
    def may_mix(self) -> bool:
        """Whether members of the classic protocol may come to a consumer group with members."""
        return self.group_consumer_migration_policy != "disabled"

    @property
    def may_upgrade(self) -> bool:
        """Whether a classic group with members may become a consumer group."""
        return self.group_consumer_migration_policy in ("upgrade", "bidirectional")

    @property
    def may_downgrade(self) -> bool:
        """Whether a consumer group with only classic members left may become a classic group."""
        return self.group_consumer_migration_policy in ("downgrade", "bidirectional")
