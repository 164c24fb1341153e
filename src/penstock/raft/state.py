"""The quorum-state file: which epoch this node is in and whom it follows or voted for.

It is written in Kafka's JSON form and must be on disk before the node acts on it: a voter that
forgot its epoch could vote twice, or lead twice in the same one.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from penstock.base.errors import StorageError

FILE_NAME = "quorum-state"
NO_NODE = -1


class QuorumState(NamedTuple):
    """Epoch 0 with no leader is where a new node begins."""

    leader_epoch: int = 0
    leader_id: int = NO_NODE
    voted_id: int = NO_NODE
    voters: tuple[int, ...] = ()

    def to_json(self) -> str:
        return json.dumps(
            {
                "clusterId": "",
                "leaderId": self.leader_id,
                "leaderEpoch": self.leader_epoch,
                "votedId": self.voted_id,
                "appliedOffset": 0,
                "currentVoters": [{"voterId": voter} for voter in self.voters],
                "data_version": 0,
            },
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, text: str) -> QuorumState:
        """The state in a file's text; `StorageError` when it is not one of version 0."""
        try:
            fields = json.loads(text)
            if fields["data_version"] != 0:
                raise ValueError(f"data_version {fields['data_version']} is not known")
            return cls(
                int(fields["leaderEpoch"]),
                int(fields["leaderId"]),
                int(fields["votedId"]),
                tuple(int(voter["voterId"]) for voter in fields["currentVoters"] or ()),
            )
        except (ValueError, KeyError, TypeError) as e:
            raise StorageError(
                f"the {FILE_NAME} file is not readable ({e}); restore it, or start this node "
                "with an empty data folder"
            ) from e
