"""How a node becomes a voter, and keeps its entry in the voter set up to date.

An observer whose configuration asks for it asks the leader to be added once it has caught up; if
the voter set has an entry of the same id and another directory, the same node before it lost its
disk, it first asks for that to be removed. A voter whose endpoints are not those in the set has
them changed. One request at a time; a refusal is tried again after a pause.
"""

from __future__ import annotations

from penstock.raft import messages
from penstock.raft.core import Core
from penstock.raft.states import Follower
from penstock.raft.types import NEVER_MS, ReplicaKey
from penstock.raft.voters import KRAFT_VERSIONS
from penstock.wire.messages.add_raft_voter import AddRaftVoterRequest
from penstock.wire.messages.add_raft_voter import Listener as AddListener
from penstock.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from penstock.wire.messages.update_raft_voter import (
    KRaftVersionFeature,
    UpdateRaftVoterRequest,
)
from penstock.wire.messages.update_raft_voter import Listener as UpdateListener
from penstock.wire.schema import Message

JOIN_PAUSE_MS = 100
"""Between one attempt and the next; the random part, as long again, keeps two nodes apart."""


def poll_join(core: Core, role: Follower, now_ms: int) -> None:
    """Checked after each fetch and each flush, and when a refused attempt is due again."""
    if now_ms < role.join_ms:
        return
    role.join_ms = NEVER_MS
    # After the flush comes a fetch, which shows the leader that we have caught up.
    ready = role.caught_up and core.log.flushed_offset == core.log.end_offset
    wanted = _wanted(core) if ready and core.endpoints else None
    if wanted is None:
        return
    request, version = wanted
    role.join_ms = now_ms + JOIN_PAUSE_MS + core.random_ms(JOIN_PAUSE_MS)
    to = core.address_of(role.leader_id)
    assert to is not None
    core.send(to, ReplicaKey(role.leader_id), request, version, now_ms)


def _wanted(core: Core) -> tuple[Message, int] | None:
    """What has to be asked of the leader, if anything."""
    me, cluster_id = core.me, core.config.cluster_id
    entry = core.voters.node(me.id)
    if entry is not None and entry.key == me:
        return None if entry.endpoints == core.endpoints else _update(core)
    if not core.config.auto_join or not len(core.voters):
        return None
    if entry is not None:
        remove = RemoveRaftVoterRequest(
            cluster_id=cluster_id,
            voter_id=entry.key.id,
            voter_directory_id=entry.key.directory_id,
        )
        return remove, messages.REMOVE_RAFT_VOTER_VERSION
    add = AddRaftVoterRequest(
        cluster_id=cluster_id,
        timeout_ms=core.request_timeout_ms(),
        voter_id=me.id,
        voter_directory_id=me.directory_id,
        listeners=[AddListener(name=e.name, host=e.host, port=e.port) for e in core.endpoints],
        ack_when_committed=False,
    )
    return add, messages.ADD_RAFT_VOTER_VERSION


def _update(core: Core) -> tuple[Message, int]:
    low, high = KRAFT_VERSIONS
    update = UpdateRaftVoterRequest(
        cluster_id=core.config.cluster_id,
        current_leader_epoch=core.epoch,
        voter_id=core.me.id,
        voter_directory_id=core.me.directory_id,
        listeners=[UpdateListener(name=e.name, host=e.host, port=e.port) for e in core.endpoints],
        k_raft_version_feature=KRaftVersionFeature(
            min_supported_version=low, max_supported_version=high
        ),
    )
    return update, messages.UPDATE_RAFT_VOTER_VERSION
