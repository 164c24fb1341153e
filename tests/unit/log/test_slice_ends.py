"""Where a read ends that has not room for everything: nothing large is read to be thrown away."""

from __future__ import annotations

from typing import Any

from penstock.log.limits import CUT_BATCH_BYTES_MIN

LARGE = b"x" * (4 * CUT_BATCH_BYTES_MIN)
SMALL = b"x" * 500


def sizes(box: Any, values: list[bytes]) -> list[int]:
    """Appends a batch for each value; how large they are in the file."""
    for value in values:
        box.append(value)
    end = box.log.log_end_offset
    return [box.log.read(offset, 1, up_to_offset=end).size for offset in range(len(values))]


def read(box: Any, max_bytes: int, offset: int = 0) -> Any:
    return box.log.read(offset, max_bytes, up_to_offset=box.log.log_end_offset)


def test_a_large_batch_that_does_not_fit_is_not_read_in_part(box: Any) -> None:
    first, second, third, _ = sizes(box, [LARGE] * 4)
    piece = read(box, first + second + third // 2)
    assert piece.size == first + second
    assert len(piece.read()) == piece.size
    assert piece.end_offset == 2
    assert read(box, first + second + third // 2, offset=1).size == second + third


def test_the_first_batch_is_whole_however_large(box: Any) -> None:
    first, *_ = sizes(box, [LARGE] * 2)
    assert read(box, first // 2).size == first


def test_small_batches_fill_the_room(box: Any) -> None:
    each, *_ = sizes(box, [SMALL] * 100)
    piece = read(box, 50 * each + 100)
    assert len(piece.read()) == 50 * each


def test_a_small_batch_before_a_large_one_is_not_left_out_with_it(box: Any) -> None:
    small, large, *_ = sizes(box, [SMALL, LARGE, SMALL, LARGE])
    piece = read(box, small + large + small + large // 2)
    assert len(piece.read()) in (small + large, small + large + small)
    assert piece.size < small + large + small + large // 2
