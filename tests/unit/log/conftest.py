"""A log in a directory of its own, with a clock that the test moves."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.base.ids import TopicPartition
from penstock.config.log_config import LogConfig
from penstock.keys.data_keys import DataKeys
from penstock.log.closing import close_logs
from penstock.log.environment import LogEnvironment
from penstock.log.files import remove_paths
from penstock.log.log import AppendInfo, Batch, Log
from penstock.log.log_loader import load_log
from penstock.log.producer_state import AppendOrigin
from penstock.log.retention import due_deletions
from penstock.wire.records import (
    EndTxnMarker,
    Record,
    build_batch,
    build_end_txn_marker,
    check_batches,
    parse_header,
    read_records,
)
from support.keys import KEY_ID, MemoryKeys


class FakeClock:
    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000


class FixedRng:
    """Counts up: enough for names that must differ."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def uuid(self) -> bytes:
        return next(self._numbers).to_bytes(16, "big")

    def below(self, n: int) -> int:
        return n - 1


def as_batch(data: bytes) -> Batch:
    return Batch(parse_header(data), memoryview(data))


class LogBox:
    """One partition's log and the ways in which tests treat it."""

    def __init__(self, directory: Path, **config: Any) -> None:
        self.dir = directory / "topic-0"
        self.dir.mkdir(parents=True)
        self.clock = FakeClock()
        self.config = replace(LogConfig(), **config)
        self.env = LogEnvironment(clock=self.clock, rng=FixedRng())
        self.keys = MemoryKeys()
        self.env.keys = DataKeys(self.keys)
        self.log = self.load(clean=True)

    @staticmethod
    def home() -> tempfile.TemporaryDirectory[str]:
        """A directory in memory where there is one: what fsync costs is not what is tested."""
        return tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)

    def encrypt(self, key_id: str = KEY_ID) -> None:
        """Have what is written from now on encrypted by that key, or by none."""
        self.config = replace(self.config, penstock_encryption_key_id=key_id)
        self.log.config = self.config

    def forget_keys(self) -> None:
        """As a start does: the provider has to be asked again."""
        self.env.keys = DataKeys(self.keys)

    def load(self, **how: Any) -> Log:
        return load_log(TopicPartition("topic", 0), str(self.dir), self.config, self.env, **how)

    def reopen_clean(self) -> Log:
        """Stop well and start again."""
        close_logs([self.log])
        start, point = self.log.log_start_offset, self.log.recovery_point
        self.log = self.load(clean=True, log_start_offset=start, recovery_point=point)
        return self.log

    def crash(self, **how: Any) -> Log:
        """Start again as if the process had been killed."""
        self.log.release()
        how.setdefault("log_start_offset", self.log.log_start_offset)
        how.setdefault("recovery_point", self.log.recovery_point)
        self.log = self.load(clean=False, **how)
        return self.log

    def append(
        self,
        *values: bytes,
        timestamp: int = 1_000,
        epoch: int = 0,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        **batch: Any,
    ) -> AppendInfo:
        records = [Record(0, timestamp, None, value) for value in values or (b"v",)]
        data = build_batch(records, **batch)
        return self.log.append([as_batch(data)], epoch, self.clock.ms, origin)

    def send(
        self, producer: int, sequence: int, count: int = 1, epoch: int = 0, **more: Any
    ) -> AppendInfo:
        """An idempotent producer's batch of `count` records."""
        more = {"producer_id": producer, "producer_epoch": epoch, "base_sequence": sequence, **more}
        leader_epoch = more.pop("leader_epoch", 0)
        return self.append(*[b"v"] * count, epoch=leader_epoch, **more)

    def end_txn(
        self, producer: int, *, commit: bool, epoch: int = 0, coordinator_epoch: int = 0
    ) -> AppendInfo:
        marker = EndTxnMarker(commit, coordinator_epoch)
        data = build_end_txn_marker(
            marker, producer_id=producer, producer_epoch=epoch, timestamp=1_000
        )
        return self.log.append([as_batch(data)], 0, self.clock.ms, AppendOrigin.COORDINATOR)

    def values(self, start: int | None = None, max_bytes: int = 1 << 20) -> dict[int, bytes]:
        """Every record from `start` to the end, read as a consumer reads."""
        offset = self.log.log_start_offset if start is None else start
        found: dict[int, bytes] = {}
        while True:
            piece = self.log.read(offset, max_bytes, up_to_offset=self.log.log_end_offset)
            if piece is None:
                return found
            data = memoryview(piece.read())
            for position, header in check_batches(data):
                for record in read_records(data[position : position + header.size]):
                    if record.offset >= offset:
                        found[record.offset] = record.value or b""
                end = header.last_offset + 1
            assert end > offset
            offset = end

    def remove_deleted(self, now_ms: int) -> None:
        remove_paths(due_deletions(self.log, now_ms))

    def names(self, suffix: str) -> list[str]:
        return sorted(n for n in os.listdir(self.dir) if n.endswith(suffix))

    def path(self, base_offset: int, suffix: str) -> Path:
        return self.dir / f"{base_offset:020d}{suffix}"


@pytest.fixture
def new_box() -> Iterator[Callable[..., LogBox]]:
    """Makes boxes, each in a directory of its own."""
    numbers = itertools.count()
    with LogBox.home() as home:
        yield lambda **config: LogBox(Path(home) / str(next(numbers)), **config)


@pytest.fixture
def box(new_box: Callable[..., LogBox]) -> LogBox:
    return new_box()
