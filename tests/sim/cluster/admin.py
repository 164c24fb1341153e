"""Changes of the cluster that an operator makes while faults come and go.

Any refusal is in order but UNKNOWN_SERVER_ERROR; what was accepted shows in what the other checks
see: replicas move, leaders change, voters go and come back.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.base.ids import METADATA_TOPIC
from penstock.peers.errors import PeerError
from penstock.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    RequestPartitionData,
    RequestTopicData,
)
from penstock.wire.messages.elect_leaders import ElectLeadersRequest
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from penstock.wire.schema import Message

from .checks import holds
from .cluster import World
from .wire import Wire

TOPIC_RESOURCE = 2
SET = 0


class Admin:
    def __init__(
        self, world: World, wire: Wire, rng: random.Random, topic: str, partitions: int
    ) -> None:
        self.world = world
        self.wire = wire
        self.rng = rng
        self.topic, self.partitions = topic, partitions
        self.add_node: Callable[[], None] | None = None
        """Adds a machine to the cluster; once."""
        self._made = 0
        self._extra: list[str] = []

    async def act(self) -> None:
        """Do one thing."""
        acts: list[Callable[[], Awaitable[str]]] = [
            self._reassign,
            self._reassign,
            self._elect,
            self._configure,
            self._create,
            self._delete,
            self._remove_voter,
            self._grow,
        ]
        act = self.rng.choice(acts)
        try:
            told = await act()
        except PeerError as e:
            told = str(e)
        self.world.trace.say("admin", f"{act.__name__.strip('_')}: {told}")

    async def _call(self, request: Message) -> Any:
        return await self.wire.call_any(request)

    async def _reassign(self) -> str:
        """Also to fewer nodes than before: then a replica leaves, and another change brings it
        back.
        """
        nodes = list(self.world.machines)
        self.rng.shuffle(nodes)
        index = self.rng.randrange(self.partitions)
        return await self.reassign(self.topic, index, nodes[: self.rng.choice((2, 3, 3))])

    async def reassign(self, topic: str, index: int, nodes: list[int]) -> str:
        wanted = ReassignablePartition(partition_index=index, replicas=nodes)
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=5_000, topics=[ReassignableTopic(name=topic, partitions=[wanted])]
        )
        answer = await self._call(request)
        codes = [p.error_code for t in answer.responses for p in t.partitions]
        return f"{topic}-{index} to {nodes}: {_names([answer.error_code, *codes])}"

    async def _elect(self) -> str:
        answer = await self._call(
            ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=5_000)
        )
        codes = [p.error_code for t in answer.replica_election_results for p in t.partition_result]
        return _names([answer.error_code, *codes])

    async def _configure(self) -> str:
        value = str(self.rng.choice((1_000, 5_000, 60_000)))
        config = AlterableConfig(name="segment.ms", config_operation=SET, value=value)
        resource = AlterConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=self.topic, configs=[config]
        )
        answer = await self._call(IncrementalAlterConfigsRequest(resources=[resource]))
        return _names([r.error_code for r in answer.responses])

    async def _create(self) -> str:
        self._made += 1
        name = f"extra-{self._made}"
        told = await self.create(name, 3)
        self._extra.append(name)
        return told

    async def create(self, name: str, partitions: int) -> str:
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=3)
        answer = await self._call(CreateTopicsRequest(topics=[topic], timeout_ms=5_000))
        return f"{name}: {_names([t.error_code for t in answer.topics])}"

    async def _delete(self) -> str:
        if not self._extra:
            return await self._create()
        return await self.delete(self._extra.pop())

    async def delete(self, name: str) -> str:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=5_000)
        answer = await self._call(request)
        return f"{name}: {_names([t.error_code for t in answer.responses])}"

    async def _remove_voter(self) -> str:
        """Take a voter out; being one of the first voters, it asks to be let in again."""
        partition = RequestPartitionData(partition_index=0)
        topic = RequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
        answer = await self._call(DescribeQuorumRequest(topics=[topic]))
        if answer.error_code or not answer.topics or answer.topics[0].partitions[0].error_code:
            return "no quorum is told"
        voters = answer.topics[0].partitions[0].current_voters
        if len(voters) < 3:
            return f"{len(voters)} voters are few enough"
        voter = self.rng.choice(voters)
        request = RemoveRaftVoterRequest(
            cluster_id=None,
            voter_id=voter.replica_id,
            voter_directory_id=voter.replica_directory_id,
        )
        return f"n{voter.replica_id}: {_names([(await self._call(request)).error_code])}"

    async def _grow(self) -> str:
        if self.add_node is None:
            return await self._reassign()
        add, self.add_node = self.add_node, None
        add()
        return "a node comes"


def _names(codes: list[int]) -> str:
    names = sorted({ErrorCode(code).name for code in codes})
    holds("UNKNOWN_SERVER_ERROR" not in names, f"an administrative request got {names}")
    return ", ".join(names)
