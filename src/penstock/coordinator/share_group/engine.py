"""Changes of a share group: members, epochs, the target, the stages of partitions, timers.

Each change alters the roster at once and adds the records that say so to the effects. A partition
may lie with many members, so nothing has to be given up before others get it: a member comes to its
target at its next heartbeat.

Only initialised partitions are assigned. A heartbeat asks the share coordinator for those that are
new (`Initialize`); once it has begun them, the next heartbeat enters an epoch with them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from penstock.base.ids import Uuid
from penstock.config.group_config import ShareGroupConfig
from penstock.coordinator.consumer.engine import ASSIGN, SESSION
from penstock.coordinator.consumer.partitions import Partition
from penstock.coordinator.consumer.subscriptions import topics_hash
from penstock.coordinator.effects import Effects, TimerKey
from penstock.coordinator.group import Environment
from penstock.coordinator.share_group import entries
from penstock.coordinator.share_group.assignor import simple
from penstock.coordinator.share_group.roster import Member, Profile, Progress, Roster
from penstock.coordinator.share_group.states import StatePartitions, TopicState

UNKNOWN_START: Final = -1
"""The start of a partition that its leader finds by share.auto.offset.reset."""


class Initialize(NamedTuple):
    """Have the share coordinator begin states; the driver tells the shard `initialized`."""

    group_id: str
    state_epoch: int
    starts: Mapping[Partition, int]


class Engine:
    """The roster of one group and what changes it."""

    __slots__ = ("_hash_is_old", "_settled", "environment", "group_id", "roster")

    def __init__(self, group_id: str, environment: Environment) -> None:
        self.group_id = group_id
        self.environment = environment
        self.roster = Roster()
        self._settled = False
        """Nothing has changed since a heartbeat found all partitions initialised and assigned."""
        self._hash_is_old = True
        """Topics may have changed since the hash of the group was made."""

    @property
    def config(self) -> ShareGroupConfig:
        """What is in force for this group now."""
        return self.environment.share_config(self.group_id)

    # -- members -------------------------------------------------------------------------------

    def set_profile(self, member_id: str, profile: Profile, effects: Effects) -> bool:
        """Store what a member, new or known, says about itself; whether its topics change."""
        member = self.roster.member(member_id)
        before = member.profile
        if profile == before:
            return False
        member.profile = profile
        effects.records.append(entries.profile_record(self.group_id, member))
        return profile.topic_names != before.topic_names

    def leave(self, member_id: str, effects: Effects) -> None:
        """A member is gone; the next heartbeat of another assigns what it had."""
        self.roster.remove(member_id)
        effects.records += entries.member_tombstones(self.group_id, member_id)
        effects.cancel_timer(self.timer(SESSION, member_id))
        self._bump(self._hash(), effects)

    # -- epochs and targets --------------------------------------------------------------------

    def follow(self, effects: Effects, *, resubscribed: bool) -> bool:
        """Enter the next epoch if topics, their partitions or the subscriptions have changed."""
        roster = self.roster
        bumps = resubscribed or (
            not self._settled
            and roster.assignment_epoch >= roster.epoch
            and self._initialized_not_assigned()
        )
        if not bumps and not self._hash_is_old:
            return False
        metadata_hash = self._hash()
        self._hash_is_old = False
        bumps = bumps or metadata_hash != roster.metadata_hash
        if bumps:
            self._bump(metadata_hash, effects)
        return bumps

    def _bump(self, metadata_hash: int, effects: Effects) -> None:
        roster = self.roster
        roster.epoch += 1
        roster.metadata_hash = metadata_hash
        self._settled = False
        self.environment.rebalances.share += 1
        effects.records.append(entries.group_record(self.group_id, roster.epoch, metadata_hash))

    def _hash(self) -> int:
        return topics_hash(self.roster.topic_names(), self.environment.topics)

    def _initialized_not_assigned(self) -> bool:
        """Whether a topic of the group has partitions that could be assigned and are not."""
        names = self.roster.topic_names()
        assigned = frozenset[Partition]().union(*self.roster.target.values())
        for topic_id, state in self.roster.states.initialized.items():
            numbers = {number for id_, number in assigned if id_ == topic_id}
            if state.name in names and numbers != state.numbers:
                return True
        return False

    def assign_if_due(self, effects: Effects, now_ms: int) -> None:
        """Make the target of the group's epoch, or set the timer that will."""
        roster = self.roster
        if roster.assignment_epoch >= roster.epoch or not roster.members:
            return
        due_ms = roster.assignment_ms + self.config.share_assignment_interval_ms
        if now_ms < due_ms and any(roster.target.values()):
            effects.set_timer(self.timer(ASSIGN), due_ms)
            return
        target = simple(
            {id_: self._topic_ids(member.profile) for id_, member in roster.members.items()},
            self._assignable(),
            roster.target,
        )
        for member_id, given in target.items():
            if roster.target.get(member_id) != given:
                effects.records.append(entries.target_record(self.group_id, member_id, given))
        roster.target = target
        roster.assignment_epoch = roster.epoch
        roster.assignment_ms = now_ms
        effects.records.append(entries.target_epoch_record(self.group_id, roster.epoch, now_ms))

    def _assignable(self) -> dict[Uuid, frozenset[int]]:
        """Initialised partitions of topics that exist."""
        topics = self.environment.topics
        states = self.roster.states.initialized
        return {
            id_: state.numbers for id_, state in states.items() if topics.name_of(id_) is not None
        }

    def _topic_ids(self, profile: Profile) -> frozenset[Uuid]:
        ids = (self.environment.topics.topic_id(name) for name in profile.topic_names)
        return frozenset(topic_id for topic_id in ids if topic_id is not None)

    def reconcile(self, member: Member, effects: Effects, *, forced: bool) -> bool:
        """Bring a member to its target; whether its partitions have changed."""
        roster, before = self.roster, member.progress
        if before.epoch == roster.assignment_epoch and not forced:
            return False
        target = roster.target.get(member.member_id, frozenset())
        wanted = self._topic_ids(member.profile)
        assigned = frozenset(partition for partition in target if partition[0] in wanted)
        after = before._replace(assigned=assigned)
        if before.epoch != roster.assignment_epoch:
            after = Progress(roster.assignment_epoch, before.epoch, assigned)
        if after != before:
            member.progress = after
            effects.records.append(entries.progress_record(self.group_id, member))
        return after.assigned != before.assigned

    # -- the stages of partitions --------------------------------------------------------------

    def set_states(self, states: StatePartitions, effects: Effects) -> None:
        """Partitions have come to other stages."""
        if states != self.roster.states:
            self.roster.states = states
            self._settled = False
            effects.records.append(entries.states_record(self.group_id, states))

    def initialize_new(self, effects: Effects, now_ms: int) -> None:
        """Ask the share coordinator for the partitions of the group that are new, and again for
        those that it has not answered for.
        """
        roster = self.roster
        if self._settled:
            return
        asked = self._not_initialized(now_ms)
        if asked:
            self.set_states(roster.states.begun(asked), effects)
            starts = {
                (topic_id, number): UNKNOWN_START
                for topic_id, state in asked.items()
                for number in sorted(state.numbers)
            }
            effects.actions.append(Initialize(self.group_id, roster.epoch, starts))
        self._settled = (
            not roster.states.initializing
            and roster.assignment_epoch == roster.epoch
            and not self._initialized_not_assigned()
        )

    def _not_initialized(self, now_ms: int) -> dict[Uuid, TopicState]:
        topics = self.environment.topics
        retry_ms = self.environment.config.group_share_initialize_retry_interval_ms
        found = {}
        for name in sorted(self.roster.topic_names()):
            topic_id = topics.topic_id(name)
            if topic_id is None:
                continue
            known = self.roster.states.fresh(topic_id, now_ms - retry_ms)
            missing = frozenset(range(topics.partition_count(name) or 0)) - known
            if missing:
                found[topic_id] = TopicState(name, missing, now_ms)
        return found

    def initialized(
        self,
        done: Collection[Partition],
        refused: Collection[Partition],
        effects: Effects,
        now_ms: int,
    ) -> None:
        """The share coordinator has answered."""
        begun: dict[Uuid, TopicState] = {}
        gone = []
        for topic_id, number in done:
            name = self.environment.topics.name_of(topic_id)
            if name is None:
                gone.append((topic_id, number))
                continue
            before = begun.get(topic_id)
            numbers = before.numbers if before is not None else frozenset()
            begun[topic_id] = TopicState(name, numbers | {number}, now_ms)
        self.set_states(self.roster.states.done(begun).not_done([*refused, *gone]), effects)

    def topics_changed(self, effects: Effects) -> None:
        """Topics came, went or grew: forget those that are gone, look at the others at the next
        heartbeat.
        """
        self._hash_is_old = True
        self._settled = False
        gone = self.roster.states.gone(self.environment.topics.name_of)
        if gone:
            self.set_states(self.roster.states.forget(gone), effects)

    # -- timers --------------------------------------------------------------------------------

    def timer(self, kind: str, *rest: str) -> TimerKey:
        return (self.group_id, kind, *rest)

    def heard_from(self, member: Member, effects: Effects, now_ms: int) -> None:
        """Restart the member's session timer."""
        deadline_ms = now_ms + self.config.share_session_timeout_ms
        effects.set_timer(self.timer(SESSION, member.member_id), deadline_ms)
