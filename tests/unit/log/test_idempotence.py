"""Whatever is repeated, refused or restarted: each record of a producer is there once, in order."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.base.errors import StorageError
from penstock.log.flush import flush
from penstock.log.limits import INDEX_FLUSH_BATCHES, WRITE_RETRY_PAUSE_MS

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 2), st.integers(1, 3)),
        st.tuples(st.just("repeat"), st.integers(0, 2), st.integers(1, 5)),
        st.tuples(st.just("refused"), st.integers(0, 2), st.integers(1, 60)),
        st.tuples(st.sampled_from(["stop", "crash", "flush", "roll"]), st.just(0), st.just(0)),
    ),
    max_size=40,
)


class Producer:
    """What a client remembers: the batches it was told are written."""

    def __init__(self, number: int, first_sequence: int) -> None:
        self.id = number
        self.next_sequence = first_sequence
        self.sent: list[tuple[int, int, int]] = []

    def send(self, box: Any, count: int) -> None:
        info = box.send(self.id, self.next_sequence, count)
        assert not info.duplicate
        self.sent.append((self.next_sequence, count, info.first_offset))
        self.next_sequence = (self.next_sequence + count) & 0x7FFFFFFF

    def repeat(self, box: Any, back: int) -> None:
        if len(self.sent) >= back:
            sequence, count, offset = self.sent[-back]
            info = box.send(self.id, sequence, count)
            assert (info.duplicate, info.first_offset) == (True, offset)


def refuse(box: Any, producer: Producer, room: int) -> None:
    """The disk takes only `room` bytes of a batch that needs more."""
    end, size = box.log.log_end_offset, box.log.segments.active.size
    # Where the batch would roll the segment, it is the new one that has no room.
    limit = size + room if size + 100 <= box.config.segment_bytes else room
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        box.send(producer.id, producer.next_sequence, 3)
    except StorageError:
        assert box.log.log_end_offset == end
    else:
        raise AssertionError("the write should have failed")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    box.clock.ms += WRITE_RETRY_PAUSE_MS


def flush_with_indexes(box: Any) -> None:
    box.log.batches_unindexed = INDEX_FLUSH_BATCHES
    flush(box.log)


def run(box: Any, steps: list[tuple[str, int, int]]) -> None:
    producers = [Producer(0, 0), Producer(1, 5), Producer(2, 2**31 - 4)]
    for what, who, number in steps:
        producer = producers[who]
        if what == "send":
            producer.send(box, number)
        elif what == "repeat":
            producer.repeat(box, number)
        elif what == "refused":
            refuse(box, producer, number)
        else:
            {"stop": box.reopen_clean, "crash": box.crash, "roll": box.log.roll}.get(
                what, lambda: flush_with_indexes(box)
            )()
    written = sorted((o, c) for p in producers for _, c, o in p.sent)
    end = 0
    for offset, count in written:
        assert offset == end
        end += count
    assert box.log.log_end_offset == end
    assert sorted(box.values()) == list(range(end))


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=STEPS, segment_bytes=st.integers(300, 1_000))
def test_every_record_once_and_in_order(
    box: Any, steps: list[tuple[str, int, int]], segment_bytes: int
) -> None:
    with box.home() as home:
        fresh = type(box)(Path(home), segment_bytes=segment_bytes, index_interval_bytes=60)
        run(fresh, steps)
