"""Metrics of clients: what is read of them, and that nothing else is more than refused."""

from __future__ import annotations

import math
import os
import time
import tracemalloc
from random import Random

import pytest

from penstock.base.errors import CorruptRecord
from penstock.base.steps import at_once
from penstock.wire.otlp import (
    ATTRIBUTES_CHARACTERS_MAX,
    FIELDS_MAX,
    NAME_CHARACTERS_MAX,
    POINT_FIELDS_MAX,
    POINTS_MAX,
    Number,
    Pushed,
    read_metrics,
)
from support.otlp import (
    CUMULATIVE,
    Point,
    gauge,
    metrics_data,
    of_bytes,
    of_double,
    of_number,
    point,
    total,
    varint,
)

ALL = metrics_data(
    gauge("a.b", Point(1.5), Point(-2, (("topic", "t"), ("node_id", "1")))),
    total("c", Point(3.0)),
    total("d", Point(7), temporality=CUMULATIVE),
    total("e", Point(-1.0), grows=False),
)


def read(data: bytes) -> Pushed:
    return at_once(read_metrics(memoryview(data)))


def test_gauges_and_sums_are_read() -> None:
    pushed = read(ALL)
    assert pushed.ignored == 0
    assert pushed.numbers == [
        Number("a.b", "", 1.5),
        Number("a.b", "node_id=1,topic=t", -2.0),
        Number("c", "", 3.0, counts=True, delta=True),
        Number("d", "", 7.0, counts=True),
        Number("e", "", -1.0, delta=True),
    ]


def test_values_of_attributes_are_texts() -> None:
    def value(inside: bytes) -> bytes:
        one = of_bytes(1, b"k") + of_bytes(2, inside)
        return gauge("a") + of_bytes(5, of_bytes(1, of_double(4, 0.0) + of_bytes(7, one)))

    for inside, text in (
        (of_number(2, 1), "true"),
        (of_number(2, 0), "false"),
        (of_number(3, 12), "12"),
        (of_number(3, (1 << 64) - 3), "-3"),
        (of_double(4, 0.5), "0.5"),
        (of_bytes(5, b""), ""),
    ):
        [number] = read(metrics_data(value(inside))).numbers
        assert number.attributes == f"k={text}"


@pytest.mark.parametrize(
    "metric",
    [
        of_bytes(1, b"histogram") + of_bytes(9, of_bytes(1, b"")),
        of_bytes(1, b"nothing"),
        gauge("", Point(1.0)),
        gauge('a"} 1\n', Point(1.0)),
        gauge("a" * (NAME_CHARACTERS_MAX + 1), Point(1.0)),
        gauge("a", Point(math.nan)),
        gauge("a", Point(math.inf)),
        gauge("a", Point(1.0, (("k", "v" * ATTRIBUTES_CHARACTERS_MAX),))),
        of_bytes(1, b"a") + of_bytes(5, of_bytes(1, b"")),
    ],
)
def test_what_is_not_shown_is_counted(metric: bytes) -> None:
    pushed = read(metrics_data(metric))
    assert (pushed.numbers, pushed.ignored) == ([], 1)


@pytest.mark.parametrize(
    "data",
    [
        b"\xff",
        b"\x80" * 11,
        varint(1 << 3 | 3),  # a group
        varint(0 << 3) + b"\0",
        of_number(1, 5),  # a number where a message belongs
        metrics_data(of_number(1, 5)),
        metrics_data(of_bytes(1, b"\xff\xfe")),
        metrics_data(of_bytes(1, b"a") + of_bytes(5, of_bytes(1, of_bytes(4, bytes(8))))),
        metrics_data(of_bytes(1, b"a") + of_bytes(7, of_bytes(2, b""))),
        varint(1 << 3 | 2) + varint(1 << 60),
    ],
)
def test_what_is_malformed_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptRecord):
        read(data)


def test_a_point_with_too_many_fields_is_refused() -> None:
    """A point is read at once, so it must not be long."""
    fields = of_number(8, 0) * POINT_FIELDS_MAX
    assert read(metrics_data(of_bytes(1, b"a") + of_bytes(5, of_bytes(1, fields)))).ignored == 1
    with pytest.raises(CorruptRecord):
        read(metrics_data(of_bytes(1, b"a") + of_bytes(5, of_bytes(1, fields + of_number(8, 0)))))


def test_only_so_many_points_are_read() -> None:
    many = of_bytes(1, point(Point(1.0))) * (POINTS_MAX + 10)
    pushed = read(metrics_data(of_bytes(1, b"a") + of_bytes(5, many), gauge("b", Point(1.0))))
    assert len(pushed.numbers) == POINTS_MAX
    assert pushed.ignored == 11


MANY = 30_000
OF_NOTHING = [
    of_bytes(1, b"") * MANY,
    metrics_data(b"") * (MANY // 10),
    of_bytes(1, of_bytes(2, of_bytes(2, b"") * MANY)),
    metrics_data(of_bytes(1, b"a") + of_bytes(5, of_bytes(1, b"") * MANY)),
    metrics_data(of_bytes(1, b"a") * MANY),
]
"""Much that holds nothing, at each level."""


@pytest.mark.parametrize("data", OF_NOTHING)
def test_much_of_nothing_is_read_in_steps_and_in_little_memory(data: bytes) -> None:
    tracemalloc.start()
    try:
        steps = sum(1 for _ in read_metrics(memoryview(data)))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert steps >= MANY / 10
    assert peak < 3 << 20


@pytest.mark.parametrize("data", OF_NOTHING)
def test_only_so_many_fields_are_read(data: bytes) -> None:
    times = FIELDS_MAX // MANY + 1 if data != OF_NOTHING[1] else 50
    pushed = read(data * times)
    assert pushed.fields == FIELDS_MAX + 1
    assert pushed.ignored > 0


def test_fuzz_anything_is_read_or_refused() -> None:
    random = Random(714)
    end = time.monotonic() + float(os.environ.get("FUZZ_SECONDS", "1"))
    while time.monotonic() < end:
        data = bytearray(ALL)
        for _ in range(random.randrange(1, 6)):
            at = random.randrange(len(data))
            match random.randrange(3):
                case 0:
                    data[at] = random.randrange(256)
                case 1:
                    del data[at : at + random.randrange(8)]
                case _:
                    data[at:at] = random.randbytes(random.randrange(8))
        try:
            pushed = read(bytes(data))
        except CorruptRecord:
            continue
        assert all(math.isfinite(number.value) for number in pushed.numbers)
