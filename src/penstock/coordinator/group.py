"""What a shard asks of a group, whichever protocol its members speak.

A group decides and changes its own memory at once; the `Effects` it returns carry the records that
say the same. `replay` of those records, in order, on a new group must give an equal group (except
members' timers, which `loaded` sets). A group never keeps an `Effects` after returning it.

A group does not hold committed offsets: the shard keeps them and asks the group whether a commit,
fetch or deletion is allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol
from weakref import WeakValueDictionary

from penstock.base.clock import Rng
from penstock.base.errors import ErrorCode
from penstock.base.ids import Uuid
from penstock.config.group_config import (
    ConsumerGroupConfig,
    ShareGroupConfig,
    StreamsGroupConfig,
    group_config,
    group_defaults,
)
from penstock.coordinator.config import GroupConfig
from penstock.coordinator.effects import Caller, CoordinatorRecord, Effects, Reply, TimerKey
from penstock.coordinator.topics import TopicsView
from penstock.wire.schema import Message

if TYPE_CHECKING:
    from penstock.coordinator.consumer.regex import Patterns

CLASSIC = "classic"
CONSUMER = "consumer"
SHARE = "share"
STREAMS = "streams"
CONSUMER_PROTOCOL_TYPE = "consumer"
"""The protocol type of consumers, in both protocols."""


@dataclass(slots=True)
class RebalanceCounts:
    """Rebalances by the group's protocol, for metrics; all shards of a node count together."""

    classic: int = 0
    """Generations that got their assignment."""
    consumer: int = 0
    """Group epochs that began: members or what they are subscribed to changed."""
    share: int = 0
    """The same of share groups."""
    streams: int = 0
    """The same of streams groups."""


@dataclass(slots=True)
class Environment:
    """What every group of a shard shares; `config` is replaced when settings change."""

    config: GroupConfig
    topics: TopicsView
    rng: Rng
    overrides: Callable[[str], Mapping[str, str]] = lambda _: {}
    """The group's own settings at present."""
    patterns: Patterns = field(default_factory=WeakValueDictionary)
    """The regular expressions that groups are subscribed to."""
    rebalances: RebalanceCounts = field(default_factory=RebalanceCounts)
    share_config: Callable[[str], ShareGroupConfig] = lambda _: ShareGroupConfig()
    """What is in force for one share group."""
    streams_config: Callable[[str], StreamsGroupConfig] = lambda _: StreamsGroupConfig()
    """What is in force for one streams group."""

    def config_of(self, group_id: str) -> ConsumerGroupConfig:
        """What is in force for one consumer group."""
        own = self.overrides(group_id)
        return group_config(own, self.config) if own else group_defaults(self.config)


class Committer(NamedTuple):
    """The sender of offsets to store."""

    member_id: str
    """Empty for one that is not a member, or does not say so."""
    instance_id: str | None
    epoch: int
    """The generation or the member epoch; -1 for one that is not a member."""
    version: int
    """Of OffsetCommit or TxnOffsetCommit."""
    transactional: bool
    """The offsets are part of a transaction."""


class Group(Protocol):
    """One group. `ClassicGroup(group_id, environment)` makes an empty one, which writes no records
    until something happens to it, and so do `ConsumerGroup`, `ShareGroup` and `StreamsGroup`.

    Each can be described by the API of its kind (`describe_classic()` and so on). A share group is
    never anything else; an empty streams group becomes a classic one by JoinGroup.
    `coordinator.consumer.upgrade(classic, request, caller, now_ms)` handles a
    ConsumerGroupHeartbeat for a classic group and sets its `successor`.
    """

    group_id: str
    group_type: str
    """`classic`, `consumer`, `share` or `streams`."""
    successor: Group | None
    """Set when the group has moved to the other protocol: the shard puts it in this one's place
    after the event. The records that say so are in the event's effects, the classic group's
    tombstone before the consumer group's first record and the other way round."""

    @property
    def state_name(self) -> str:
        """As ListGroups and the Describe APIs show it: `Empty`, `Stable`, ..."""

    @property
    def protocol_type(self) -> str:
        """As ListGroups shows it; empty for a group that only stores offsets."""

    @property
    def is_empty(self) -> bool:
        """No members, neither present nor expected."""

    @property
    def member_count(self) -> int: ...

    # -- loading -------------------------------------------------------------------------------

    def replay(self, key: Message, value: Message | None, timestamp: int) -> None:
        """Apply a record of this group; a null value is a tombstone. The tombstone of a whole group
        (GroupMetadataKey, ConsumerGroupMetadataKey and their like) is handled by the shard, which
        drops the group.
        """

    def loaded(self, now_ms: int) -> Effects:
        """The partition has been replayed: timers for members that must be heard from."""

    # -- events --------------------------------------------------------------------------------

    def handle(self, request: Message, caller: Caller, now_ms: int) -> Effects:
        """A request of a member, by whatever protocol, for this group."""

    def on_timer(self, key: TimerKey, now_ms: int) -> Effects:
        """A timer that this group has set is due; `key[0]` is the group's id."""

    def topics_changed(self, names: frozenset[str], now_ms: int) -> Effects:
        """These topics were created, deleted or have more partitions."""

    def unpark(self, code: ErrorCode) -> list[Reply]:
        """Answer every request that waits inside the group with `code`; the group is given up."""

    # -- offsets -------------------------------------------------------------------------------

    def validate_offset_commit(
        self, committer: Committer, partitions: Collection[tuple[Uuid, int]]
    ) -> ErrorCode:
        """Whether a commit for these partitions (topic id and number) is accepted, all together."""

    def offsets_committed(self, member_id: str, now_ms: int) -> Effects:
        """A commit by the member was accepted: it counts as a sign of life where Kafka says so."""

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Whether offsets may be fetched by this member; None and -1 for one that is not a
        member.
        """

    def validate_offset_delete(self) -> ErrorCode:
        """Whether offsets may be deleted now (of topics without subscribers)."""

    def is_subscribed(self, topic: str) -> bool:
        """Whether a member consumes `topic`, so that its offsets must stay."""

    def expiration_base_ms(self, commit_ms: int) -> int | None:
        """The time from which `offsets.retention.minutes` counts for an offset committed at
        `commit_ms`, of a topic without subscribers; None while none may expire.
        """

    # -- the end -------------------------------------------------------------------------------

    def validate_delete(self) -> ErrorCode:
        """Whether the group may be deleted: NON_EMPTY_GROUP with members."""

    def tombstones(self) -> list[CoordinatorRecord]:
        """Records that take back everything the group has written (not its offsets)."""

    def invariants(self) -> None:
        """Raise InvariantBroken if the group contradicts itself; for tests and the simulator."""
