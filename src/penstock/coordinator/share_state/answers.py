"""Answers to the five requests about share-partitions: one result for each that was named.

The requests and their answers have one shape and differ in their classes, which `_SHAPES` lists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from penstock.base.errors import ErrorCode
from penstock.base.ids import Uuid
from penstock.wire.messages import delete_share_group_state as delete
from penstock.wire.messages import initialize_share_group_state as initialize
from penstock.wire.messages import read_share_group_state as read
from penstock.wire.messages import read_share_group_state_summary as summary
from penstock.wire.messages import write_share_group_state as write
from penstock.wire.schema import Message


class _Shape(NamedTuple):
    request: Callable[..., Message]
    topic: Callable[..., Any]
    response: Callable[..., Message]
    result: Callable[..., Any]
    partition: Callable[..., Any]


_SHAPES: Final[Mapping[type[Message], _Shape]] = {
    initialize.InitializeShareGroupStateRequest: _Shape(
        initialize.InitializeShareGroupStateRequest,
        initialize.InitializeStateData,
        initialize.InitializeShareGroupStateResponse,
        initialize.InitializeStateResult,
        initialize.PartitionResult,
    ),
    read.ReadShareGroupStateRequest: _Shape(
        read.ReadShareGroupStateRequest,
        read.ReadStateData,
        read.ReadShareGroupStateResponse,
        read.ReadStateResult,
        read.PartitionResult,
    ),
    write.WriteShareGroupStateRequest: _Shape(
        write.WriteShareGroupStateRequest,
        write.WriteStateData,
        write.WriteShareGroupStateResponse,
        write.WriteStateResult,
        write.PartitionResult,
    ),
    delete.DeleteShareGroupStateRequest: _Shape(
        delete.DeleteShareGroupStateRequest,
        delete.DeleteStateData,
        delete.DeleteShareGroupStateResponse,
        delete.DeleteStateResult,
        delete.PartitionResult,
    ),
    summary.ReadShareGroupStateSummaryRequest: _Shape(
        summary.ReadShareGroupStateSummaryRequest,
        summary.ReadStateSummaryData,
        summary.ReadShareGroupStateSummaryResponse,
        summary.ReadStateSummaryResult,
        summary.PartitionResult,
    ),
}


def request_of(kind: type[Message], group_id: str, partitions: Mapping[Uuid, list[Any]]) -> Message:
    """A request about `partitions`, the elements of its topics."""
    shape = _SHAPES[kind]
    topics = [shape.topic(topic_id=id_, partitions=found) for id_, found in partitions.items()]
    return shape.request(group_id=group_id, topics=topics)


def answer(request: Any, result_of: Callable[[Uuid, Any], Any]) -> Message:
    """`result_of` gives the result for each partition that the request names."""
    shape = _SHAPES[type(request)]
    return shape.response(
        results=[
            shape.result(
                topic_id=topic.topic_id,
                partitions=[result_of(topic.topic_id, named) for named in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def nothing(request: Message) -> Message:
    """The answer to a request that names nothing."""
    return _SHAPES[type(request)].response(results=[])


def result(request: type[Message], partition: int, **found: Any) -> Any:
    return _SHAPES[request].partition(partition=partition, **found)


def refused(request: type[Message], partition: int, code: ErrorCode, why: str) -> Any:
    """The result that says `code`."""
    return _SHAPES[request].partition(partition=partition, error_code=code, error_message=why)


def refuse(request: Message, _version: int, code: ErrorCode) -> Message:
    """The answer that says `code` of every partition."""
    why = WHY.get(code, code.name)
    return answer(request, lambda _, named: refused(type(request), named.partition, code, why))


WHY: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.NOT_COORDINATOR: "another node keeps the state of this share-partition",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "the share coordinator cannot write at the moment",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "the share coordinator is being loaded",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "only nodes may keep states of share-partitions",
}
