"""A log does what a list does: any order of operations, against a model in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.log.flush import flush
from penstock.log.log import Batch
from penstock.log.retention import delete_old_segments
from penstock.log.rewrapping import outdated, prepare, put
from penstock.wire.records import Record, build_batch, parse_header
from support.lookups import looked_up


def log_machine(make: Any) -> type[RuleBasedStateMachine]:
    class LogAgainstModel(RuleBasedStateMachine):
        """`flushed` is the part of the model that a crash with a torn tail may not touch."""

        @initialize(
            segment_bytes=st.integers(300, 1_500),
            interval=st.sampled_from([0, 50, 300, 4_096]),
            key_id=st.sampled_from(["", "orders"]),
        )
        def begin(self, segment_bytes: int, interval: int, key_id: str) -> None:
            self.home = make.home()
            self.box = make(
                Path(self.home.name),
                segment_bytes=segment_bytes,
                index_interval_bytes=interval,
                file_delete_delay_ms=0,
                retention_ms=-1,
            )
            self.box.encrypt(key_id)
            self.batches: list[tuple[int, list[bytes], int]] = []
            self.start = self.end = self.flushed = 0
            self.time = 0
            self.epoch = 0
            self.counter = 0

        def teardown(self) -> None:
            if hasattr(self, "home"):
                self.home.cleanup()

        def records(self) -> dict[int, bytes]:
            return {
                base + i: value
                for base, values, _ in self.batches
                for i, value in enumerate(values)
                if base + i >= self.start
            }

        def _batch(self, count: int, size: int, later: int) -> Batch:
            self.time += later
            self.counter += 1
            values = [b"%d.%d" % (self.counter, i) + b"x" * size for i in range(count)]
            self.batches.append((self.end, values, self.time))
            self.end += count
            data = build_batch([Record(0, self.time, None, v) for v in values])
            return Batch(parse_header(data), memoryview(data))

        @rule(
            sizes=st.lists(
                st.tuples(st.integers(1, 3), st.integers(0, 60)), min_size=1, max_size=8
            ),
            later=st.integers(0, 3),
            epoch=st.integers(0, 1),
        )
        def append(self, sizes: list[tuple[int, int]], later: int, epoch: int) -> None:
            # A leader's epoch never goes down, also where the log has lost its epochs: after all
            # records were deleted and the end was truncated.
            self.epoch = leader_epoch = max(self.box.log.epochs.latest_epoch, self.epoch) + epoch
            for count, size in sizes:
                expected = self.end
                info = self.box.log.stage([self._batch(count, size, later)], leader_epoch, 1)
                assert (info.first_offset, info.last_offset) == (expected, self.end - 1)
            self.box.log.write_staged()

        @rule()
        def roll(self) -> None:
            self.box.log.roll()

        @rule(key_id=st.sampled_from(["", "orders"]))
        def encrypt(self, key_id: str) -> None:
            self.box.encrypt(key_id)

        @rule()
        def rotate(self) -> None:
            self.box.keys.new_version("orders")
            found = outdated([str(self.box.dir)], self.box.env.keys)
            for each in prepare(found, self.box.env.keys):
                assert put(each)
            for versions in self.box.keys.keys.values():
                for version in sorted(versions)[:-1]:
                    del versions[version]
            self.box.forget_keys()

        @rule()
        def flush(self) -> None:
            flush(self.box.log)
            self.flushed = self.end

        @rule()
        def stop_and_start(self) -> None:
            self.box.reopen_clean()
            self.flushed = self.end

        @rule()
        def crash(self) -> None:
            self.box.crash()

        @rule(lost=st.integers(1, 300))
        def crash_with_torn_tail(self, lost: int) -> None:
            """The last `lost` unflushed bytes of the active segment never reached the disk."""
            log = self.box.log
            active = log.segments.active
            if log.recovery_point > active.base_offset:
                kept = active.find(log.recovery_point)
                floor = active.size if kept is None else kept.position
            else:
                floor = 0
            size = max(active.size - lost, floor)
            log.release()
            with open(active.file.path, "r+b") as f:
                f.truncate(size)
            self.box.crash()
            end = self.box.log.log_end_offset
            assert self.flushed <= end <= self.end
            self._cut(end)

        @rule(fraction=st.floats(0, 1))
        def truncate(self, fraction: float) -> None:
            low = self.box.log.segments[0].base_offset
            target = max(int(low + (self.end - low) * fraction), self.start)
            self.box.log.truncate_to(target)
            end = next((b for b, v, _ in self.batches if b <= target < b + len(v)), self.end)
            self._cut(min(end, target) if target < self.end else self.end)
            assert self.box.log.log_end_offset == self.end

        def _cut(self, end: int) -> None:
            self.batches = [b for b in self.batches if b[0] + len(b[1]) <= end]
            self.end = end
            self.flushed = min(self.flushed, end)
            self.start = min(self.start, end)

        @precondition(lambda self: self.end > self.start)
        @rule(fraction=st.floats(0, 1))
        def delete_records(self, fraction: float) -> None:
            target = int(self.start + (self.end - self.start) * fraction)
            self.box.log.delete_records(target)
            self.start = target
            delete_old_segments(self.box.log, 1)
            self.box.remove_deleted(self.box.clock.ms)

        @invariant()
        def same_content(self) -> None:
            if not hasattr(self, "box"):
                return
            log = self.box.log
            assert (log.log_start_offset, log.log_end_offset) == (self.start, self.end)
            assert log.recovery_point <= self.end
            assert self.box.values() == self.records()

        @rule(fraction=st.floats(0, 1), max_bytes=st.integers(1, 2_000))
        def read_from_anywhere(self, fraction: float, max_bytes: int) -> None:
            offset = int(self.start + (self.end - self.start) * fraction)
            expected = {o: v for o, v in self.records().items() if o >= offset}
            assert self.box.values(offset, max_bytes) == expected

        @rule(timestamp=st.integers(0, 60))
        def search_by_time(self, timestamp: int) -> None:
            found = looked_up(self.box.log, timestamp)
            expected = next(
                (
                    (time, max(base, self.start))
                    for base, values, time in self.batches
                    if time >= timestamp and base + len(values) > self.start
                ),
                None,
            )
            assert (found and found[:2]) == expected

    return LogAgainstModel


def test_log_against_model(tmp_path: Path, box: Any) -> None:
    machine = log_machine(type(box)).TestCase
    machine.settings = settings(
        max_examples=100,
        stateful_step_count=25,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    machine().runTest()
