"""The answers to ShareFetch and ShareAcknowledge, put together from what was found and what became
of the acknowledgements. Owned by the event loop's thread.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

from penstock.base.errors import ApiError
from penstock.base.ids import Uuid
from penstock.serving.leader_hints import LeaderHints
from penstock.serving.share_acks import Acknowledging, Place
from penstock.serving.share_in_flight import Given, ShareFetchInFlight
from penstock.serving.share_partitions import SharePartitions
from penstock.wire.messages import share_acknowledge, share_fetch
from penstock.wire.messages.share_acknowledge import (
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from penstock.wire.messages.share_fetch import ShareFetchableTopicResponse, ShareFetchResponse


class ShareAcknowledged(NamedTuple):
    response: ShareAcknowledgeResponse
    leaders: set[int]
    """The new leaders of partitions that are not led here any more."""


class ShareAnswers:
    def __init__(self, hints: LeaderHints, partitions: SharePartitions) -> None:
        self._hints = hints
        self._partitions = partitions

    def fetch(self, flight: ShareFetchInFlight, *, is_first: bool) -> None:
        """Make the response of a fetch. The first of a session names all that was looked at, later
        ones what has changed.
        """
        session = flight.session
        answers: dict[Place, share_fetch.PartitionData] = {}
        for place, given in flight.found.items():
            is_shown = session.must_answer(
                place, records=len(given.records) > 0, error=given.error is not None
            )
            if is_shown or is_first:
                answers[place] = self._fetched(flight, place, given)
        for place, refusal in flight.acks.answers.items():
            data = answers.get(place)
            if data is None:
                data = share_fetch.PartitionData(partition_index=place[1], records=b"")
                answers[place] = data
            if refusal is not None:
                data.acknowledge_error_code = refusal.code
                data.acknowledge_error_message = refusal.message or None
        topics: dict[Uuid, ShareFetchableTopicResponse] = {}
        for (topic_id, _), data in answers.items():
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = ShareFetchableTopicResponse(topic_id=topic_id)
            topic.partitions.append(data)
        flight.response = ShareFetchResponse(
            throttle_time_ms=flight.throttle_ms,
            acquisition_lock_timeout_ms=self._lock_ms(session.key.group_id),
            responses=list(topics.values()),
        )

    def _fetched(
        self, flight: ShareFetchInFlight, place: Place, given: Given
    ) -> share_fetch.PartitionData:
        records = cast(bytes, given.records)  # a view of them is as good
        data = share_fetch.PartitionData(partition_index=place[1], records=records)
        data.acquired_records = [
            share_fetch.AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
            for first, last, count in given.acquired
        ]
        if given.error is not None:
            self._refuse(data, place, given.error, flight.leaders)
        return data

    def acknowledged(self, group_id: str, acks: Acknowledging) -> ShareAcknowledged:
        leaders: set[int] = set()
        topics: dict[Uuid, ShareAcknowledgeTopicResponse] = {}
        for place, refusal in acks.answers.items():
            topic_id, index = place
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = ShareAcknowledgeTopicResponse(topic_id=topic_id)
            data = share_acknowledge.PartitionData(partition_index=index)
            if refusal is not None:
                self._refuse(data, place, refusal, leaders)
            topic.partitions.append(data)
        response = ShareAcknowledgeResponse(
            acquisition_lock_timeout_ms=self._lock_ms(group_id), responses=list(topics.values())
        )
        return ShareAcknowledged(response, leaders)

    def _refuse(self, data: Any, place: Place, error: ApiError, leaders: set[int]) -> None:
        data.error_code = error.code
        data.error_message = error.message or None
        leader = self._hints.leader(error.code, *place)
        if leader is not None:
            data.current_leader.leader_id, data.current_leader.leader_epoch = leader
            leaders.add(leader[0])

    def _lock_ms(self, group_id: str) -> int:
        return self._partitions.config(group_id).share_record_lock_duration_ms
