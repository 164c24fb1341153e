"""Groups that move between the protocols while their members run.

Up: a classic group of consumers becomes a consumer group when the first member of the consumer
protocol joins. Its generation becomes the epoch, its members stay, each with what it was assigned.
Requests that wait in the classic group are answered REBALANCE_IN_PROGRESS: their members join
again.

Down: a consumer group becomes a classic group when its last member of the consumer protocol goes
and classic ones stay. The epoch becomes the generation, and a rebalance begins. If the last one is
static and comes back as a classic member it keeps its partitions, and nobody has to join again:
unless it subscribes to other topics, or somebody has not reached its target. (Kafka begins a
rebalance for the first only; a member that waits for a partition then waits until the next.)

`group.consumer.migration.policy` decides whether either happens. An empty classic group is always
replaced: nobody is in it.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.base.errors import ApiError, ErrorCode
from penstock.coordinator.classic import ClassicGroup, ClassicMember
from penstock.coordinator.consumer import entries
from penstock.coordinator.consumer.embedded import (
    read_assignment,
    read_subscription,
    write_assignment,
)
from penstock.coordinator.consumer.engine import ASSIGN, Engine
from penstock.coordinator.consumer.member import ClassicPart, Member, Profile, Progress
from penstock.coordinator.consumer.partitions import Partition
from penstock.coordinator.effects import CoordinatorRecord, Effects
from penstock.coordinator.group import CONSUMER_PROTOCOL_TYPE
from penstock.coordinator.reconcile import MemberState

MADE_BY_ITS_LEADER_MS = 0
"""When the target of a group that was classic was made: nobody knows; the next is due at once."""
CLASSIC_TIMERS = ("join", "sync")
"""The timers of a classic group as a whole; those of its members have the same keys here."""


def check_upgrade(group: ClassicGroup, engine: Engine) -> None:
    """Raise GROUP_ID_NOT_FOUND if the classic group cannot become a consumer group."""
    config = engine.environment.config
    if not config.may_upgrade:
        why = "the online upgrade is disabled by group.consumer.migration.policy"
    elif not group.is_of_consumers:
        why = "its members are no consumers"
    elif len(group.roster) > config.group_consumer_max_size:
        why = "it has more members than group.consumer.max.size allows"
    else:
        return
    raise ApiError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Group {group.group_id} is a classic group and cannot become a consumer group: {why}.",
    )


def fill(engine: Engine, group: ClassicGroup) -> None:
    """Give the empty `engine` the members of a classic group; ApiError if that cannot be."""
    check_upgrade(group, engine)
    roster = engine.roster
    roster.assignment_ms = MADE_BY_ITS_LEADER_MS
    for member in _converted(group, engine):
        roster.put(member)
        roster.target[member.member_id] = frozenset(member.progress.assigned)
    roster.epoch = roster.assignment_epoch = group.generation
    roster.metadata_hash = engine.subscriptions.metadata_hash()


def announce(engine: Engine, effects: Effects, now_ms: int) -> None:
    """The records and timers of a group that has just been filled, in Kafka's order."""
    group_id, roster = engine.group_id, engine.roster
    members = list(roster.members.values())
    effects.records += [entries.profile_record(group_id, m) for m in members]
    effects.records.append(entries.group_record(group_id, roster.epoch, roster.metadata_hash))
    effects.records += [
        entries.target_record(group_id, m.member_id, m.progress.assigned) for m in members
    ]
    effects.records.append(
        entries.target_epoch_record(group_id, roster.epoch, roster.assignment_ms)
    )
    effects.records += [entries.progress_record(group_id, m) for m in members]
    engine.watch(effects, now_ms)


def end_classic(group: ClassicGroup, effects: Effects) -> None:
    """Answer what waits in a classic group, and take back its records and timers."""
    effects.replies += group.unpark(ErrorCode.REBALANCE_IN_PROGRESS)
    effects.records += group.tombstones()
    for kind in CLASSIC_TIMERS:
        effects.cancel_timer((group.group_id, kind))
    for member_id in group.roster.pending:
        effects.cancel_timer((group.group_id, "session", member_id))


def _converted(group: ClassicGroup, engine: Engine) -> list[Member]:
    """The classic members as members of a consumer group; ApiError if one cannot be read."""
    protocol = group.protocol_name or group.roster.vote() or ""
    taken: set[Partition] = set()
    members = []
    for classic in group.roster:
        subscription = read_subscription(classic.protocols.get(protocol, b""))
        # A leader may have handed out a partition twice: the first one keeps it.
        assigned = _assigned(group, classic, engine) - taken
        taken |= assigned
        profile = Profile(
            instance_id=classic.instance_id,
            rack_id=subscription.rack_id,
            client_id=classic.client_id,
            client_host=classic.client_host,
            topic_names=tuple(sorted(set(subscription.topics))),
            rebalance_timeout_ms=classic.rebalance_timeout_ms,
            classic=ClassicPart(classic.session_timeout_ms, tuple(classic.protocols.items())),
        )
        progress = Progress(
            epoch=group.generation,
            previous_epoch=group.generation,
            state=MemberState.STABLE,
            assigned=dict.fromkeys(assigned, group.generation),
        )
        members.append(Member(classic.member_id, profile, progress))
    return members


def _assigned(group: ClassicGroup, classic: ClassicMember, engine: Engine) -> set[Partition]:
    try:
        return read_assignment(classic.assignment, engine.environment.topics)
    except ApiError as e:
        if e.code != ErrorCode.UNSUPPORTED_VERSION:
            raise
        # Kafka's words: its tools and tests look for them.
        raise ApiError(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Cannot upgrade classic group {group.group_id} to consumer group because an "
            "unsupported custom assignor is in use. Please refer to the documentation or switch "
            "to a default assignor before re-attempting the upgrade.",
        ) from e


def may_downgrade(engine: Engine, leaving: Iterable[Member]) -> bool:
    """Whether the group is to become classic when these members have gone."""
    gone = {m.member_id: m for m in leaving}
    staying = [m for m in engine.roster.members.values() if m.member_id not in gone]
    config = engine.environment.config
    return (
        config.may_downgrade
        and 0 < len(staying) <= config.group_max_size
        and all(m.is_classic for m in staying)
        and any(not m.is_classic for m in gone.values())
    )


def may_downgrade_by(engine: Engine, instance_id: str | None) -> bool:
    """Whether the group is to become classic when the member of an instance id does."""
    roster, config = engine.roster, engine.environment.config
    member_id = None if instance_id is None else roster.static_ids.get(instance_id)
    return (
        member_id is not None
        and config.may_downgrade
        and len(roster.members) <= config.group_max_size
        and [m.member_id for m in roster.members.values() if not m.is_classic] == [member_id]
    )


def downgrade(
    engine: Engine, leaving: Iterable[Member], effects: Effects, now_ms: int
) -> ClassicGroup:
    """The classic group of the members that stay, in its first rebalance."""
    group = _classic_group(engine, leaving, effects, now_ms)
    group.prepare_rebalance(effects, now_ms)
    return group


def downgrade_in_place(engine: Engine, effects: Effects, now_ms: int) -> ClassicGroup:
    """The classic group of all members, which are classic by now."""
    was_stable = engine.is_stable
    group = _classic_group(engine, (), effects, now_ms)
    if not was_stable:
        group.prepare_rebalance(effects, now_ms)
    return group


def _classic_group(
    engine: Engine, leaving: Iterable[Member], effects: Effects, now_ms: int
) -> ClassicGroup:
    """Stable, with what each member has; the consumer group's records and timers are taken back."""
    for member in list(engine.roster.members.values()):
        engine.unwatch(member, effects)
    effects.cancel_timer(engine.timer(ASSIGN))
    effects.records += tombstones(engine)
    gone = {m.member_id for m in leaving}
    staying = [m for m in engine.roster.members.values() if m.member_id not in gone]
    group = ClassicGroup(engine.group_id, engine.environment)
    group.restore(
        [_as_classic(member, engine) for member in staying],
        generation=engine.roster.epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=None,
        leader_id=None,
        since_ms=now_ms,
    )
    effects.records.append(group.record())
    effects.extend(group.loaded(now_ms))
    return group


def _as_classic(member: Member, engine: Engine) -> ClassicMember:
    profile, classic = member.profile, member.profile.classic
    assert classic is not None
    return ClassicMember(
        member.member_id,
        profile.instance_id,
        profile.client_id,
        profile.client_host,
        profile.rebalance_timeout_ms,
        classic.session_timeout_ms,
        dict(classic.protocols),
        write_assignment(
            member.progress.assigned, classic.protocols[0][1], engine.environment.topics
        ),
    )


def tombstones(engine: Engine) -> list[CoordinatorRecord]:
    """Everything that a consumer group has written, taken back in Kafka's order."""
    group_id, roster = engine.group_id, engine.roster
    records = [entries.progress_tombstone(group_id, m) for m in roster.members]
    records += [entries.target_tombstone(group_id, m) for m in roster.members]
    records.append(entries.target_epoch_tombstone(group_id))
    records += [entries.profile_tombstone(group_id, m) for m in roster.members]
    records += [entries.regex_tombstone(group_id, regex) for regex in roster.regexes]
    if roster.has_partition_metadata:
        records.append(entries.partition_metadata_tombstone(group_id))
    records.append(entries.group_tombstone(group_id))
    return records
