from __future__ import annotations

import json

import pytest

from penstock.base.errors import StorageError
from penstock.raft.state import QuorumState


def test_the_file_has_kafkas_form() -> None:
    state = QuorumState(7, 2, 3, bytes(15) + b"\x01")
    assert json.loads(state.to_json()) == {
        "leaderId": 2,
        "leaderEpoch": 7,
        "votedId": 3,
        "votedDirectoryId": "AAAAAAAAAAAAAAAAAAAAAQ",
        "data_version": 1,
    }
    assert QuorumState.from_json(state.to_json()) == state


def test_a_file_of_the_older_form_is_read() -> None:
    text = (
        '{"clusterId":"","leaderId":3,"leaderEpoch":7,"votedId":-1,"appliedOffset":0,'
        '"currentVoters":[{"voterId":3}],"data_version":0}'
    )
    assert QuorumState.from_json(text) == QuorumState(7, 3)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"data_version":1}', '{"data_version":0}', '{"data_version":2}']
)
def test_a_file_that_cannot_be_read_says_what_to_do(text: str) -> None:
    with pytest.raises(StorageError, match="restore it"):
        QuorumState.from_json(text)
