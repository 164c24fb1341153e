"""Changes of a streams group: members, the topology, epochs, the target, timers.

Each change alters the roster at once and adds the records that say so to the effects. The order of
a rebalance: members, the topology or its topics change, the group's epoch is bumped, a target is
made for that epoch, and each member is brought to it at its own heartbeats.

A target is made at a heartbeat, but not while the first members of an empty group gather
(`streams.initial.rebalance.delay.ms`), nor within `streams.assignment.interval.ms` of the last one:
then a timer makes it. While topics are missing it is empty.

Timers, by key after the group's id:

* `assign`: the target is due.
* `session MEMBER`: the member is silent for too long.
* `rebalance MEMBER`: the member does not give up its tasks.

Not in the records, and forgotten by a fail-over as in Kafka: who asked for a shutdown, the epoch of
the endpoints, the delay of the first target.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.config.group_config import StreamsGroupConfig
from penstock.coordinator.consumer.engine import ASSIGN, REBALANCE, SESSION
from penstock.coordinator.consumer.subscriptions import topics_hash
from penstock.coordinator.effects import Effects, TimerKey
from penstock.coordinator.group import Environment
from penstock.coordinator.reconcile import MemberState, Situation, reconcile
from penstock.coordinator.streams_group import entries
from penstock.coordinator.streams_group.assignor import Candidate, Subtask, sticky
from penstock.coordinator.streams_group.endpoints import partitions_by_endpoint
from penstock.coordinator.streams_group.resolving import Problem, Resolved, StatusCode, resolve
from penstock.coordinator.streams_group.roster import (
    NOT_VALIDATED,
    Member,
    Profile,
    Roster,
)
from penstock.coordinator.streams_group.tasks import NO_TASKS, TaskType, TypedTask
from penstock.coordinator.streams_group.topology import Topology
from penstock.wire.messages.streams_group_heartbeat import EndpointToPartitions

STANDBY_REPLICAS: Final = "num.standby.replicas"
"""As the group's record names the setting."""


class Plan(NamedTuple):
    """A topology and what its topics make of it."""

    topology: Topology
    resolved: Resolved
    metadata_hash: int


class Engine:
    """The roster of one group and what changes it."""

    __slots__ = (
        "_endpoints",
        "_first_target_ms",
        "_is_fresh",
        "_resolved",
        "endpoint_epoch",
        "environment",
        "group_id",
        "roster",
        "shutdown_by",
    )

    def __init__(self, group_id: str, environment: Environment) -> None:
        self.group_id = group_id
        self.environment = environment
        self.roster = Roster()
        self.shutdown_by: str | None = None
        """The member that has asked for the end of the application."""
        self.endpoint_epoch = 0
        """Grows when tasks of members with an endpoint move."""
        self._endpoints: list[EndpointToPartitions] | None = None
        self._first_target_ms: int | None = None
        """When the first target is due, while the members of a new group gather."""
        self._resolved: Resolved | None = None
        self._is_fresh = False
        """No topic has changed since the topology was resolved."""

    @property
    def config(self) -> StreamsGroupConfig:
        """What is in force for this group now."""
        return self.environment.streams_config(self.group_id)

    @property
    def resolved(self) -> Resolved | None:
        """The topology on its topics, as a heartbeat has found it last."""
        return self._resolved

    # -- the topology --------------------------------------------------------------------------

    def plan(self, topology: Topology) -> Plan:
        """What the topology would be on the topics that exist now; changes nothing."""
        roster = self.roster
        if self._resolved is not None and self._is_fresh and topology is roster.topology:
            return Plan(topology, self._resolved, roster.metadata_hash)
        topics = self.environment.topics
        metadata_hash = topics_hash(topology.required_topics, topics)
        same = topology is roster.topology and metadata_hash == roster.metadata_hash
        if self._resolved is not None and same:
            return Plan(topology, self._resolved, metadata_hash)
        return Plan(topology, resolve(topology, topics), metadata_hash)

    def begin_topology(self, plan: Plan, effects: Effects) -> None:
        """The first member has told its topology."""
        self.roster.topology = plan.topology
        subtopologies = list(plan.topology.subtopologies.values())
        effects.records.append(
            entries.topology_record(self.group_id, plan.topology.epoch, subtopologies)
        )

    def topics_changed(self) -> None:
        """Topics came, went or grew: looked at by the next heartbeat."""
        self._is_fresh = False

    # -- members -------------------------------------------------------------------------------

    def set_profile(self, member_id: str, profile: Profile, effects: Effects) -> bool:
        """Store what a member, new or known, says about itself; whether that is new."""
        member = self.roster.member(member_id)
        if profile == member.profile:
            return False
        member.profile = profile
        self._endpoints = None
        effects.records.append(entries.profile_record(self.group_id, member))
        return True

    def leave(self, member_id: str, effects: Effects) -> None:
        """A member is gone; the next heartbeat of another assigns what it had."""
        self.roster.remove(member_id)
        self._endpoints = None
        effects.records += entries.member_tombstones(self.group_id, member_id)
        for kind in (SESSION, REBALANCE):
            effects.cancel_timer(self.timer(kind, member_id))
        self._bump(effects)
        if not self.roster.members:
            self.shutdown_by = None

    # -- epochs and targets --------------------------------------------------------------------

    def follow(self, plan: Plan, effects: Effects, *, changed: bool) -> None:
        """Enter the next epoch if a member, the topics or the group's settings have changed."""
        roster = self.roster
        if plan.resolved is not self._resolved:
            self._endpoints = None
        self._resolved, self._is_fresh = plan.resolved, True
        validated = plan.topology.epoch if plan.resolved.is_ready else NOT_VALIDATED
        configs = {STANDBY_REPLICAS: str(self.config.streams_num_standby_replicas)}
        if (
            not changed
            and plan.metadata_hash == roster.metadata_hash
            and validated == roster.validated_epoch
            and configs == roster.assignment_configs
        ):
            return
        roster.metadata_hash = plan.metadata_hash
        roster.validated_epoch = validated
        roster.assignment_configs = configs
        self._bump(effects)

    def _bump(self, effects: Effects) -> None:
        self.roster.epoch += 1
        self.environment.rebalances.streams += 1
        effects.records.append(entries.group_record(self.group_id, self.roster))

    def gather(self, effects: Effects, now_ms: int) -> None:
        """The first member has come to an empty group: others may follow before the first
        target.
        """
        delay_ms = self.config.streams_initial_rebalance_delay_ms
        if delay_ms and self._first_target_ms is None:
            self._first_target_ms = now_ms + delay_ms
            effects.set_timer(self.timer(ASSIGN), self._first_target_ms)

    def assign_if_due(self, effects: Effects, now_ms: int) -> Problem | None:
        """Make the target of the group's epoch, or set the timer that will: then, why not yet."""
        roster = self.roster
        if self._first_target_ms is not None:
            if now_ms < self._first_target_ms:
                return Problem(
                    StatusCode.ASSIGNMENT_DELAYED,
                    "Assignment delayed due to the configured initial rebalance delay.",
                )
            self._first_target_ms = None
        if roster.assignment_epoch >= roster.epoch or not roster.members:
            return None
        due_ms = roster.assignment_ms + self.config.streams_assignment_interval_ms
        if roster.assignment_ms and now_ms < due_ms:
            effects.set_timer(self.timer(ASSIGN), due_ms)
            return Problem(
                StatusCode.ASSIGNMENT_DELAYED,
                "Assignment delayed due to the configured assignment interval.",
            )
        if self._resolved is not None:
            self._assign(self._resolved, effects, now_ms)
        return None

    def _assign(self, resolved: Resolved, effects: Effects, now_ms: int) -> None:
        roster = self.roster
        target = dict.fromkeys(roster.members, NO_TASKS)
        if resolved.is_ready:
            target = sticky(
                {
                    id_: Candidate(member.profile.process_id, roster.target.get(id_, NO_TASKS))
                    for id_, member in roster.members.items()
                },
                {
                    id_: Subtask(one.task_count, one.is_stateful)
                    for id_, one in resolved.subtopologies.items()
                },
                int(roster.assignment_configs.get(STANDBY_REPLICAS, "0")),
            )
        for member_id, given in target.items():
            if roster.target.get(member_id) != given:
                effects.records.append(entries.target_record(self.group_id, member_id, given))
        roster.target = target
        roster.assignment_epoch = roster.epoch
        roster.assignment_ms = now_ms
        effects.records.append(entries.target_epoch_record(self.group_id, roster.epoch, now_ms))

    # -- reconciliation ------------------------------------------------------------------------

    def reconcile(
        self, member: Member, owned: frozenset[TypedTask] | None, effects: Effects, now_ms: int
    ) -> bool:
        """Bring a member closer to its target; whether its tasks have changed."""
        roster, before = self.roster, member.progress
        if self.is_reconciled(member):
            return False
        after = reconcile(
            Situation(
                before,
                roster.assignment_epoch,
                roster.target.get(member.member_id, NO_TASKS),
                _anything,
                owned,
                lambda task: roster.is_free(task, member),
            )
        )
        after = after._replace(
            assigned={
                task: epoch if task[0] is TaskType.ACTIVE else 0
                for task, epoch in after.assigned.items()
            }
        )
        if after == before:
            return False
        roster.advance(member, after)
        self._endpoints = None
        effects.records.append(entries.progress_record(self.group_id, member))
        self.watch_revocation(member, effects, now_ms)
        return after.assigned != before.assigned

    def is_reconciled(self, member: Member) -> bool:
        """The member has its whole target, and nothing else."""
        progress = member.progress
        return (
            progress.state is MemberState.STABLE and progress.epoch == self.roster.assignment_epoch
        )

    @property
    def endpoints(self) -> list[EndpointToPartitions]:
        """Who has which partitions, for interactive queries; made once until something moves."""
        if self._endpoints is None:
            resolved = {} if self._resolved is None else self._resolved.subtopologies
            self._endpoints = partitions_by_endpoint(
                self.roster.members.values(), resolved, self.environment.topics
            )
        return self._endpoints

    # -- timers --------------------------------------------------------------------------------

    def timer(self, kind: str, *rest: str) -> TimerKey:
        return (self.group_id, kind, *rest)

    def heard_from(self, member: Member, effects: Effects, now_ms: int) -> None:
        """Restart the member's session timer."""
        deadline_ms = now_ms + self.config.streams_session_timeout_ms
        effects.set_timer(self.timer(SESSION, member.member_id), deadline_ms)

    def watch_revocation(self, member: Member, effects: Effects, now_ms: int) -> None:
        """Set the member's rebalance timer if it has to give up tasks, else cancel it."""
        key = self.timer(REBALANCE, member.member_id)
        if member.progress.state is MemberState.UNREVOKED_PARTITIONS:
            effects.set_timer(key, now_ms + member.profile.rebalance_timeout_ms)
        else:
            effects.cancel_timer(key)


def _anything(_: TypedTask) -> bool:
    return True
