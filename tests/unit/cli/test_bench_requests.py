"""The raw load's frames are requests that decode, and their patched places are the right ones."""

from __future__ import annotations

import pytest

from penstock.cli.bench.report import Load, percentiles, throughput
from penstock.cli.bench.requests import (
    FETCH_VERSION,
    PRODUCE_VERSION,
    FetchFrame,
    check_produce_response,
    count_records,
    first_error_at,
    message_batch,
    patch_correlation_id,
    produce_frame,
)
from penstock.cli.errors import CliError
from penstock.wire.messages.fetch import FetchRequest
from penstock.wire.messages.header import RequestHeader, ResponseHeader
from penstock.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from penstock.wire.record_batch import check_batch
from penstock.wire.records import read_records


@pytest.mark.parametrize("batch_bytes", [0, 500, 16_384, 1_048_576])
def test_batches_fill_but_do_not_exceed_their_size(batch_bytes: int) -> None:
    batch, count = message_batch(100, batch_bytes)
    assert check_batch(batch).record_count == count
    assert [len(record.value or b"") for record in read_records(batch)] == [100] * count
    if batch_bytes:
        assert batch_bytes * 0.99 - 120 < len(batch) <= batch_bytes
    else:
        assert count == 1


def test_a_produce_frame_decodes() -> None:
    batch, _ = message_batch(10, 0)
    request = produce_frame("t", [0, 1], batch, -1)
    patch_correlation_id(request, 77)
    assert int.from_bytes(request[:4], "big") == len(request) - 4
    header, pos = RequestHeader.decode_from(request, 4, 2)
    assert header.correlation_id == 77
    body, end = ProduceRequest.decode_from(request, pos, PRODUCE_VERSION)
    assert end == len(request)
    assert [bytes(p.records or b"") for p in body.topic_data[0].partition_data] == [batch, batch]


def test_a_fetch_frame_asks_for_the_patched_offset() -> None:
    frame = FetchFrame("t", 3, 1000, 50)
    for offset in (0, 2**40):
        request = frame.at(offset, 5)
        header, pos = RequestHeader.decode_from(request, 4, 2)
        body, end = FetchRequest.decode_from(request, pos, FETCH_VERSION)
        assert end == len(request)
        assert header.correlation_id == 5
        assert body.topics[0].partitions[0].fetch_offset == offset
        assert body.topics[0].partitions[0].partition == 3


@pytest.mark.parametrize("partitions", [1, 5, 126, 127, 300])
def test_the_error_code_stands_where_it_is_looked_for(partitions: int) -> None:
    parts = [PartitionProduceResponse(index=i, error_code=0x0102) for i in range(partitions)]
    response = ProduceResponse(
        responses=[TopicProduceResponse(name="topic", partition_responses=parts)]
    )
    frame = ResponseHeader(correlation_id=1).encode(1) + response.encode(PRODUCE_VERSION)
    at = first_error_at("topic", partitions)
    assert frame[at : at + 2] == b"\x01\x02"


def test_a_refused_batch_is_told_by_name() -> None:
    parts = [PartitionProduceResponse(index=4, error_code=10, error_message="too big")]
    response = ProduceResponse(
        responses=[TopicProduceResponse(name="t", partition_responses=parts)]
    )
    frame = ResponseHeader(correlation_id=1).encode(1) + response.encode(PRODUCE_VERSION)
    with pytest.raises(CliError, match=r"t-4 \(MESSAGE_TOO_LARGE: too big\)"):
        check_produce_response(frame)


def test_records_are_counted_over_whole_batches_only() -> None:
    batch, count = message_batch(100, 5000)
    assert count_records(memoryview(batch + batch)) == (2 * count, count)
    assert count_records(memoryview(batch + batch[:-1])) == (count, count)
    assert count_records(memoryview(batch[:30])) == (0, -1)


def test_rates_per_core_second() -> None:
    found = throughput(Load(2.0, 1000, 3_000_000, 10, 0.5))
    assert found["messages_per_s"] == 500
    assert found["messages_per_core_s"] == 2000
    assert found["mb_per_core_s"] == 6.0
    assert found["requests_per_core_s"] == 20
    assert "broker_cpu_s" not in throughput(Load(2.0, 1000, 3_000_000, 10, None))


def test_percentiles() -> None:
    found = percentiles([n * 1_000_000 for n in range(1000, -1, -1)])
    assert found == {"p50_ms": 500, "p90_ms": 900, "p99_ms": 990, "p999_ms": 999, "max_ms": 1000}


def test_nothing_is_no_measurement() -> None:
    with pytest.raises(CliError, match=r"no message was acknowledged or read in 1\.0 s"):
        throughput(Load(1.0, 0, 0, 0, None))
