"""Changes of a consumer group: each changes memory and writes the record that says so.

The order of a rebalance: members and subscriptions change, the group's epoch is bumped, a target is
made for that epoch, and each member is brought to it at its own heartbeats (`reconcile`).

A target is made at once, but not within `group.consumer.assignment.interval.ms` of the last one:
then a timer makes it, so that many members that come together cost one computation. A timer also
makes that of more than `TOPICS_AT_ONCE_MAX` topics when they were found by a regular expression, or
have changed: to find them and to assign them each takes long, and others are served in between.

Timers, by key after the group's id:

* `assign`: the target is due.
* `session MEMBER`: the member is silent for too long.
* `rebalance MEMBER`: a member of the consumer protocol does not give up its partitions.
* `join MEMBER`, `sync MEMBER`: a member of the classic protocol was told to join, or has joined,
  and the next request does not come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from penstock.base.ids import Uuid
from penstock.config.group_config import ConsumerGroupConfig
from penstock.coordinator.consumer import entries
from penstock.coordinator.consumer.assignors import ASSIGNORS, GroupSpec, Subscriber
from penstock.coordinator.consumer.member import Member, Profile, Progress
from penstock.coordinator.consumer.partitions import Partition
from penstock.coordinator.consumer.roster import Roster
from penstock.coordinator.consumer.subscriptions import Subscriptions
from penstock.coordinator.effects import Effects, TimerKey
from penstock.coordinator.group import Environment
from penstock.coordinator.reconcile import (
    JOIN_EPOCH,
    STATIC_LEAVE_EPOCH,
    MemberState,
    Situation,
    reconcile,
)

ASSIGN = "assign"
SESSION = "session"
REBALANCE = "rebalance"
JOIN = "join"
SYNC = "sync"
TOPICS_AT_ONCE_MAX = 500
"""To find so many, or to assign them, takes a few milliseconds."""


class Engine:
    """The moving part of a `ConsumerGroup`."""

    __slots__ = ("_joins_awaited", "environment", "group_id", "roster", "subscriptions")

    def __init__(self, group_id: str, environment: Environment) -> None:
        self.group_id = group_id
        self.environment = environment
        self.roster = Roster()
        self.subscriptions = Subscriptions(self.roster, environment.topics, environment.patterns)
        self._joins_awaited: set[str] = set()

    # -- members -------------------------------------------------------------------------------

    def set_profile(self, member: Member, profile: Profile, effects: Effects) -> bool:
        """Store what a member, new or known, sends about itself; whether its subscription changes.

        The group enters the next epoch if the topics of the member change. A regular expression
        that is not resolved yet has no topics: `resolve_regex` enters the epoch when it finds some.
        """
        is_new = member.member_id not in self.roster.members
        before = member.profile
        if is_new:
            self.roster.put(member)
        if is_new or before != profile:
            self.roster.set_profile(member, profile)
            effects.records.append(entries.profile_record(self.group_id, member))
        other_names = before.topic_names != profile.topic_names
        other_regex = before.topic_regex != profile.topic_regex
        if other_regex:
            self._drop_unused_regexes(effects)
        is_resolved = not profile.topic_regex or profile.topic_regex in self.roster.regexes
        if other_names or (other_regex and is_resolved):
            self.bump(effects)
        return other_names or other_regex

    def replace_static(self, old: Member, new_id: str, effects: Effects) -> Member:
        """The process behind a static id has come back under another id: it takes the old one's
        place, from epoch 0.
        """
        target = self.roster.target.get(old.member_id, frozenset())
        self.forget(old, effects)
        progress = old.progress._replace(
            epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH, state=MemberState.STABLE, revoking={}
        )
        new = Member(new_id, old.profile, progress)
        self.roster.put(new)
        self.roster.target[new_id] = target
        effects.records += [
            entries.profile_record(self.group_id, new),
            entries.target_record(self.group_id, new_id, target),
            entries.progress_record(self.group_id, new),
        ]
        return new

    def forget(self, member: Member, effects: Effects) -> None:
        """Remove a member without a rebalance."""
        self.roster.remove(member.member_id)
        effects.records += entries.member_tombstones(self.group_id, member.member_id)
        self._joins_awaited.discard(member.member_id)
        self.unwatch(member, effects)

    def leave(self, members: list[Member], effects: Effects, now_ms: int) -> None:
        """Members leave permanently: the group is rebalanced without them."""
        for member in members:
            self.forget(member, effects)
        self._drop_unused_regexes(effects)
        self.bump(effects)
        self.assign_if_due(effects, now_ms)

    def leave_for_now(self, member: Member, effects: Effects) -> None:
        """A static member goes and may come back: nobody else gets its partitions yet."""
        progress = member.progress._replace(
            epoch=STATIC_LEAVE_EPOCH, state=MemberState.STABLE, revoking={}
        )
        self._set_progress(member, progress, effects)
        effects.cancel_timer(self.timer(REBALANCE, member.member_id))

    # -- epochs and targets --------------------------------------------------------------------

    def bump(self, effects: Effects) -> None:
        """Enter the next group epoch."""
        self._bump(self.subscriptions.metadata_hash(), effects)

    def _bump(self, metadata_hash: int, effects: Effects) -> None:
        roster = self.roster
        roster.epoch += 1
        roster.metadata_hash = metadata_hash
        self.environment.rebalances.consumer += 1
        effects.records.append(
            entries.group_record(self.group_id, roster.epoch, roster.metadata_hash)
        )

    def bump_if_changed(self, effects: Effects) -> None:
        """Enter the next group epoch if topics of the group have changed."""
        metadata_hash = self.subscriptions.metadata_hash()
        if metadata_hash != self.roster.metadata_hash:
            self._bump(metadata_hash, effects)

    def topics_changed(self, names: frozenset[str], effects: Effects, now_ms: int) -> None:
        """Topics came, went or grew."""
        concerned = not names.isdisjoint(self.subscriptions.all_names())
        regexes = {m.profile.topic_regex for m in self.roster.members.values()}
        for regex in sorted(r for r in regexes if r):
            if self.subscriptions.matches(regex, names):
                self._resolve(regex, effects, now_ms)
                concerned = True
        if concerned:
            self.bump_if_changed(effects)
            self._assign_later_if_wide(effects, now_ms)

    def assign_if_due(self, effects: Effects, now_ms: int) -> None:
        """Make the target of the group's epoch, or set the timer that will."""
        roster = self.roster
        if roster.assignment_epoch >= roster.epoch or not roster.members:
            return
        due_ms = roster.assignment_ms + self.config.consumer_assignment_interval_ms
        if now_ms < due_ms and any(roster.target.values()):
            effects.set_timer(self.timer(ASSIGN), due_ms)
            return
        self._assign(effects, now_ms)

    def _assign_later_if_wide(self, effects: Effects, now_ms: int) -> None:
        """As `assign_if_due`, where nobody waits for the target: of many topics the timer makes it,
        in an event of its own.
        """
        roster = self.roster
        is_wide = len(self.subscriptions.all_names()) > TOPICS_AT_ONCE_MAX
        if is_wide and roster.assignment_epoch < roster.epoch:
            effects.set_timer(self.timer(ASSIGN), now_ms)
        else:
            self.assign_if_due(effects, now_ms)

    @property
    def config(self) -> ConsumerGroupConfig:
        """What is in force for this group now."""
        return self.environment.config_of(self.group_id)

    @property
    def assignor_name(self) -> str:
        """The assignor that most members ask for; the first of the setting if nobody asks."""
        offered = self.environment.config.group_consumer_assignors
        votes = Counter(
            name
            for m in self.roster.members.values()
            if (name := m.profile.server_assignor) in offered
        )
        return max(offered, key=lambda name: votes[name])

    def _assign(self, effects: Effects, now_ms: int) -> None:
        roster = self.roster
        target = ASSIGNORS[self.assignor_name](self._spec())
        for member_id in roster.members:
            given = target[member_id]
            if roster.target.get(member_id) != given:
                effects.records.append(entries.target_record(self.group_id, member_id, given))
        roster.target = target
        roster.assignment_epoch = roster.epoch
        roster.assignment_ms = now_ms
        effects.records.append(entries.target_epoch_record(self.group_id, roster.epoch, now_ms))

    def _spec(self) -> GroupSpec:
        topics = self.environment.topics
        counts: dict[Uuid, int] = {}
        for name in self.subscriptions.all_names():
            topic_id = topics.topic_id(name)
            if topic_id is not None:
                counts[topic_id] = topics.partition_count(name) or 0
        members: dict[str, Subscriber] = {}
        known: dict[tuple[tuple[str, ...], str], frozenset[Uuid]] = {}
        for member_id, member in self.roster.members.items():
            profile = member.profile
            subscription = (profile.topic_names, profile.topic_regex)
            if subscription not in known:
                known[subscription] = self.subscriptions.topic_ids(profile)
            members[member_id] = Subscriber(member.order, known[subscription], profile.rack_id)
        racks = self._racks(counts) if any(m.rack for m in members.values()) else {}
        return GroupSpec(members, counts, self.roster.target, racks)

    def _racks(self, counts: Mapping[Uuid, int]) -> dict[Partition, frozenset[str]]:
        topics = self.environment.topics
        racks: dict[Partition, frozenset[str]] = {}
        for topic_id, count in counts.items():
            name = topics.name_of(topic_id)
            for number in range(count if name is not None else 0):
                found = topics.racks(name or "", number)
                if found:
                    racks[topic_id, number] = found
        return racks

    # -- reconciliation ------------------------------------------------------------------------

    def reconcile(
        self,
        member: Member,
        owned: frozenset[Partition] | None,
        effects: Effects,
        now_ms: int,
        *,
        resubscribed: bool,
    ) -> bool:
        """Bring a member closer to its target; whether its partitions have changed."""
        if self.is_reconciled(member) and not resubscribed:
            return False
        roster = self.roster
        before = member.progress
        wanted = self.subscriptions.topic_ids(member.profile)
        after = reconcile(
            Situation(
                before,
                roster.assignment_epoch,
                roster.target.get(member.member_id, frozenset()),
                lambda partition: partition[0] in wanted,
                owned,
                lambda partition: roster.is_free(partition, member.member_id),
            )
        )
        if after == before:
            return False
        self._set_progress(member, after, effects)
        if not member.is_classic:
            self._watch_revocation(member, effects, now_ms)
        return after.assigned.keys() != before.assigned.keys()

    def is_reconciled(self, member: Member) -> bool:
        """The member has its whole target, and nothing else."""
        progress = member.progress
        return (
            progress.state is MemberState.STABLE and progress.epoch == self.roster.assignment_epoch
        )

    @property
    def is_stable(self) -> bool:
        """The target is that of the present epoch, and every member has reached it."""
        roster = self.roster
        return roster.epoch == roster.assignment_epoch and all(
            self.is_reconciled(m) for m in roster.members.values()
        )

    def waits_for_others(self, member: Member) -> bool:
        """Another member still holds a partition of this member's target."""
        target = self.roster.target.get(member.member_id, frozenset())
        return any(not self.roster.is_free(p, member.member_id) for p in target)

    def _set_progress(self, member: Member, progress: Progress, effects: Effects) -> None:
        self.roster.advance(member, progress)
        effects.records.append(entries.progress_record(self.group_id, member))

    # -- timers --------------------------------------------------------------------------------

    def timer(self, kind: str, *rest: str) -> TimerKey:
        return (self.group_id, kind, *rest)

    def heard_from(self, member: Member, effects: Effects, now_ms: int) -> None:
        """Restart the member's session timer."""
        classic = member.profile.classic
        timeout_ms = (
            self.config.consumer_session_timeout_ms
            if classic is None
            else classic.session_timeout_ms
        )
        effects.set_timer(self.timer(SESSION, member.member_id), now_ms + timeout_ms)

    def watch(self, effects: Effects, now_ms: int) -> None:
        """Set the timers of all members, after loading or a change of protocol."""
        for member in self.roster.members.values():
            self.heard_from(member, effects, now_ms)
            if member.progress.state is MemberState.UNREVOKED_PARTITIONS:
                if member.is_classic:
                    self.await_join(member, effects, now_ms)
                else:
                    self._watch_revocation(member, effects, now_ms)

    def unwatch(self, member: Member, effects: Effects) -> None:
        """Cancel all timers of a member."""
        for kind in (SESSION, REBALANCE, JOIN, SYNC):
            effects.cancel_timer(self.timer(kind, member.member_id))

    def _watch_revocation(self, member: Member, effects: Effects, now_ms: int) -> None:
        key = self.timer(REBALANCE, member.member_id)
        if member.progress.state is MemberState.UNREVOKED_PARTITIONS:
            effects.set_timer(key, now_ms + member.profile.rebalance_timeout_ms)
        else:
            effects.cancel_timer(key)

    def await_join(self, member: Member, effects: Effects, now_ms: int) -> None:
        """A classic member was told to join: it has its rebalance timeout from the first time."""
        if member.member_id not in self._joins_awaited:
            self._joins_awaited.add(member.member_id)
            deadline_ms = now_ms + member.profile.rebalance_timeout_ms
            effects.set_timer(self.timer(JOIN, member.member_id), deadline_ms)

    def await_sync(self, member: Member, effects: Effects, now_ms: int) -> None:
        """A classic member has joined and must fetch its assignment."""
        self._joins_awaited.discard(member.member_id)
        effects.cancel_timer(self.timer(JOIN, member.member_id))
        deadline_ms = now_ms + member.profile.rebalance_timeout_ms
        effects.set_timer(self.timer(SYNC, member.member_id), deadline_ms)

    def synced(self, member: Member, effects: Effects) -> None:
        effects.cancel_timer(self.timer(SYNC, member.member_id))

    # -- regular expressions -------------------------------------------------------------------

    def resolve_regex(self, regex: str, effects: Effects, now_ms: int) -> None:
        """Resolve a subscription that is new to the group, and assign the topics that it finds."""
        if not regex or regex in self.roster.regexes:
            return
        self._resolve(regex, effects, now_ms)
        found_topics = bool(self.roster.regexes[regex].topics)
        if found_topics or self.subscriptions.metadata_hash() != self.roster.metadata_hash:
            self.bump(effects)
            self._assign_later_if_wide(effects, now_ms)

    def seen_by(
        self, regex: str, sees: Callable[[str], bool] | None, effects: Effects, now_ms: int
    ) -> None:
        """A member is heard from that may know of these topics: its pattern finds no others."""
        if not regex or sees is None:
            return
        again = self.subscriptions.seen_by(regex, sees, now_ms)
        if again and regex in self.roster.regexes:
            self._resolve(regex, effects, now_ms)
            self.bump_if_changed(effects)

    def _drop_unused_regexes(self, effects: Effects) -> None:
        for unused in self.subscriptions.forget_unused():
            effects.records.append(entries.regex_tombstone(self.group_id, unused))

    def _resolve(self, regex: str, effects: Effects, now_ms: int) -> None:
        resolved = self.subscriptions.resolve(regex, now_ms)
        before = self.roster.regexes.get(regex)
        if before is not None and before.topics == resolved.topics:
            return
        self.roster.regexes[regex] = resolved
        effects.records.append(entries.regex_record(self.group_id, regex, *resolved))
