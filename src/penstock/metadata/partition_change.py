"""One change of one partition: its leader after the change, and the record of the change.

The caller says what is to become of the in-sync set or the assignment; this works out what follows:

1. A reassignment is completed when every replica that is to stay is in sync: those that are to go
   leave the replicas and the in-sync set in the same record.
2. An election, where the leader is gone or may not lead, or another one is asked for. A leader is
   in the in-sync set, is active, and has the data folder that the partition was assigned to: a
   broker that lost its disk has lost the partition, although its id is the same. Among several the
   first in the order of the replicas leads; newcomers, which clients may not have found yet, come
   last, the latest at the end. An unclean election takes any active replica when there is none
   such, makes it the whole in-sync set and marks the partition as recovering.
3. Eligible leader replicas (KIP-966), where the cluster keeps them. The high watermark stays where
   it is while fewer than `min.insync.replicas` are in sync, so who leaves the in-sync set below
   that minimum has all that is committed: it becomes eligible, and may lead when the in-sync set is
   empty. It stops being eligible when the minimum is reached again, when it is in sync again, and
   when it may have lost data (`Target.not_eligible`). If nobody is in sync or eligible any
   more, only the last leader comes back by itself, by an election that counts as unclean.
   Where the cluster does not keep them, the last member of an in-sync set stays in it, without
   leading, so that nobody else leads with less data by mistake.
4. A new leader epoch starts whenever a leader is named, and also when replicas are taken away, so
   that none of them is taken for a follower.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from penstock.base.errors import invariant
from penstock.base.ids import ZERO_UUID, Uuid
from penstock.metadata.assignments import active, only_directory
from penstock.metadata.image import Broker, MetadataImage, Partition
from penstock.metadata.partition_index import Place
from penstock.metadata.records import (
    NO_LEADER,
    NO_LEADER_CHANGE,
    NO_RECOVERY_STATE_CHANGE,
    PartitionChangeRecord,
)
from penstock.metadata.topic_rules import TopicRules

RECOVERED = 0
RECOVERING = 1
"""The leader recovery state of a partition that elected a leader outside its in-sync set."""


class Election(Enum):
    """Which replicas a change may elect."""

    ONLINE = "one in sync or eligible, if the present leader may not go on"
    PREFERRED = "the first replica, if it may lead"
    UNCLEAN = "as ONLINE, and at worst any active replica"


@dataclass(slots=True)
class Target:
    """What the caller wants the partition to become; None leaves it as it is."""

    isr: Sequence[int] | None = None
    replicas: Sequence[int] | None = None
    removing: Sequence[int] | None = None
    adding: Sequence[int] | None = None
    recovery_state: int | None = None
    not_eligible: int | None = None
    """A replica that may have lost data, or cannot lead."""


class _Elected(NamedTuple):
    """The leader after a change, and whether it may lack what was committed."""

    leader: int
    unclean: bool = False


class PartitionChanges:
    """Makes the records of changes, as the brokers are after the decision under way.

    `leaving` is a broker that stops being active with this decision, `coming` one that begins;
    `newcomers` have registered only just, each at its time.
    """

    def __init__(
        self,
        image: MetadataImage,
        rules: TopicRules,
        *,
        leaving: int | None = None,
        coming: Broker | None = None,
        newcomers: Mapping[int, int] | None = None,
    ) -> None:
        self._image = image
        self._rules = rules
        self._leaving = leaving
        self._coming = coming
        self._newcomers = newcomers or {}

    def usual(self, topic: str) -> Election:
        """The election that follows when a leader is lost."""
        return Election.UNCLEAN if self._rules.unclean(topic) else Election.ONLINE

    def record(
        self, place: Place, election: Election, target: Target | None = None
    ) -> PartitionChangeRecord | None:
        """The change, or None when it would change nothing."""
        old, target = place.partition, target or Target()
        new = _with_completion(old, target)
        min_isr = 0
        if self._image.keeps_elr:
            min_isr = min(self._rules.min_isr(place.topic.name), len(new.replicas))
            new = new._replace(elr=_eligible(old, new, min_isr, target.not_eligible))
        elected = self._elected(old, new, election)
        record = PartitionChangeRecord(partition_id=place.index, topic_id=place.topic.id)
        if elected.leader != old.leader or elected.unclean:
            record.leader = elected.leader
        elif not set(old.replicas) <= set(new.replicas):
            record.leader = old.leader
        new = self._led(old, new, elected, min_isr)
        record.isr = _changed(new.isr, old.isr)
        record.eligible_leader_replicas = _changed(new.elr, old.elr)
        record.last_known_elr = _changed(new.last_known_elr, old.last_known_elr)
        if new.recovery_state != old.recovery_state:
            record.leader_recovery_state = new.recovery_state
        record.replicas = _changed(new.replicas, old.replicas)
        record.removing_replicas = _changed(new.removing, old.removing)
        record.adding_replicas = _changed(new.adding, old.adding)
        self._directories(record, old, new)
        return None if _changes_nothing(record) else record

    def _led(self, old: Partition, new: Partition, elected: _Elected, min_isr: int) -> Partition:
        """The partition after its election: who is in sync, who is eligible, who led last."""
        leader = elected.leader
        if elected.unclean:
            new = _led_uncleanly(new, leader)
        elif leader in new.elr:
            new = _led_by_eligible(new, leader, min_isr)
        if not self._image.keeps_elr:
            return new._replace(isr=new.isr or old.isr)
        if leader != NO_LEADER:
            return new._replace(last_known_elr=())
        if old.last_known_elr:
            return new
        if old.leader != NO_LEADER:
            return new._replace(last_known_elr=(old.leader,))
        # It lost its leader before the cluster kept eligible replicas: who is left led last.
        return new._replace(last_known_elr=old.isr if len(old.isr) == 1 else ())

    def may_lead(self, broker_id: int, partition: Partition) -> bool:
        """Whether the broker is active and still has the partition's data."""
        broker = self._active(broker_id)
        return broker is not None and _has_directory(broker, directory_of(partition, broker_id))

    def _active(self, broker_id: int) -> Broker | None:
        if self._coming is not None and self._coming.id == broker_id:
            return None if self._coming.in_controlled_shutdown else self._coming
        broker = self._image.brokers.get(broker_id)
        return broker if active(broker) and broker_id != self._leaving else None

    def _elected(self, old: Partition, new: Partition, election: Election) -> _Elected:
        has_all = new.isr or new.elr

        def fit(broker_id: int) -> bool:
            return broker_id in has_all and self.may_lead(broker_id, old)

        if election is Election.PREFERRED and fit(new.replicas[0]):
            return _Elected(new.replicas[0])
        if fit(old.leader):
            return _Elected(old.leader)
        candidates = [broker_id for broker_id in new.replicas if fit(broker_id)]
        if candidates:
            return _Elected(min(candidates, key=self._came_ms))
        if self._image.keeps_elr and not has_all:
            for broker_id in old.last_known_elr:
                if broker_id in new.replicas and self.may_lead(broker_id, old):
                    return _Elected(broker_id, unclean=True)
        if election is Election.UNCLEAN:
            # One with its data folder comes before one that starts with nothing.
            fallback = [b for b in new.replicas if self._active(b) is not None]
            kept = [b for b in fallback if self.may_lead(b, old)]
            if fallback:
                return _Elected((kept or fallback)[0], unclean=True)
        return _Elected(NO_LEADER)

    def _came_ms(self, broker_id: int) -> int:
        """When a newcomer came; all others have been there for ever."""
        return self._newcomers.get(broker_id, -1)

    def _directories(self, record: PartitionChangeRecord, old: Partition, new: Partition) -> None:
        """Follows the replicas with their data folders.

        One that joins the in-sync set has all data in the folder it has now, also where it lost
        an earlier one.
        """
        joined = [b for b in new.isr if b not in old.isr or b == record.leader]
        if new.replicas == old.replicas and not joined:
            return
        directories = []
        for broker_id in new.replicas:
            known = directory_of(old, broker_id)
            broker = self._image.brokers.get(broker_id)
            if broker is not None and (
                broker_id not in old.replicas
                or (broker_id in joined and not _has_directory(broker, known))
            ):
                known = only_directory(broker)
            directories.append(known)
        if tuple(directories) != old.directories:
            record.directories = directories


def directory_of(partition: Partition, broker_id: int) -> Uuid:
    """The data folder of a replica, or the id that means "not assigned yet"."""
    if len(partition.directories) != len(partition.replicas):
        return ZERO_UUID
    for replica, directory in zip(partition.replicas, partition.directories, strict=True):
        if replica == broker_id:
            return directory
    return ZERO_UUID


def _has_directory(broker: Broker, directory: Uuid) -> bool:
    return directory == ZERO_UUID or directory in broker.log_dirs


def _with_completion(old: Partition, target: Target) -> Partition:
    """The partition as asked for, with its reassignment completed where that is possible."""
    new = old._replace(
        isr=_either(target.isr, old.isr),
        replicas=_either(target.replicas, old.replicas),
        removing=_either(target.removing, old.removing),
        adding=_either(target.adding, old.adding),
        recovery_state=(
            old.recovery_state if target.recovery_state is None else target.recovery_state
        ),
    )
    invariant(bool(new.replicas), "a partition cannot lose its last replica")
    if not (new.adding or new.removing):
        return new
    staying = tuple(b for b in new.replicas if b not in new.removing)
    in_sync = tuple(b for b in new.isr if b not in new.removing)
    if not staying or not set(staying) <= set(in_sync):
        return new
    return new._replace(replicas=staying, isr=in_sync, removing=(), adding=())


def _led_by_eligible(new: Partition, leader: int, min_isr: int) -> Partition:
    # It may commit alone if one is enough by now.
    others = tuple(b for b in new.elr if b != leader) if min_isr > 1 else ()
    return new._replace(isr=(leader,), elr=others)


def _led_uncleanly(new: Partition, leader: int) -> Partition:
    return new._replace(isr=(leader,), elr=(), recovery_state=RECOVERING)


def _eligible(
    old: Partition, new: Partition, min_isr: int, not_eligible: int | None
) -> tuple[int, ...]:
    """Who has all that is committed, outside the in-sync set of `new`."""
    if len(new.isr) >= min_isr:
        return ()
    known = {*old.elr, *old.isr} - {*new.isr, not_eligible}
    return tuple(broker_id for broker_id in new.replicas if broker_id in known)


def _either(new: Sequence[int] | None, old: tuple[int, ...]) -> tuple[int, ...]:
    return old if new is None else tuple(new)


def _changed(new: tuple[int, ...], old: tuple[int, ...]) -> list[int] | None:
    return None if new == old else list(new)


def _changes_nothing(record: PartitionChangeRecord) -> bool:
    return (
        record.leader == NO_LEADER_CHANGE
        and record.leader_recovery_state == NO_RECOVERY_STATE_CHANGE
        and record.isr is None
        and record.eligible_leader_replicas is None
        and record.last_known_elr is None
        and record.replicas is None
        and record.removing_replicas is None
        and record.adding_replicas is None
        and record.directories is None
    )
