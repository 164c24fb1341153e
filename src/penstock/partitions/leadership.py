"""Whether a replica leads or follows, under which leader epoch, and which replicas are in sync.

The metadata decides all of it; `_TRANSITIONS` has what a new leader epoch means. The leader of
several replicas has a `Leader`, which wants changes of the ISR: they are proposed to the
controller, which answers with `altered` or `refused`. A follower has a `Follower`.

The partition keeps roles and epochs as its own fields, since appends and reads need them. Owned by
the event loop's thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Final

from penstock.base.errors import invariant
from penstock.metadata import image as metadata
from penstock.metadata.records import NO_LEADER
from penstock.partitions.replica_environment import ReplicaEnvironment
from penstock.replica.follower import Follower
from penstock.replica.leader import IsrChange, Leader

if TYPE_CHECKING:
    from penstock.partitions.partition import Partition

log = logging.getLogger("penstock.partitions")


class Role(Enum):
    LEADER = "leader"
    FOLLOWER = "follower"


def role_in(registration: metadata.Partition, node_id: int) -> Role:
    """The role of a node's replica."""
    return Role.LEADER if registration.leader == node_id else Role.FOLLOWER


class Leadership:
    """Changes the role and the ISR of one partition."""

    __slots__ = ("_env", "_partition")

    def __init__(self, partition: Partition, env: ReplicaEnvironment) -> None:
        self._partition = partition
        self._env = env

    # -- following the metadata ----------------------------------------------------------------

    def begin(self) -> None:
        """The replica was opened."""
        if self._partition.role is Role.LEADER:
            self._lead()
        else:
            self._begin_following()
        self.count_in_sync()

    def follow(self, registration: metadata.Partition) -> bool:
        """The metadata of the partition has changed; whether its leadership has."""
        partition = self._partition
        if registration.leader_epoch < partition.leader_epoch:
            return False
        renewed = registration.leader_epoch > partition.leader_epoch
        before, role = partition.role, role_in(registration, self._env.node_id)
        invariant(renewed or role is before, f"{partition!r} changes its role within an epoch")
        if renewed:
            partition.write_out()  # what was staged belongs to the leader epoch that ends
        partition.registration = registration
        partition.leader_id = registration.leader
        partition.leader_epoch = registration.leader_epoch
        if renewed:
            _TRANSITIONS[before, role](self)
        elif role is Role.LEADER:
            self._reassign()
            self._let_join()
        partition.role = role
        self.count_in_sync()
        if role is Role.LEADER:
            partition.settle()
        return renewed

    def _lead(self) -> None:
        partition, env = self._partition, self._env
        registration, config = partition.registration, partition.log.config
        leader = None  # the only replica asks no other
        if len(registration.replicas) > 1:
            leader = Leader(
                env.node_id,
                env.brokers,
                registration,
                end_offset=partition.log.log_end_offset,
                high_watermark=partition.known_watermark,
                min_insync_replicas=config.min_insync_replicas,
                lag_time_max_ms=env.lag_time_max_ms(),
                now_ms=env.clock.now_ms(),
            )
        partition.begin_leading(leader)

    def _lead_again(self) -> None:
        """Elected again: append waiters keep waiting, readers must learn the new epoch."""
        partition = self._partition
        leader = partition.leader
        if (
            leader is None
            or len(partition.registration.replicas) == 1
            # Others led in between, and the followers may have truncated their logs to match
            # theirs: what they had fetched from here does not count any more.
            or partition.leader_epoch > leader.leader_epoch + 1
        ):
            self._lead()
        else:
            leader.begin_epoch(partition.registration, self._env.clock.now_ms())
        partition.wake_all()

    def _reassign(self) -> None:
        """The replicas or the ISR have changed within the leader epoch."""
        partition = self._partition
        leader, alone = partition.leader, len(partition.registration.replicas) == 1
        if leader is not None and not alone:
            leader.follow(partition.registration)
        elif leader is not None or not alone:
            self._lead()

    def _begin_following(self) -> None:
        self._partition.begin_following(self._follower())

    def _resign(self) -> None:
        self._partition.resign(self._follower())

    def _follower(self) -> Follower | None:
        partition = self._partition
        if partition.leader_id == NO_LEADER:
            return None
        return Follower(partition.leader_id, partition.leader_epoch, self._env.backoff_max_ms())

    # -- the in-sync replicas ------------------------------------------------------------------

    def count_in_sync(self) -> None:
        """Compare the size of the ISR with `min.insync.replicas`."""
        partition = self._partition
        leader, replicas = partition.leader, partition.registration.replicas
        isr = partition.registration.isr if leader is None else leader.isr
        # No more can be demanded than there are: with one replica, one is enough.
        wanted = min(partition.log.config.min_insync_replicas, len(replicas))
        partition.isr_counted(under_min=len(isr) < wanted)

    def check(self) -> None:
        """Time has passed, or brokers have come or gone: drop members of the ISR that have fallen
        behind, and stop waiting for those that will not join it.
        """
        leader = self._partition.leader
        if leader is not None:
            change = leader.shrink(self._env.clock.now_ms())
            if change is not None:
                self.propose(change)
            self._let_join()
            self._partition.isr_changed()
            self._partition.check_log()  # it may have failed in a flush of the log manager

    def _let_join(self) -> None:
        """A follower that has caught up may have had to wait for something else."""
        leader = self._partition.leader
        if leader is not None and len(leader.isr) < len(leader.replicas):
            for broker_id in leader.caught_up(self._env.clock.now_ms()):
                change = leader.expand(broker_id)
                if change is not None:
                    self.propose(change)

    def propose(self, change: IsrChange) -> None:
        """Ask the controller for a change of the ISR."""
        partition = self._partition
        before = partition.registration.isr if partition.leader is None else partition.leader.isr
        name, after = partition.log.name, change.members
        log.info("in-sync replicas of %s are to change from %s to %s", name, before, after)
        self._env.submit_isr(partition, change)

    def altered(
        self, change: IsrChange, isr: list[int], leader_epoch: int, partition_epoch: int
    ) -> bool:
        """The controller has accepted `change`; whether that was still news."""
        leader = self._partition.leader
        if leader is None or not leader.altered(change, isr, leader_epoch, partition_epoch):
            return False
        self.count_in_sync()
        self._let_join()
        self._partition.isr_changed()
        return True

    def refused(self, change: IsrChange, code: int) -> bool:
        """The controller has refused `change`; whether to ask again."""
        leader = self._partition.leader
        return leader is not None and leader.refused(change, code)


_TRANSITIONS: Final[dict[tuple[Role, Role], Callable[[Leadership], None]]] = {
    (Role.LEADER, Role.LEADER): Leadership._lead_again,
    (Role.LEADER, Role.FOLLOWER): Leadership._resign,
    (Role.FOLLOWER, Role.LEADER): Leadership._lead,
    (Role.FOLLOWER, Role.FOLLOWER): Leadership._begin_following,
}
"""What a new leader epoch means to a replica, by its role before and after."""
