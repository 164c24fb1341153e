"""One replica of the quorum, driven by hand: calls in, effects out, nobody else there."""

from __future__ import annotations

from typing import Any

from penstock.base.ids import METADATA_TOPIC, METADATA_TOPIC_ID
from penstock.raft.effects import Append, Effect, Reply, Send
from penstock.raft.quorum import Quorum
from penstock.raft.state import QuorumState
from penstock.raft.stored import StoredLog
from penstock.raft.types import Endpoint, QuorumConfig, ReplicaKey
from penstock.raft.voters import VoterNode, VoterSet
from penstock.wire.messages import fetch, vote
from penstock.wire.messages.begin_quorum_epoch import (
    BeginQuorumEpochRequest,
    LeaderEndpoint,
)
from penstock.wire.messages.begin_quorum_epoch import (
    RequestPartitionData as BeginPart,
)
from penstock.wire.messages.begin_quorum_epoch import RequestTopicData as BeginTopic
from penstock.wire.schema import Message

CLUSTER = "cluster"
NOW = 1_000_000


class ZeroRng:
    def uuid(self) -> bytes:
        return bytes(16)

    def below(self, n: int) -> int:
        return 0


def key(node_id: int, directory: int = 0) -> ReplicaKey:
    return ReplicaKey(node_id, bytes([directory or node_id]) * 16)


def node(node_id: int) -> VoterNode:
    return VoterNode(key(node_id), (Endpoint("PLAIN", f"h{node_id}", 9092),))


def stored(voters: int, end_offset: int = 3, epoch: int = 1) -> StoredLog:
    """A log of one epoch with `voters` voters."""
    members = VoterSet(node(i) for i in range(1, voters + 1))
    return StoredLog(
        end_offset=end_offset,
        epochs=((epoch, 0),),
        voter_sets=((2, members),),
        versions=((1, 1),),
    )


class Rig:
    """Replica 1 of a cluster; `sent` and `replies` hold what it said last."""

    def __init__(self, log: StoredLog, state: QuorumState | None = None, **config: Any) -> None:
        settings = QuorumConfig(CLUSTER, **config)
        self.quorum = Quorum(
            key(1), settings, log, state, [Endpoint("PLAIN", "h1", 9092)], ZeroRng()
        )
        self.now = NOW
        self.effects: list[Effect] = []
        self.done(self.quorum.start(self.now))

    def done(self, effects: list[Effect]) -> list[Effect]:
        self.effects = effects
        return effects

    @property
    def sent(self) -> list[Send]:
        return [e for e in self.effects if isinstance(e, Send)]

    @property
    def reply(self) -> Any:
        (reply,) = [e for e in self.effects if isinstance(e, Reply)]
        return reply.response

    def kinds(self) -> list[str]:
        return [type(e).__name__ for e in self.effects]

    def wait(self, ms: int) -> list[Effect]:
        self.now += ms
        return self.done(self.quorum.tick(self.now))

    def ask(self, request: Message) -> Any:
        self.done(self.quorum.handle("token", request, self.now))
        return self.reply if any(isinstance(e, Reply) for e in self.effects) else None

    def answer(self, send: Send, response: Message) -> list[Effect]:
        return self.done(self.quorum.on_response(send.token, response, self.now))

    def flush(self) -> list[Effect]:
        return self.done(self.quorum.on_flushed(self.quorum.log_end_offset, self.now))

    def append(self, *values: bytes) -> Append:
        return self.quorum.append(values, self.now)

    # -- peers ---------------------------------------------------------------------------------

    def vote(
        self, node_id: int, epoch: int, end: tuple[int, int], *, pre_vote: bool = False
    ) -> Any:
        """(error, granted) of a Vote request by `node_id` whose log ends at (offset, epoch)."""
        answer = self.ask(vote_request(node_id, epoch, end, pre_vote=pre_vote))
        part = answer.topics[0].partitions[0]
        return part.error_code, part.vote_granted

    def grant(self, *, granted: bool = True) -> None:
        """Every voter that is asked answers alike."""
        for send in self.sent:
            if isinstance(send.request, vote.VoteRequest):
                self.answer(send, vote_response(self.quorum.epoch, granted=granted))

    def elected(self) -> Rig:
        """Lead the next epoch, with the first record flushed here only."""
        self.wait(5_000)
        while not self.quorum.is_leader:
            send = next(s for s in self.sent if isinstance(s.request, vote.VoteRequest))
            self.answer(send, vote_response(self.quorum.epoch, granted=True))
        self.flush()
        return self

    def follows(self, leader_id: int, epoch: int, *endpoints: Endpoint) -> Rig:
        part = BeginPart(
            partition_index=0,
            voter_directory_id=key(1).directory_id,
            leader_id=leader_id,
            leader_epoch=epoch,
        )
        topic = BeginTopic(topic_name=METADATA_TOPIC, partitions=[part])
        told = [LeaderEndpoint(name=e.name, host=e.host, port=e.port) for e in endpoints]
        self.ask(
            BeginQuorumEpochRequest(
                cluster_id=CLUSTER, voter_id=1, topics=[topic], leader_endpoints=told
            )
        )
        return self

    def fetched(self, replica: ReplicaKey, offset: int, epoch: int, **fields: Any) -> Any:
        """The verdict on a fetch by `replica`."""
        request = fetch_request(replica, offset, epoch, self.quorum.epoch, **fields)
        verdict, effects = self.quorum.on_fetch(request, self.now)
        self.done(effects)
        return verdict


def vote_request(
    node_id: int, epoch: int, end: tuple[int, int], *, pre_vote: bool = False
) -> vote.VoteRequest:
    part = vote.RequestPartitionData(
        partition_index=0,
        replica_epoch=epoch,
        replica_id=node_id,
        replica_directory_id=key(node_id).directory_id,
        voter_directory_id=key(1).directory_id,
        last_offset=end[0],
        last_offset_epoch=end[1],
        pre_vote=pre_vote,
    )
    topic = vote.RequestTopicData(topic_name=METADATA_TOPIC, partitions=[part])
    return vote.VoteRequest(cluster_id=CLUSTER, voter_id=1, topics=[topic])


def vote_response(epoch: int, *, granted: bool, leader_id: int = -1) -> vote.VoteResponse:
    part = vote.ResponsePartitionData(
        partition_index=0, leader_id=leader_id, leader_epoch=epoch, vote_granted=granted
    )
    topic = vote.ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[part])
    return vote.VoteResponse(topics=[topic])


def fetch_request(
    replica: ReplicaKey, offset: int, last_epoch: int, leader_epoch: int, **fields: Any
) -> fetch.FetchRequest:
    part = fetch.FetchPartition(
        partition=0,
        current_leader_epoch=leader_epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        replica_directory_id=replica.directory_id,
    )
    topic = fetch.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[part])
    return fetch.FetchRequest(
        cluster_id=fields.get("cluster_id", CLUSTER),
        replica_state=fetch.ReplicaState(replica_id=replica.id),
        topics=[topic],
    )


def fetch_response(epoch: int, leader_id: int, **fields: Any) -> fetch.FetchResponse:
    part = fetch.PartitionData(
        partition_index=0,
        current_leader=fetch.LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=epoch),
        **fields,
    )
    topic = fetch.FetchableTopicResponse(topic_id=METADATA_TOPIC_ID, partitions=[part])
    return fetch.FetchResponse(responses=[topic])
