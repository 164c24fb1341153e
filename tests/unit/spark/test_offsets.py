"""Offsets in options and checkpoints, and how they are cut and shared out."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kafka.errors import SettingError
from penstock.spark.errors import OptionError, SparkError
from penstock.spark.offsets import (
    Kind,
    Partition,
    StreamOffset,
    parse_assign,
    parse_offsets_bound,
    ranges_between,
)
from penstock.spark.options import for_batch, source_options
from penstock.spark.plan import cut, share_out

SERVERS = {"kafka.bootstrap.servers": "h:1"}
A, B = ("t", 0), ("t", 1)
partitions = st.tuples(st.sampled_from("abc"), st.integers(0, 12))
sizes = st.dictionaries(partitions, st.integers(1, 1_000), min_size=1)


@given(st.dictionaries(partitions, st.integers(0, 2**62)), st.booleans())
def test_an_offset_survives_the_checkpoint(offsets: dict[Partition, int], initial: bool) -> None:
    written = StreamOffset(offsets, start=offsets, initial=initial)
    assert StreamOffset.of(json.loads(json.dumps(written.as_dict()))) == written


@pytest.mark.parametrize("written", [{}, {"offsets": 3}, {"offsets": {"t": {"x": 1}}}, {"t": {}}])
def test_a_checkpoint_of_another_source_is_refused(written: dict[str, object]) -> None:
    with pytest.raises(SparkError, match="checkpointLocation of its own"):
        StreamOffset.of(written)


def test_starts_that_an_end_carries_come_first() -> None:
    end = StreamOffset({A: 10, B: 5}, start={B: 2})
    assert ranges_between(StreamOffset({A: 4}), end) == {A: (4, 10), B: (2, 5)}
    assert ranges_between(StreamOffset({A: 10, B: 9}), end) == {B: (2, 5)}
    assert ranges_between(StreamOffset({A: 4}), StreamOffset({A: 9}, initial=True)) == {}


def test_words_and_json_as_bounds() -> None:
    assert parse_offsets_bound("o", " Latest ").kind is Kind.LATEST
    assert parse_offsets_bound("o", '{"t": {"0": 3, "1": -2}}').values == {A: 3, B: -2}
    for text in ("x", "[]", "{}", '{"t": 1}', '{"t": {"a": 1}}', '{"t": {"0": -3}}'):
        with pytest.raises(OptionError, match="option o "):
            parse_offsets_bound("o", text)
    assert parse_assign("assign", '{"t": [0, 1]}') == {A, B}


@given(sizes, st.none() | st.integers(1, 40), st.none() | st.integers(1, 300))
def test_tasks_cover_every_offset_once(
    drawn: dict[Partition, int], tasks_min: int | None, rows_max: int | None
) -> None:
    ranges = {p: (5, 5 + size) for p, size in drawn.items()}
    found = cut(ranges, tasks_min, rows_max)
    for (topic, partition), (start, stop) in ranges.items():
        here = [r for r in found if (r.topic, r.partition) == (topic, partition)]
        assert [o for r in here for o in range(r.start, r.end)] == list(range(start, stop))
    assert rows_max is None or max(r.end - r.start for r in found) <= rows_max
    assert len(found) >= min(tasks_min or 1, sum(drawn.values()))
    assert tasks_min is not None or rows_max is not None or len(found) == len(drawn)


@given(sizes, st.integers(1, 5_000))
def test_a_limit_is_shared_out(drawn: dict[Partition, int], limit: int) -> None:
    found = share_out(drawn, limit)
    assert sum(found.values()) == min(limit, sum(drawn.values()))
    assert all(0 <= found[p] <= drawn[p] for p in drawn)
    cut_short = [found[p] for p in drawn if found[p] < drawn[p]]
    assert not cut_short or max(found.values()) - min(cut_short) <= 1, "nobody gets much less"


def test_option_names_come_in_lower_case() -> None:
    found = source_options({**SERVERS, "subscribe": "a, b", "maxoffsetspertrigger": "7"})
    assert (found.topics, found.rows_per_trigger_max) == (("a", "b"), 7)
    found = source_options({**SERVERS, "subscribe": "a", "maxtriggerdelay": "2m"})
    assert found.trigger_delay_s_max == 120.0
    found = source_options({**SERVERS, "subscribe": "a", "kafkaconsumer.polltimeoutms": "500"})
    assert found.poll_timeout_s == 0.5


def test_the_most_exact_bound_counts() -> None:
    given_all = {
        **SERVERS,
        "subscribe": "t",
        "startingOffsets": "latest",
        "startingOffsetsByTimestamp": '{"t": {"0": 5}}',
    }
    starting = source_options(given_all).starting
    assert starting is not None
    assert starting.kind is Kind.TIMES
    starting = source_options({**given_all, "startingTimestamp": "9"}).starting
    assert starting is not None
    assert (starting.kind, starting.time_ms) == (Kind.TIME, 9)


def test_a_partition_of_a_batch_cannot_start_at_its_end() -> None:
    given_offsets = {**SERVERS, "subscribe": "t", "startingOffsets": '{"t": {"0": -1}}'}
    with pytest.raises(OptionError, match="startingOffsets of a batch cannot be latest"):
        for_batch(source_options(given_offsets))


def test_without_servers() -> None:
    with pytest.raises(SettingError, match=r"option kafka\.bootstrap\.servers is missing"):
        source_options({"subscribe": "t"})


def test_a_subscription_to_nothing() -> None:
    with pytest.raises(OptionError, match="option subscribe names no topic: ', ,'"):
        source_options({**SERVERS, "subscribe": ", ,"})


def test_options_that_have_no_effect_here_are_taken() -> None:
    given_options = {
        **SERVERS,
        "subscribe": "t",
        "groupidprefix": "job",
        "fetchoffset.numretries": "3",
        "fetchoffset.retryintervalms": "10",
    }
    assert source_options(given_options) == source_options({**SERVERS, "subscribe": "t"})


def test_a_pattern_is_found_anywhere_in_a_name() -> None:
    found = source_options({**SERVERS, "subscribePattern": "order"})
    assert [found.wants((name, 0)) for name in ("orders", "my-orders", "ordners")] == [
        True,
        True,
        False,
    ]
