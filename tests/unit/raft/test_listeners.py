"""By which listener a replica reaches others, and which address it tells those who ask."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from penstock.raft.control_records import voters_record
from penstock.raft.effects import Reply
from penstock.raft.state import QuorumState
from penstock.raft.stored import StoredLog
from penstock.raft.types import Endpoint
from penstock.raft.voters import VoterNode, VoterSet
from penstock.wire.messages import fetch, update_raft_voter, vote
from penstock.wire.messages.update_raft_voter import UpdateRaftVoterRequest
from penstock.wire.records import build_batch
from unit.raft.rig import NOW, Rig, fetch_response, key, vote_request, vote_response
from unit.raft.test_leading import committed, update

BOTH = ("SAFE", "PLAIN")
PORTS = {"PLAIN": 9092, "SAFE": 9093}


def voter(node_id: int, *names: str) -> VoterNode:
    return VoterNode(key(node_id), endpoints(node_id, *names))


def endpoints(node_id: int, *names: str) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(name, f"h{node_id}", PORTS[name]) for name in names)


def log_with(*voters: VoterNode) -> StoredLog:
    return StoredLog(
        end_offset=3, epochs=((1, 0),), voter_sets=((2, VoterSet(voters)),), versions=((1, 1),)
    )


def rig_with(second: tuple[str, ...], third: tuple[str, ...] = ("PLAIN",), **config: Any) -> Rig:
    log = log_with(voter(1, "PLAIN"), voter(2, *second), voter(3, *third))
    return Rig(log, **({"listeners": BOTH} | config))


def asked_for_votes(rig: Rig) -> dict[int, tuple[str, int, str]]:
    rig.wait(5_000)
    return {
        send.to.node_id: send.to[1:]
        for send in rig.sent
        if isinstance(send.request, vote.VoteRequest)
    }


def test_each_is_reached_by_the_first_listener_that_it_offers() -> None:
    assert asked_for_votes(rig_with(("PLAIN", "SAFE"))) == {
        2: ("h2", 9093, "SAFE"),
        3: ("h3", 9092, "PLAIN"),
    }
    assert asked_for_votes(rig_with(("SAFE", "PLAIN"), listeners=("PLAIN", "SAFE"))) == {
        2: ("h2", 9092, "PLAIN"),
        3: ("h3", 9092, "PLAIN"),
    }


def test_what_this_replica_has_closed_it_does_not_speak() -> None:
    """A voter that offers nothing else is called where the settings list it, or not at all."""
    assert asked_for_votes(rig_with(("SAFE",), listeners=("SAFE",))).keys() == {2}
    listed = rig_with(("SAFE",), listeners=("SAFE",), listed=((2, "x", 1), (3, "s3", 9095)))
    assert asked_for_votes(listed) == {2: ("h2", 9093, "SAFE"), 3: ("s3", 9095, "SAFE")}


def test_a_leader_that_begins_to_offer_the_right_listener_is_reached_by_it() -> None:
    log = log_with(voter(1, "PLAIN"), voter(2, "PLAIN"), voter(3, "PLAIN"))
    rig = Rig(log, QuorumState(4, leader_id=2), listeners=BOTH)
    assert rig.sent[0].to == (2, "h2", 9092, "PLAIN")
    moved = VoterSet([voter(1, "PLAIN"), voter(2, "PLAIN", "SAFE"), voter(3, "PLAIN")])
    records = build_batch(
        [voters_record(moved, NOW)], base_offset=3, partition_leader_epoch=4, control=True
    )
    rig.answer(rig.sent[0], fetch_response(4, 2, high_watermark=3, records=records))
    rig.flush()
    assert rig.sent[0].to == (2, "h2", 9093, "SAFE")


def test_the_word_of_the_leader_counts_above_older_records() -> None:
    """It has gone back to the plain listener, and this replica has not heard of that yet."""
    rig = rig_with(("PLAIN", "SAFE"))
    rig.follows(2, 4, *endpoints(2, "PLAIN"))
    assert rig.sent[0].to == (2, "h2", 9092, "PLAIN")
    rig.done(rig.quorum.on_failed(rig.sent[0].token, rig.now))
    rig.wait(3_000)
    assert rig.quorum.role == "Prospective"
    for send in rig.sent:
        rig.answer(send, vote_response(4, granted=False))
    assert rig.quorum.leader_address == (2, "h2", 9092, "PLAIN"), "after a pre-vote that failed"
    rig.follows(2, 5, *endpoints(2, "PLAIN", "SAFE"))
    assert rig.quorum.leader_address == (2, "h2", 9093, "SAFE")


def test_what_is_told_by_another_listener_does_not_lead_back_to_it() -> None:
    rig = rig_with(("PLAIN", "SAFE"))
    rig.follows(2, 4, *endpoints(2, "PLAIN", "SAFE"))
    assert rig.sent[0].to.listener == "SAFE"
    answer = fetch_response(4, 2, high_watermark=3)
    answer.node_endpoints = [fetch.NodeEndpoint(node_id=2, host="h2", port=9092)]
    sent = rig.sent[0]
    rig.quorum._core.in_flight[sent.token] = rig.quorum._core.in_flight[sent.token]._replace(
        to=sent.to._replace(port=9092, listener="PLAIN")
    )
    rig.answer(sent, answer)
    assert rig.sent[0].to == (2, "h2", 9093, "SAFE")


@pytest.mark.parametrize(
    ("listener", "told"), [("PLAIN", 9092), ("SAFE", 9093), ("OTHER", None), ("", 9093)]
)
def test_who_asks_is_told_the_leader_by_the_listener_of_the_question(
    listener: str, told: int | None
) -> None:
    rig = rig_with(("PLAIN", "SAFE"))
    rig.follows(2, 4, *endpoints(2, "PLAIN", "SAFE"))
    request = vote_request(3, 4, (3, 1))
    effects = rig.quorum.handle("token", request, rig.now, listener)
    [reply] = [effect for effect in effects if isinstance(effect, Reply)]
    response: Any = reply.response
    assert response.topics[0].partitions[0].leader_id == 2
    assert [e.port for e in response.node_endpoints] == ([] if told is None else [told])


def test_a_voter_has_to_offer_a_listener_by_which_the_leader_can_reach_it() -> None:
    def listening(*names: str) -> UpdateRaftVoterRequest:
        offered = [
            update_raft_voter.Listener(name=name, host="h2", port=PORTS[name]) for name in names
        ]
        request: UpdateRaftVoterRequest = update(key(2), 1, listeners=offered)
        return request

    listed = tuple((i, f"h{i}", PORTS["SAFE"]) for i in (2, 3))
    rig = committed(listeners=("SAFE",), listed=listed)
    assert rig.ask(listening("PLAIN")).error_code == ErrorCode.INVALID_REQUEST
    rig = committed(listeners=("SAFE", "PLAIN"))
    assert rig.ask(listening("PLAIN", "SAFE")) is None, "it waits until the change is committed"
    assert rig.quorum.voters.node(2) == voter(2, "PLAIN", "SAFE")._replace(kraft_versions=(0, 1))
