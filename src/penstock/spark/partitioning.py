"""Which partition a row goes to, by the rules of Kafka's Java producer.

It is the column `partition`, else the key's murmur2 hash, else one partition for a while and then
the next. Spark's own sink uses that producer.

Invariants: equal keys go to equal partitions as long as a topic's number of partitions stays. All
rows of a chunk are hashed together.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock.spark.errors import SparkError

_SEED: Final = np.uint32(0x9747B28C)
_M: Final = np.uint32(0x5BD1E995)
_POSITIVE: Final = np.uint32(0x7FFFFFFF)

Ints: TypeAlias = NDArray[np.int64]
Hashes: TypeAlias = NDArray[np.uint32]


def choose(topic: str, count: int, rows: int, asked: Any, keys: Any, otherwise: int) -> Ints:
    """The partition of each row of a chunk; `otherwise` numbers the chunks, for rows with neither
    partition nor key.
    """
    chosen = np.full(rows, otherwise % count, dtype=np.int64)
    if keys is not None and keys.null_count < rows:
        has_key = pc.is_valid(keys).to_numpy(zero_copy_only=False)
        hashed = murmur2(keys.drop_null()) & _POSITIVE
        chosen[has_key] = hashed % np.uint32(count)
    if asked is not None:
        wanted = asked.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
        is_asked = pc.is_valid(asked).to_numpy(zero_copy_only=False)
        wrong = wanted[is_asked & ((wanted < 0) | (wanted >= count))]
        if len(wrong):
            raise SparkError(
                f"column 'partition' asks for partition {wrong[0]} of topic {topic!r}, which has"
                f" {count}: 0 to {count - 1}"
            )
        chosen = np.where(is_asked, wanted, chosen)
    return chosen


def murmur2(keys: Any) -> Hashes:
    """Kafka's hash of each key of a binary column without nulls."""
    _, offsets, buffer = keys.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)[keys.offset :][: len(keys) + 1].astype(np.int64)
    data = np.frombuffer(buffer, dtype=np.uint8) if buffer else np.zeros(0, dtype=np.uint8)
    starts, lengths = ends[:-1], np.diff(ends)
    hashes = _SEED ^ lengths.astype(np.uint32)
    for word in range(int(lengths.max(initial=0)) // 4):
        rows = np.flatnonzero(lengths >= 4 * (word + 1))
        k = _little_endian(data, starts[rows] + 4 * word, 4) * _M
        k = (k ^ (k >> np.uint32(24))) * _M
        hashes[rows] = hashes[rows] * _M ^ k
    for rest in (1, 2, 3):
        rows = np.flatnonzero(lengths % 4 == rest)
        tail = _little_endian(data, ends[1:][rows] - rest, rest)
        hashes[rows] = (hashes[rows] ^ tail) * _M
    hashes = (hashes ^ (hashes >> np.uint32(13))) * _M
    return hashes ^ (hashes >> np.uint32(15))


def _little_endian(data: NDArray[np.uint8], starts: Ints, count: int) -> Hashes:
    """The numbers of `count` bytes at `starts`."""
    number = np.zeros(len(starts), dtype=np.uint32)
    for place in range(count):
        number |= data[starts + place].astype(np.uint32) << np.uint32(8 * place)
    return number
