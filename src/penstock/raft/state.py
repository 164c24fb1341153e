"""The quorum-state file: this node's epoch, and its leader or vote in it.

It is written in Kafka's JSON form (data_version 1; 0 is read as well) and must be on disk before
the node acts on it: a voter that forgot its epoch could vote twice, or lead twice in the same one.
Within an epoch the leader and the vote are each set once and never change.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from penstock.base.errors import StorageError
from penstock.base.ids import ZERO_UUID, Uuid, parse_uuid, uuid_text
from penstock.raft.types import NO_NODE, ReplicaKey

FILE_NAME = "quorum-state"
_VERSIONS = (0, 1)


class QuorumState(NamedTuple):
    """Epoch 0 with no leader is where a new node begins."""

    leader_epoch: int = 0
    leader_id: int = NO_NODE
    voted_id: int = NO_NODE
    voted_directory_id: Uuid = ZERO_UUID

    @property
    def voted(self) -> ReplicaKey | None:
        if self.voted_id == NO_NODE:
            return None
        return ReplicaKey(self.voted_id, self.voted_directory_id)

    def to_json(self) -> str:
        return json.dumps(
            {
                "leaderId": self.leader_id,
                "leaderEpoch": self.leader_epoch,
                "votedId": self.voted_id,
                "votedDirectoryId": uuid_text(self.voted_directory_id),
                "data_version": 1,
            },
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, text: str) -> QuorumState:
        """The state in a file's text; `StorageError` when it is of no version we know."""
        try:
            fields = json.loads(text)
            if fields["data_version"] not in _VERSIONS:
                raise ValueError(f"data_version {fields['data_version']} is not known")
            return cls(
                int(fields["leaderEpoch"]),
                int(fields["leaderId"]),
                int(fields["votedId"]),
                parse_uuid(fields["votedDirectoryId"]) if fields["data_version"] else ZERO_UUID,
            )
        except (ValueError, KeyError, TypeError) as e:
            raise StorageError(
                f"the {FILE_NAME} file is not readable ({e}); restore it, or start this node "
                "with an empty data folder"
            ) from e
