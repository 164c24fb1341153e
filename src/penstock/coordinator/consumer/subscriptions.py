"""What members subscribe to: names, regular expressions, and the topics behind them.

A regular expression is resolved once per group, kept as a record, and looked at again when topics
come or go. It matches only topics that the member may know of which was last heard from with it; as
rights change too, it is looked at again after `REFRESHED_AFTER_MS`, and when a coordinator that was
just loaded first hears from a member.

The metadata hash sums up the topics subscribed to (name, id, partitions): the group is rebalanced
when it changes. It is private to the coordinator that wrote it; a hash of other making in the log
costs one rebalance. Racks are left out, since no partition moves for the sake of a rack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Final, NamedTuple

from penstock.base.ids import Uuid
from penstock.coordinator.consumer.member import Profile
from penstock.coordinator.consumer.regex import Patterns, TopicPattern, pattern_of
from penstock.coordinator.consumer.roster import ResolvedRegex, Roster
from penstock.coordinator.topics import TopicsView

INTERNAL_TOPICS = frozenset(
    {"__consumer_offsets", "__transaction_state", "__audit", "__share_group_state"}
)
"""Topics that no regular expression matches; a member must subscribe to them by name."""


REFRESHED_AFTER_MS: Final = 600_000
"""As in Kafka."""


class _Seen(NamedTuple):
    """Which topics a member may know of, and when a pattern was last resolved so."""

    sees: Callable[[str], bool]
    resolved_ms: int


class Subscriptions:
    """The subscriptions of one group, over its roster and the cluster's topics."""

    __slots__ = ("_patterns", "_roster", "_seen", "_shared", "_topics")

    def __init__(self, roster: Roster, topics: TopicsView, shared: Patterns) -> None:
        """`shared` are the patterns of all groups."""
        self._roster = roster
        self._topics = topics
        self._shared = shared
        self._patterns: dict[str, TopicPattern] = {}
        self._seen: dict[str, _Seen] = {}
        """By regular expression; those without one match all topics."""

    def check(self, regex: str | None) -> None:
        """Raise INVALID_REGULAR_EXPRESSION for a pattern that cannot be used."""
        if regex and regex not in self._patterns:
            self._patterns[regex] = pattern_of(regex, self._shared)

    def resolve(self, regex: str, now_ms: int) -> ResolvedRegex:
        """The topics that match now."""
        self.check(regex)
        names = matchable(self._topics)
        before = self._roster.regexes.get(regex)
        version = 1 if before is None else before.version + 1
        topics = self._patterns[regex].matching(names)
        seen = self._seen.get(regex)
        if seen is not None:
            topics = frozenset(filter(seen.sees, topics))
            self._seen[regex] = _Seen(seen.sees, now_ms)
        return ResolvedRegex(topics, version, now_ms)

    def seen_by(self, regex: str, sees: Callable[[str], bool], now_ms: int) -> bool:
        """A member with this subscription is heard from: whether that has to be resolved anew."""
        before = self._seen.get(regex)
        since_ms = now_ms if before is None else before.resolved_ms
        self._seen[regex] = _Seen(sees, since_ms)
        return before is None or now_ms - since_ms >= REFRESHED_AFTER_MS

    def matches(self, regex: str, names: Iterable[str]) -> bool:
        """Whether the pattern matches one of `names`."""
        self.check(regex)
        return any(self._patterns[regex].matches(n) for n in names if n not in INTERNAL_TOPICS)

    def forget_unused(self) -> list[str]:
        """Drop regular expressions without subscribers; returns those that had been resolved."""
        used = {m.profile.topic_regex for m in self._roster.members.values()}
        for regex in [r for r in self._patterns if r not in used]:
            del self._patterns[regex]
            self._seen.pop(regex, None)
        unused = [regex for regex in self._roster.regexes if regex not in used]
        for regex in unused:
            del self._roster.regexes[regex]
        return unused

    def topic_names(self, profile: Profile) -> frozenset[str]:
        """The topics of a member, whether they exist or not."""
        names = frozenset(profile.topic_names)
        resolved = self._roster.regexes.get(profile.topic_regex)
        return names if resolved is None else names | resolved.topics

    def topic_ids(self, profile: Profile) -> frozenset[Uuid]:
        """The topics of a member that exist."""
        ids = (self._topics.topic_id(name) for name in self.topic_names(profile))
        return frozenset(topic_id for topic_id in ids if topic_id is not None)

    def all_names(self) -> set[str]:
        """The topics of the group."""
        names: set[str] = set()
        for profile in {_subscription(m.profile) for m in self._roster.members.values()}:
            names |= self.topic_names(profile)
        return names

    def metadata_hash(self) -> int:
        """64 bits that change when a topic of the group comes, goes or grows; 0 without topics."""
        return topics_hash(self.all_names(), self._topics)


def topics_hash(names: Iterable[str], topics: TopicsView) -> int:
    """64 bits that change when one of the topics comes, goes or grows; 0 if none exists."""
    digest = blake2b(digest_size=8)
    empty = True
    for name in sorted(names):
        topic_id = topics.topic_id(name)
        if topic_id is not None:
            empty = False
            count = topics.partition_count(name) or 0
            digest.update(topic_id + count.to_bytes(4, "big") + name.encode() + b"\0")
    return 0 if empty else int.from_bytes(digest.digest(), "big", signed=True)


def matchable(topics: TopicsView) -> list[str]:
    """The topics that a regular expression can match."""
    return [name for name in topics.all_names() if name not in INTERNAL_TOPICS]


def _subscription(profile: Profile) -> Profile:
    """Only what decides the topics, so that equal subscriptions are looked at once."""
    return Profile(topic_names=profile.topic_names, topic_regex=profile.topic_regex)
