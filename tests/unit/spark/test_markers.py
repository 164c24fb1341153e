"""What the answer of a group's coordinator says of the marker of a task."""

from __future__ import annotations

from typing import Any, cast

import pytest

from penstock.base.errors import ErrorCode
from penstock.kafka.brokers import Brokers
from penstock.kafka.errors import ClusterError
from penstock.spark.transactions import Marker, Written, read_marker
from penstock.wire.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

METADATA = '{"rows": 2, "bytes": 4}'


def marker_in(*topics: OffsetFetchResponseTopic, error_code: int = 0) -> Marker | None:
    class Answering:
        def ask_coordinator(self, *_: Any) -> OffsetFetchResponse:
            return OffsetFetchResponse(topics=list(topics), error_code=error_code)

    return read_marker(cast(Brokers, Answering()), "q-0")


def offset_of(
    topic: str, offset: int, error: ErrorCode = ErrorCode.NONE
) -> OffsetFetchResponseTopic:
    partition = OffsetFetchResponsePartition(
        partition_index=0, committed_offset=offset, metadata=METADATA, error_code=error
    )
    return OffsetFetchResponseTopic(name=topic, partitions=[partition])


def test_the_youngest_marker_counts_whichever_topic_it_lies_by() -> None:
    assert marker_in() is None
    assert marker_in(offset_of("a", -1)) is None
    assert marker_in(offset_of("a", 6), offset_of("b", 5)) == Marker(6, Written(2, 4))


def test_a_marker_that_cannot_be_read_is_not_taken_for_none() -> None:
    for error in (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.TOPIC_AUTHORIZATION_FAILED):
        with pytest.raises(ClusterError, match=error.name):
            marker_in(offset_of("a", -1, error))
        with pytest.raises(ClusterError, match=error.name):
            marker_in(error_code=error)
