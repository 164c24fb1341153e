"""The order of Java's hash tables, against what `java.util.HashMap` and Kafka's own table show."""

from __future__ import annotations

import pytest

from penstock.coordinator.java_order import hash_code, hash_map_order, timeline_map_order

# `Map.keySet()` of a HashMap into which member-0, member-1, ... were put.
OF_JAVA = {
    4: [1, 2, 0, 3],
    12: [1, 2, 0, 5, 6, 3, 4, 9, 11, 10, 7, 8],
    14: [5, 6, 3, 13, 4, 12, 9, 11, 10, 7, 8, 1, 2, 0],
    30: [
        *(19, 18, 17, 16, 5, 15, 6, 14, 3, 13, 4, 12, 9, 11, 10, 7, 8),
        *(29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 1, 2, 0),
    ],
}


@pytest.mark.parametrize(("count", "order"), OF_JAVA.items())
def test_the_order_of_a_hash_map(count: int, order: list[int]) -> None:
    ids = [f"member-{number}" for number in range(count)]
    assert hash_map_order(ids, count) == [f"member-{number}" for number in order]


def test_a_hash_map_does_not_shrink() -> None:
    ids = [f"m\u00e9\U0001f600-{number}" for number in range(10, 14)]
    assert hash_map_order(ids, 14) == ids[::-1]


def test_the_hash_of_a_string_is_over_its_code_units() -> None:
    assert hash_code("") == 0
    assert hash_code("a") == 97
    assert hash_code("\U0001f600") == 0xD83D * 31 + 0xDE00


def test_the_order_of_kafkas_table() -> None:
    assert timeline_map_order(["m1", "m2", "m3", "m4"], 4) == ["m2", "m4", "m1", "m3"]


def test_the_youngest_of_a_slot_comes_first() -> None:
    ids = ["m1", "m3"]  # one slot of two, in a group of two
    assert timeline_map_order(ids, 2) == ["m3", "m1"]
    assert timeline_map_order(ids[::-1], 2) == ["m1", "m3"]
