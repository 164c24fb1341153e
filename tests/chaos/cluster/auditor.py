"""Asks the nodes themselves, again and again: offsets of partitions, commits and owners of groups.

A node that a fault has cut off or stopped is not asked for a while (`suspects`): it cannot know yet
that it was replaced, and may say what was true before. Every other node has to be right, one that
has just been started too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from penstock.wire.messages.consumer_protocol import ConsumerProtocolAssignment
from penstock.wire.messages.describe_groups import DescribeGroupsRequest
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from support.raw import Closed, RawClient

from .history import Described, Fetched, Offsets, Partition, Recorder, Stable
from .workload import GROUPS, Client, Plan

EVERY_SECONDS = 0.3
ANSWER_SECONDS_MAX = 2.0
LATEST, EARLIEST = -1, -2
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
LIST_OFFSETS, OFFSET_FETCH, DESCRIBE, CONSUMER_DESCRIBE = 7, 8, 5, 0


class Auditor(Client):
    """One thread with a connection to each node."""

    def __init__(
        self,
        addresses: Mapping[int, tuple[str, int]],
        suspects: Mapping[int, float],
        plan: Plan,
        recorder: Recorder,
        connect: Callable[[str, int, str, float], RawClient] = RawClient,
    ) -> None:
        super().__init__("auditor", recorder)
        self._connect = connect
        self._addresses = dict(addresses)
        self._suspects = suspects
        self._plan = plan
        self._clients: dict[int, RawClient] = {}

    def work(self) -> None:
        while not self.stopping.wait(EVERY_SECONDS):
            for node_id in self._addresses:
                if self.recorder.now() >= self._suspects.get(node_id, 0.0):
                    self._ask(node_id)

    def _ask(self, node_id: int) -> None:
        try:
            client = self._clients.get(node_id)
            if client is None:
                host, port = self._addresses[node_id]
                client = self._connect(host, port, "auditor", ANSWER_SECONDS_MAX)
                self._clients[node_id] = client
            self._ask_offsets(client)
            self._ask_stable(client)
            for group in GROUPS:
                self._ask_commits(client, group)
            self._describe(client)
        except (OSError, Closed):
            # Down, or just going down; the next round tries anew.
            if node_id in self._clients:
                self._clients.pop(node_id).close()

    def _ask_offsets(self, client: RawClient) -> None:
        called = self.recorder.now()
        ends = self._list(client, LATEST)
        starts = self._list(client, EARLIEST)
        now = self.recorder.now()
        for partition, end in ends.items():
            if partition in starts:
                self.recorder.add(Offsets(called, now, partition, starts[partition], end))

    def _ask_stable(self, client: RawClient) -> None:
        called = self.recorder.now()
        targets = self._plan.targets()
        # In this order, since the high watermark may move in between.
        stable = self._list(client, LATEST, targets, READ_COMMITTED)
        ends = self._list(client, LATEST, targets)
        now = self.recorder.now()
        for partition, offset in stable.items():
            if partition in ends:
                self.recorder.add(Stable(called, now, partition, offset, ends[partition]))

    def _list(
        self,
        client: RawClient,
        timestamp: int,
        partitions: list[Partition] | None = None,
        isolation: int = READ_UNCOMMITTED,
    ) -> dict[Partition, int]:
        wanted = self._plan.all() if partitions is None else partitions
        asked = [
            ListOffsetsPartition(partition_index=number, timestamp=timestamp)
            for _, number in wanted
        ]
        topic = ListOffsetsTopic(name=wanted[0][0], partitions=asked)
        request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=[topic])
        answer = client.call(request, LIST_OFFSETS)
        return {
            (of_topic.name, each.partition_index): each.offset
            for of_topic in answer.topics
            for each in of_topic.partitions
            if each.error_code == 0
        }

    def _ask_commits(self, client: RawClient, group: str) -> None:
        topic = OffsetFetchRequestTopics(
            name=self._plan.topic, partition_indexes=list(range(self._plan.partitions))
        )
        asked = OffsetFetchRequestGroup(group_id=group, topics=[topic])
        called = self.recorder.now()
        [answer] = client.call(OffsetFetchRequest(groups=[asked]), OFFSET_FETCH).groups
        now = self.recorder.now()
        if answer.error_code != 0:
            return
        for each in answer.topics[0].partitions:
            if each.error_code == 0:
                partition = (self._plan.topic, each.partition_index)
                self.recorder.add(Fetched(called, now, group, partition, each.committed_offset))

    def _describe(self, client: RawClient) -> None:
        [classic] = client.call(DescribeGroupsRequest(groups=["classic"]), DESCRIBE).groups
        if classic.error_code == 0 and classic.group_state == "Stable":
            owners = [
                (member.member_id, (of_topic.topic, number))
                for member in classic.members
                for of_topic in _assigned(member.member_assignment)
                for number in of_topic.partitions
            ]
            self.recorder.add(Described(self.recorder.now(), "classic", tuple(owners)))
        request = ConsumerGroupDescribeRequest(group_ids=["consumer"])
        [newer] = client.call(request, CONSUMER_DESCRIBE).groups
        if newer.error_code == 0:
            owners = [
                (member.member_id, (of_topic.topic_name, number))
                for member in newer.members
                for of_topic in member.assignment.topic_partitions
                for number in of_topic.partitions
            ]
            self.recorder.add(Described(self.recorder.now(), "consumer", tuple(owners)))


def _assigned(data: bytes) -> list[Any]:
    """What a classic member owns: a version, then the body."""
    if not data:
        return []
    version = int.from_bytes(data[:2], "big")
    return list(ConsumerProtocolAssignment.decode(data[2:], version).assigned_partitions)
