"""States of share-partitions by raw requests, as nodes ask each other for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.base.ids import Uuid
from penstock.coordinator.share_state.answers import request_of
from penstock.share.types import ShareKey
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.delete_share_group_state import DeleteShareGroupStateRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.initialize_share_group_state import InitializeShareGroupStateRequest
from penstock.wire.messages.read_share_group_state import ReadShareGroupStateRequest
from penstock.wire.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
)
from penstock.wire.messages.write_share_group_state import WriteShareGroupStateRequest
from penstock.wire.schema import Message

from .raw import RawClient
from .waiting import eventually

SHARE, FIND_VERSION = 2, 6
SETTINGS = {
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
VERSIONS: Mapping[type[Message], int] = {
    InitializeShareGroupStateRequest: 0,
    ReadShareGroupStateRequest: 0,
    WriteShareGroupStateRequest: 1,
    DeleteShareGroupStateRequest: 0,
    ReadShareGroupStateSummaryRequest: 1,
}
PASSING = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)


class ShareStates:
    """The share coordinator of one broker."""

    def __init__(self, client: RawClient) -> None:
        self._client = client
        self._ready = False

    def make_topics(self, names: str, partitions: int) -> dict[str, Uuid]:
        """Topics by the letters of `names`; their ids."""
        topics = [
            CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
            for name in names
        ]
        made = self._client.call(CreateTopicsRequest(topics=topics), 7).topics
        assert [topic.error_code for topic in made] == [0] * len(names), made
        return {topic.name: topic.topic_id for topic in made}

    def ask(self, kind: type[Message], key: ShareKey, named: Any) -> Any:
        """The result for one share-partition, when the coordinator is there."""
        named.partition = key.partition
        request = request_of(kind, key.group_id, {key.topic_id: [named]})
        if not self._ready:
            find = FindCoordinatorRequest(key_type=SHARE, coordinator_keys=[key.text])
            eventually(lambda: self._found(find))
            self._ready = True
        return eventually(lambda: self._result(request))

    def _found(self, find: FindCoordinatorRequest) -> bool:
        [found] = self._client.call(find, FIND_VERSION).coordinators
        return bool(found.error_code == 0)

    def _result(self, request: Message) -> Any:
        answer = self._client.call(request, VERSIONS[type(request)])
        [topic] = answer.results
        [result] = topic.partitions
        return None if result.error_code in PASSING else result
