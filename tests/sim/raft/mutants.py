"""The core with one rule taken out: the simulation has to notice.

Each mutant is a list of (where, name, what takes its place), in force while the simulation runs.
"""

from __future__ import annotations

from typing import Any

from penstock.base.errors import ErrorCode
from penstock.raft import changes, elections, fetching, quorum
from penstock.raft.core import Core
from penstock.raft.epochs import LogMirror
from penstock.raft.leader import progress_of
from penstock.raft.states import Leader
from penstock.raft.types import ReplicaKey
from penstock.raft.voters import History, VoterSet

Patch = tuple[Any, str, Any]


def _advance_over_any_epoch(core: Core, role: Leader) -> bool:
    ends = [
        core.log.flushed_offset if key == core.me else progress_of(role, key, 0).end_offset
        for key in core.voters.keys
    ]
    return core.commit(sorted(ends, reverse=True)[core.voters.majority - 1])


def _advance_at_flush(core: Core, role: Leader) -> bool:
    return core.log.flushed_offset > role.start_offset and core.commit(core.log.flushed_offset)


def _everywhere(name: str, value: Any) -> list[Patch]:
    return [(module, name, value) for module in (changes, fetching, quorum)]


def _vote_again(core: Core, key: ReplicaKey, *, complete: bool, now_ms: int) -> bool:
    return complete


def _forget(core: Core, election: Any) -> None:
    core.election = election


def _change_at_once(core: Core, cluster_id: Any, epoch: Any = None) -> Leader:
    if not isinstance(core.role, Leader):
        raise changes.Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "")
    return core.role


MUTANTS: dict[str, list[Patch]] = {
    "commits entries of an older epoch": _everywhere("advance", _advance_over_any_epoch),
    "commits what only the leader has": _everywhere("advance", _advance_at_flush),
    "votes twice": [(elections, "_vote_for", _vote_again)],
    "votes for incomplete logs": [(LogMirror, "up_to_date", lambda *_: True)],
    "forgets its vote": [(Core, "elect", _forget)],
    "changes voters without waiting": [(changes, "_may_change", _change_at_once)],
    "keeps truncated voters": [(History, "truncate", lambda *_: False)],
    "overlooks divergence": [(LogMirror, "divergence", lambda *_: None)],
    "half is a majority": [(VoterSet, "majority", property(lambda s: max(len(s) // 2, 1)))],
}
