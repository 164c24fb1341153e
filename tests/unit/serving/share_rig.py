"""Members of share groups as raw requests to a node in the test's process."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from penstock.share.types import ShareKey
from penstock.wire.messages import share_acknowledge, share_fetch
from penstock.wire.messages.share_acknowledge import ShareAcknowledgeRequest
from penstock.wire.messages.share_fetch import ShareFetchRequest
from support.calls import RawTopic
from unit.serving.rig import Peer, Rig

GROUP = "group"
VERSION = 2
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
SETTINGS = {
    "share_coordinator_state_topic_num_partitions": "2",
    "share_coordinator_state_topic_replication_factor": "1",
    "share_coordinator_state_topic_min_isr": "1",
}
Ack = tuple[int, int, Sequence[int] | int]
"""First offset, last offset, and one type for all of them or one for each."""


async def begin_group(
    rig: Rig, topic: RawTopic, partitions: Iterable[int] = (0,), *, start: int = 0
) -> None:
    """What the group's coordinator does when members subscribe: the group begins at `start`."""
    places = {(topic.id, index): (0, start) for index in partitions}
    codes = await rig.broker.persister.initialize(GROUP, places)
    assert not any(codes.values()), codes


class ShareMember:
    """A member with a share session over one connection."""

    def __init__(self, peer: Peer, topic: RawTopic, name: str = "member") -> None:
        self.peer = peer
        self.topic = topic
        self.name = name
        self.epoch = 0

    def request(
        self,
        partitions: Iterable[int] = (),
        acks: dict[int, list[Ack]] | None = None,
        **how: Any,
    ) -> ShareFetchRequest:
        """The next one of the session; it names `partitions` and those that it acknowledges."""
        acks = acks or {}
        named = [
            share_fetch.FetchPartition(
                partition_index=index,
                acknowledgement_batches=[
                    share_fetch.AcknowledgementBatch(
                        first_offset=first, last_offset=last, acknowledge_types=_types(types)
                    )
                    for first, last, types in acks.get(index, [])
                ],
            )
            for index in dict.fromkeys([*partitions, *acks])
        ]
        topics = [share_fetch.FetchTopic(topic_id=self.topic.id, partitions=named)] if named else []
        fields: dict[str, Any] = {
            "group_id": GROUP,
            "member_id": self.name,
            "share_session_epoch": self.epoch,
            "max_wait_ms": 60_000,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
            "topics": topics,
        }
        self.epoch += 1
        return ShareFetchRequest(**(fields | how))

    async def fetch(
        self,
        partitions: Iterable[int] = (0,),
        acks: dict[int, list[Ack]] | None = None,
        version: int = VERSION,
        **how: Any,
    ) -> Any:
        return await self.peer.call(self.request(partitions, acks, **how), version)

    async def taken(self, **how: Any) -> list[tuple[int, int, int]]:
        """What it acquires of partition 0."""
        return acquired(await self.fetch(**how))

    async def acknowledge(
        self, *acks: Ack, partition: int = 0, version: int = VERSION, **how: Any
    ) -> Any:
        """Acknowledge records of one partition; the whole answer."""
        batches = [
            share_acknowledge.AcknowledgementBatch(
                first_offset=first, last_offset=last, acknowledge_types=_types(types)
            )
            for first, last, types in acks
        ]
        named = share_acknowledge.AcknowledgePartition(
            partition_index=partition, acknowledgement_batches=batches
        )
        topic = share_acknowledge.AcknowledgeTopic(topic_id=self.topic.id, partitions=[named])
        fields: dict[str, Any] = {
            "group_id": GROUP,
            "member_id": self.name,
            "share_session_epoch": self.epoch,
            "topics": [topic] if acks else [],
        }
        self.epoch += 1
        return await self.peer.call(ShareAcknowledgeRequest(**(fields | how)), version)

    async def said(self, *acks: Ack, **how: Any) -> int:
        """The error code of the partition that was acknowledged."""
        answer = await self.acknowledge(*acks, **how)
        assert answer.error_code == 0
        [topic] = answer.responses
        [partition] = topic.partitions
        return int(partition.error_code)


def _types(types: Sequence[int] | int) -> list[int]:
    return [types] if isinstance(types, int) else list(types)


def partitions_of(answer: Any) -> dict[int, Any]:
    assert answer.error_code == 0
    return {p.partition_index: p for topic in answer.responses for p in topic.partitions}


def acquired(answer: Any, partition: int = 0) -> list[tuple[int, int, int]]:
    found = partitions_of(answer).get(partition)
    if found is None:
        return []
    assert found.error_code == 0
    return [(a.first_offset, a.last_offset, a.delivery_count) for a in found.acquired_records]


async def persisted(rig: Rig, topic: RawTopic, index: int = 0) -> tuple[int, list[tuple[int, ...]]]:
    """The start offset and the batches that the coordinator has."""
    key = ShareKey(GROUP, topic.id, index)
    epoch = rig.broker.replicas.leader_of(topic.name, index).leader_epoch
    state = await rig.broker.persister.read(key, epoch)
    return state.start_offset, [tuple(batch[:4]) for batch in state.batches]
