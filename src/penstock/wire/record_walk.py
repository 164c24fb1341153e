"""A walk over the records inside a batch that builds none of them.

Duty: `check_records` unpacks a batch, and `walk_records` checks that the bytes are exactly the
records that the batch's header counts, as every consumer will read them: lengths tile the bytes,
offset deltas are 0, 1, 2 and so on, key, value and headers fill their record, no varint is longer
than its type. On the way it finds the largest timestamp and notes records whose time or key a
topic does not take.

Invariants: nothing is believed before it is compared with the bytes that are there. The walk has
no state outside its call, so threads may walk different batches at the same time.

Limits: besides what it is given it holds a window of `WINDOW_BYTES`, which is copied because
compiled code reads `bytes` five times as quickly as a view. At most `NOTED_RECORDS_MAX` records
of a kind are noted. Compiled code does not let other threads run by itself: who walks beside an
event loop hands in `pause`, which is called after every window.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.base.errors import CorruptRecord
from penstock.base.limits import PRODUCED_BATCH_UNPACKED_BYTES_MAX
from penstock.wire.compression import Buf, Compression, check_framing, unpack
from penstock.wire.record_batch import HEADER_SIZE, RECORD_BYTES_MIN, BatchHeader

if TYPE_CHECKING:  # native integers for mypyc; the interpreter needs nothing of it
    from mypy_extensions import i64

WINDOW_BYTES: Final = 32 * 1024
NOTED_RECORDS_MAX: Final = 10_000

# Final, since compiled code then has the numbers themselves and looks up no name.
_TIME_MAX: Final = (1 << 63) - 1
_VARINT_BYTES_MAX: Final = 5
_VARINT_MAX: Final = (1 << 32) - 1
_VARLONG_BYTES_MAX: Final = 10
_HEADER_BYTES_MIN: Final = 2
_NULL: Final = 1  # the zigzag varint -1, which stands for a key or value that is not there


class Wanted:
    """What a topic asks of each record: times as deltas to the batch's base timestamp."""

    __slots__ = ("earliest", "exempt", "keys", "latest")

    def __init__(
        self,
        *,
        keys: bool = False,
        earliest: int = -_TIME_MAX,
        latest: int = _TIME_MAX,
        exempt: int = _TIME_MAX,
    ) -> None:
        """`exempt`: the delta that means "no timestamp" and is taken whatever the limits are."""
        self.keys = keys
        self.earliest = _clamped(earliest)
        self.latest = _clamped(latest)
        self.exempt = _clamped(exempt)


def _clamped(delta: int) -> int:
    return max(-_TIME_MAX, min(delta, _TIME_MAX))


class Walked:
    """What a walk found: the largest timestamp delta, and the places of records to be refused."""

    __slots__ = ("keyless", "latest", "untimely")

    def __init__(self) -> None:
        self.latest = -_TIME_MAX
        self.keyless: list[int] = []
        self.untimely: list[int] = []


def check_records(
    batch: Buf,
    header: BatchHeader,
    wanted: Wanted,
    *,
    max_bytes: int = PRODUCED_BATCH_UNPACKED_BYTES_MAX,
    pause: Callable[[], None] | None = None,
) -> Walked:
    """Unpack one whole batch and walk its records; `CorruptRecord` says what is wrong with it."""
    body = memoryview(batch)[HEADER_SIZE : header.size]
    kind = header.compression
    if kind is not Compression.NONE:
        check_framing(kind, body)
        body = unpack(kind, body, max_bytes=max_bytes)
    return walk_records(body, header.record_count, wanted, pause)


def walk_records(
    body: Buf, count: int, wanted: Wanted, pause: Callable[[], None] | None = None
) -> Walked:
    """Walk `count` records that must fill `body`; `CorruptRecord` if they do not."""
    view = memoryview(body)
    found = Walked()
    size, pos, index = len(view), 0, 0
    try:
        while index < count:
            if pause is not None and pos:
                pause()
            if size - pos < RECORD_BYTES_MIN:
                raise CorruptRecord(f"the batch counts {count} records and holds {index}")
            window = bytes(view[pos : pos + WINDOW_BYTES])
            used, walked = _walk_window(window, index, count, wanted, found)
            if walked == index:
                used, walked = _walk_large(view, pos, index, wanted, found, pause), index + 1
            pos, index = pos + used, walked
    except IndexError:
        raise CorruptRecord(f"record {index} or a later one ends before its last field") from None
    if pos != size:
        raise CorruptRecord(f"{size - pos} bytes follow the last record of the batch")
    return found


def _walk_window(
    window: bytes, index: i64, count: i64, wanted: Wanted, found: Walked
) -> tuple[i64, i64]:
    """Walk the records that lie whole in `window`; the bytes they take and the next one's place."""
    # Short varints are read in place: a call costs an interpreter as much as half of the record.
    size: i64 = len(window)
    start: i64 = 0
    earliest: i64 = wanted.earliest
    latest: i64 = wanted.latest
    newest: i64 = found.latest
    keys: bool = wanted.keys
    while index < count and size - start >= RECORD_BYTES_MIN:
        number: i64 = window[start]
        pos: i64 = start + 1
        if number > 0x7F:
            if window[pos] > 0x7F:
                number, pos = _varint(window, start)
            else:
                number = number & 0x7F | window[pos] << 7
                pos += 1
        end: i64 = pos + (number >> 1)
        if number & 1 or number < 2 * (RECORD_BYTES_MIN - 1):
            raise CorruptRecord(f"record {index} of the batch has an impossible length")
        if end > size:
            break
        if window[pos] > 0x7F:  # record attributes: none are defined, any of seven bits are taken
            raise _attributes(index)
        number = window[pos + 1]
        pos += 2
        if number > 0x7F:
            number, pos = _varlong(window, pos - 1)
        else:
            number = (number >> 1) ^ -(number & 1)
        if number > newest:
            newest = number
        if number > latest or number < earliest:
            _note_time(number, index, wanted, found)
        number = window[pos]
        pos += 1
        if number > 0x7F:
            if window[pos] > 0x7F:
                number, pos = _varint(window, pos - 1)
            else:
                number = number & 0x7F | window[pos] << 7
                pos += 1
        if number != index << 1:
            raise CorruptRecord(f"record {index} of the batch has another offset delta")
        number = window[pos]
        pos += 1
        if number == _NULL:
            if keys:
                _note(found.keyless, index)
        else:
            if number > 0x7F:
                number, pos = _varint(window, pos - 1)
            pos += _length(number)
        number = window[pos]
        pos += 1
        if number != _NULL:
            if number > 0x7F:
                if window[pos] > 0x7F:
                    number, pos = _varint(window, pos - 1)
                else:
                    number = number & 0x7F | window[pos] << 7
                    pos += 1
            if number & 1:
                raise CorruptRecord("a value of negative length")
            pos += number >> 1
        if window[pos]:
            pos = _skip_headers(window, pos, end)
        else:
            pos += 1
        if pos != end:
            raise CorruptRecord(f"the fields of record {index} do not fill its length")
        start = end
        index += 1
    found.latest = newest
    return start, index


def _walk_large(
    view: memoryview,
    start: int,
    index: int,
    wanted: Wanted,
    found: Walked,
    pause: Callable[[], None] | None,
) -> int:
    """Check one record that is larger than a window without copying it; the bytes it takes."""
    size, pos = _read_varint(view, start)
    end = pos + _length(size)
    if end > len(view):
        raise CorruptRecord(f"record {index} of {size >> 1} bytes does not fit in the batch")
    if view[pos] > 0x7F:
        raise _attributes(index)
    time, used = _varlong(bytes(view[pos + 1 : pos + 1 + _VARLONG_BYTES_MAX]), 0)
    found.latest = max(found.latest, time)
    if not wanted.earliest <= time <= wanted.latest:
        _note_time(time, index, wanted, found)
    delta, pos = _read_varint(view, pos + 1 + used)
    if delta != index << 1:
        raise CorruptRecord(f"record {index} of the batch has another offset delta")
    key, pos = _read_varint(view, pos)
    if key == _NULL:
        if wanted.keys:
            _note(found.keyless, index)
    else:
        pos += _length(key)
    value, pos = _read_varint(view, pos)
    if value != _NULL:
        pos += _length(value)
    count, pos = _read_varint(view, pos)
    left = _length(count)
    while left and pos < end:
        window = bytes(view[pos : min(pos + WINDOW_BYTES, end)])
        used, walked = _walk_headers(window, 0, len(window), left)
        if walked == left:
            used, walked = _large_header(view, pos) - pos, left - 1
        pos, left = pos + used, walked
        if pause is not None:
            pause()
    if left or pos != end:
        raise CorruptRecord(f"the fields of record {index} do not fill its length")
    return end - start


def _skip_headers(window: bytes, pos: i64, end: i64) -> i64:
    """The position after the headers whose count stands at `pos`, all of them before `end`."""
    number: i64
    number, pos = _varint(window, pos)
    pos, number = _walk_headers(window, pos, end, _length(number))
    if number:
        raise CorruptRecord(f"{number} headers of a record are missing")
    return pos


def _walk_headers(window: bytes, pos: i64, end: i64, left: i64) -> tuple[i64, i64]:
    """Skip the headers that lie whole before `end`; the position after them and how many are left.

    What is cut off by `end` is left: it may go on in a next window.
    """
    number: i64
    at: i64
    while left and end - pos >= _HEADER_BYTES_MIN:
        number, at = window[pos], pos + 1
        if number > 0x7F:
            if end - pos < _VARINT_BYTES_MAX and window[end - 1] > 0x7F:
                break
            number, at = _varint(window, pos)
        at += _length(number)
        if at >= end:
            break
        number = window[at]
        at += 1
        if number > 0x7F:
            if end - at < _VARINT_BYTES_MAX and window[end - 1] > 0x7F:
                break
            number, at = _varint(window, at - 1)
        if number != _NULL:
            at += _length(number)
        if at > end:
            break
        pos = at
        left -= 1
    return pos, left


def _large_header(view: memoryview, pos: int) -> int:
    """The position after one header, which may reach beyond a window."""
    name, pos = _read_varint(view, pos)
    value, pos = _read_varint(view, pos + _length(name))
    return pos if value == _NULL else pos + _length(value)


def _read_varint(view: memoryview, pos: int) -> tuple[int, int]:
    value, used = _varint(bytes(view[pos : pos + _VARINT_BYTES_MAX]), 0)
    return value, pos + used


def _varint(data: bytes, pos: i64) -> tuple[i64, i64]:
    """The varint at `pos` as it stands, zigzag and all, and the position after it."""
    value: i64 = 0
    shift: i64 = 0
    while shift < 7 * _VARINT_BYTES_MAX:
        byte: i64 = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > _VARINT_MAX:
                break
            return value, pos
        shift += 7
    raise CorruptRecord("a varint has more than 32 bits")


def _varlong(data: bytes, pos: i64) -> tuple[i64, i64]:
    """The timestamp delta at `pos` and the position after it.

    One of more than 63 bits, zigzag and all, is refused: it is 146 million years away, and native
    integers end there.
    """
    value: i64 = data[pos]
    byte: i64
    if value > 0x7F and data[pos + 1] < 0x80:  # two bytes are usual, and worth a short way
        value = value & 0x7F | data[pos + 1] << 7
        return (value >> 1) ^ -(value & 1), pos + 2
    shift: i64 = 0
    value = 0
    while shift < 7 * (_VARLONG_BYTES_MAX - 1):
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), pos
        shift += 7
    raise CorruptRecord("a timestamp delta has more than 63 bits")


def _attributes(index: int) -> CorruptRecord:
    return CorruptRecord(
        f"record {index} has attributes that some clients take for the begin of a varint"
    )


def _length(number: i64) -> i64:
    """The length that a zigzag varint means; none of these may be negative."""
    if number & 1:
        raise CorruptRecord(f"a field of {-(number + 1) // 2} bytes")
    return number >> 1


def _note(places: list[int], index: i64) -> None:
    if len(places) < NOTED_RECORDS_MAX:
        places.append(index)


def _note_time(delta: i64, index: i64, wanted: Wanted, found: Walked) -> None:
    if delta != wanted.exempt:
        _note(found.untimely, index)
