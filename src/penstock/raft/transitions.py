"""Transitions to Unattached and Follower, and how a replica handles a new epoch or leader."""

from __future__ import annotations

from penstock.base.errors import invariant
from penstock.raft.core import SYNCS_PER_ROUND, Core
from penstock.raft.effects import Destination
from penstock.raft.state import QuorumState
from penstock.raft.states import Follower, Leader, Prospective, Unattached
from penstock.raft.types import NEVER_MS, NO_NODE


def become_unattached(core: Core, epoch: int, now_ms: int) -> None:
    """Wait for a leader of `epoch`, which is the present one or a later one."""
    if epoch > core.epoch:
        core.elect(QuorumState(epoch))
    core.leader_is_at(None)
    election_ms = now_ms + core.election_timeout_ms() if core.may_stand else NEVER_MS
    core.become(Unattached(election_ms, now_ms, core.config.retry_backoff_ms))


def become_follower(
    core: Core, epoch: int, leader_id: int, address: Destination, now_ms: int
) -> None:
    invariant(leader_id != core.me.id, f"replica {core.me} cannot follow itself")
    known = core.leader_said_where and (core.epoch, core.leader_address) == (epoch, address)
    election = core.election if epoch == core.epoch else QuorumState(epoch)
    core.elect(election._replace(leader_id=leader_id))
    core.leader_is_at(address, said_itself=known)
    core.become(Follower(leader_id, now_ms + core.fetch_timeout_ms(), now_ms))


def learn(core: Core, epoch: int, leader_id: int, address: Destination | None, now_ms: int) -> None:
    """A message has `leader_id` (-1: none) as the leader of `epoch`, at `address` if known."""
    if epoch < core.epoch:
        return
    known = core.election.leader_id if epoch == core.epoch else NO_NODE
    invariant(
        leader_id == NO_NODE or known in (NO_NODE, leader_id),
        f"epoch {epoch} has two leaders, {known} and {leader_id}",
    )
    if leader_id == core.me.id:
        leader_id = NO_NODE
    to = core.better(address, core.address_of(leader_id))
    if leader_id == NO_NODE or to is None:
        if epoch > core.epoch:
            become_unattached(core, epoch, now_ms)
        return
    role = core.role
    if epoch > core.epoch or known == NO_NODE or isinstance(role, Unattached):
        become_follower(core, epoch, leader_id, to, now_ms)
    elif isinstance(role, Follower) and not core.leader_said_where:
        core.leader_is_at(to)


def follow_again(core: Core, now_ms: int) -> None:
    """A pre-vote failed: continue with the leader of the epoch if there is one."""
    leader_id = core.election.leader_id
    address = core.address_of(leader_id)
    role = core.role
    if leader_id in (NO_NODE, core.me.id) or address is None:
        become_unattached(core, core.epoch, now_ms)
        return
    lost = isinstance(role, Prospective) and role.leader_lost
    become_follower(core, core.epoch, leader_id, address, now_ms)
    if lost:
        lose_leader(core, now_ms)


LOST_LEADER_PAUSE_MS_MAX = 150
"""A follower whose leader is known to be gone stands for election within this time, unless it has
tried already."""


def pause_ms(core: Core, first_ms_max: int) -> int:
    """A random pause before an election, longer after each that brought no leader."""
    bound_ms = min(
        first_ms_max << min(core.election_failures, 10), core.config.election_backoff_max_ms
    )
    # Who stands before the others can have answered somebody else only disturbs them.
    bound_ms += SYNCS_PER_ROUND * core.sync_ms
    return 1 + core.random_ms(bound_ms)


def lose_leader(core: Core, now_ms: int) -> None:
    """The leader is known to be gone: an election comes after a short random pause, and until
    then this follower grants pre-votes.
    """
    role = core.role
    if isinstance(role, Follower) and not role.leader_lost:
        role.leader_lost = True
        pause = pause_ms(core, LOST_LEADER_PAUSE_MS_MAX)
        role.election_ms = now_ms + pause if core.may_stand else NEVER_MS


def is_settled(core: Core) -> bool:
    """Whether this replica has reason to think that its leader is alive, so that it refuses
    pre-votes.
    """
    role = core.role
    if isinstance(role, Follower):
        return role.heard and not role.leader_lost
    return isinstance(role, Leader)
