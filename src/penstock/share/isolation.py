"""Records that nobody can process are kept apart from the others of their batch.

A record that was delivered often may be the one that makes its consumers fail, and the others of
its batch fail with it. So from half of the attempts on a batch is delivered in ever smaller parts,
and at the last attempt a record is delivered alone. Kafka's rules and numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

LIMIT_WITHOUT_LAST_ATTEMPT: Final = 2
"""With so few attempts the last one is not treated apart."""


def threshold(delivery_count_limit: int) -> int:
    """The delivery count from which on a batch is divided."""
    return max(2, (delivery_count_limit + 1) // 2)


def part_of(batch_size: int, delivery_count: int, delivery_count_limit: int) -> int:
    """How many records of a batch may be delivered together: halves of halves."""
    return max(1, batch_size >> (delivery_count - threshold(delivery_count_limit) + 1))


def is_last_attempt(delivery_count: int, delivery_count_limit: int) -> bool:
    limit = delivery_count_limit
    return limit > LIMIT_WITHOUT_LAST_ATTEMPT and delivery_count == limit - 1


def apart(
    runs: Iterable[tuple[int, int, int]], batch_size: int, delivery_count_limit: int
) -> list[tuple[int, int, int]]:
    """Of the free records of one batch (runs: begin, end, count) those to deliver now."""
    chosen: list[tuple[int, int, int]] = []
    delivered, part = 0, 0
    for begin, end, count in runs:
        if is_last_attempt(count, delivery_count_limit):
            return chosen or [(begin, begin + 1, count)]
        if not part and count >= threshold(delivery_count_limit):
            part = part_of(batch_size, count, delivery_count_limit)
        if part:
            end = min(end, begin + max(1, part - delivered))
        chosen.append((begin, end, count))
        delivered += end - begin
        if part and delivered >= part:
            break
    return chosen
