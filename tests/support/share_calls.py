"""Raw requests of share groups, for what no client library would send."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.wire.messages import share_acknowledge, share_fetch
from penstock.wire.messages.share_acknowledge import ShareAcknowledgeRequest
from penstock.wire.messages.share_fetch import ForgottenTopic, ShareFetchRequest
from penstock.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

from .calls import RawTopic
from .raw import RawClient
from .waiting import eventually

HEARTBEAT = 1
LEAVE = FINAL = -1
JOIN = INITIAL = 0
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
MAX_WAIT_MS = 500
MIB = 1 << 20
# At the start, and while the group has the state of a new topic written.
PASSING = (14, 15, 16)

Acks = Sequence[tuple[int, int, Sequence[int]]]
"""First and last offset, and types of acknowledgement."""


class RawMember:
    """A member of a share group, by one connection and its number of a session."""

    def __init__(
        self, client: RawClient, group: str, topic: RawTopic, member_id: str, version: int = 2
    ) -> None:
        self.client = client
        self.group = group
        self.topic = topic
        self.member_id = member_id
        self.version = version
        self.member_epoch = JOIN
        self.epoch = INITIAL

    # -- membership ----------------------------------------------------------------------------

    def heartbeat(self, member_epoch: int, topics: list[str] | None = None) -> Any:
        request = ShareGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=member_epoch,
            subscribed_topic_names=topics,
        )
        return self.client.call(request, HEARTBEAT)

    def join(self) -> None:
        """Joins, and waits until all partitions of the topic may be fetched."""

        def assigned() -> bool:
            names = None if self.member_epoch else [self.topic.name]
            answer = self.heartbeat(self.member_epoch, names)
            if answer.error_code in PASSING:
                return False
            assert answer.error_code == 0, answer
            self.member_epoch = answer.member_epoch
            given = answer.assignment
            return given is not None and len(given.topic_partitions) > 0

        eventually(assigned)

    def leave(self) -> None:
        assert self.heartbeat(LEAVE).error_code == 0

    # -- requests ------------------------------------------------------------------------------

    def fetch_request(
        self,
        epoch: int,
        acks: Acks = (),
        *,
        topic_id: bytes | None = None,
        partition: int = 0,
        forget: bool = False,
        **fields: Any,
    ) -> ShareFetchRequest:
        named = share_fetch.FetchPartition(
            partition_index=partition,
            acknowledgement_batches=[
                share_fetch.AcknowledgementBatch(
                    first_offset=first, last_offset=last, acknowledge_types=list(types)
                )
                for first, last, types in acks
            ],
        )
        topic_id = self.topic.id if topic_id is None else topic_id
        topic = share_fetch.FetchTopic(topic_id=topic_id, partitions=[named])
        base = {
            "group_id": self.group,
            "member_id": self.member_id,
            "share_session_epoch": epoch,
            "max_wait_ms": MAX_WAIT_MS,
            "min_bytes": 1,
            "max_bytes": MIB,
            "max_records": 500,
            "batch_size": 500,
            "topics": [] if forget else [topic],
        }
        request = ShareFetchRequest(**(base | fields))
        if forget:
            request.forgotten_topics_data = [
                ForgottenTopic(topic_id=topic_id, partitions=[partition])
            ]
        return request

    def acknowledge_request(
        self,
        epoch: int,
        acks: Acks,
        *,
        topic_id: bytes | None = None,
        partition: int = 0,
        **fields: Any,
    ) -> ShareAcknowledgeRequest:
        named = share_acknowledge.AcknowledgePartition(
            partition_index=partition,
            acknowledgement_batches=[
                share_acknowledge.AcknowledgementBatch(
                    first_offset=first, last_offset=last, acknowledge_types=list(types)
                )
                for first, last, types in acks
            ],
        )
        topic_id = self.topic.id if topic_id is None else topic_id
        topic = share_acknowledge.AcknowledgeTopic(topic_id=topic_id, partitions=[named])
        base = {
            "group_id": self.group,
            "member_id": self.member_id,
            "share_session_epoch": epoch,
            "topics": [topic],
        }
        return ShareAcknowledgeRequest(**(base | fields))

    # -- a session that goes on ----------------------------------------------------------------

    def _next(self) -> int:
        epoch, self.epoch = self.epoch, self.epoch + 1
        return epoch

    def fetch(self, acks: Acks = (), **fields: Any) -> Any:
        """What the next fetch of the session has of the partition; None if there is nothing."""
        answer = self.client.call(self.fetch_request(self._next(), acks, **fields), self.version)
        assert answer.error_code == 0, answer
        found = [data for topic in answer.responses for data in topic.partitions]
        assert len(found) <= 1
        return found[0] if found else None

    def acknowledge(self, acks: Acks, **fields: Any) -> int:
        """The error code of the partition."""
        request = self.acknowledge_request(self._next(), acks, **fields)
        answer = self.client.call(request, self.version)
        assert answer.error_code == 0, answer
        [topic] = answer.responses
        [data] = topic.partitions
        return int(data.error_code)

    def take(self, **fields: Any) -> Any:
        """Fetches until there are records; the partition's answer."""

        def found() -> Any:
            data = self.fetch(**fields)
            return data if data is not None and data.acquired_records else None

        return eventually(found)

    def close(self) -> None:
        """Ends the session: what is held is given back."""
        request = self.acknowledge_request(FINAL, ())
        assert self.client.call(request, self.version).error_code == 0


def ranges(data: Any) -> list[tuple[int, int, int]]:
    """What was acquired: first and last offset, delivery count."""
    return [(r.first_offset, r.last_offset, r.delivery_count) for r in data.acquired_records]
