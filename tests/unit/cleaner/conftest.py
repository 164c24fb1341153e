"""A log on disk that tests fill, clean and look into."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.base.ids import TopicPartition
from penstock.config.log_config import LogConfig
from penstock.log.cleaner import clean_job, cleanable
from penstock.log.cleaner_job import CleanJob, CleanResult, ProducerEnd
from penstock.log.cleaner_view import log_state, producer_ends, segment_keys
from penstock.log.cleaner_worker import clean
from penstock.log.closing import close_logs
from penstock.log.environment import LogEnvironment
from penstock.log.log import Batch
from penstock.log.log_loader import load_log
from penstock.log.producer_state import AppendOrigin
from penstock.wire.records import (
    BatchHeader,
    EndTxnMarker,
    Record,
    build_batch,
    build_end_txn_marker,
    check_batch,
    check_batches,
    read_records,
)
from support.keys import memory_keys
from support.swaps import swap_in

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000


class CompactedLog:
    """A `Log` with shorthand for what these tests do to it."""

    def __init__(self, directory: Path, **config: Any) -> None:
        self.dir = directory
        self.config = replace(LogConfig(), cleanup_policy=frozenset({"compact"}), **config)
        self.env = LogEnvironment()
        self.env.keys = memory_keys()
        self.checkpoint: int | None = None
        self.now_ms = NOW_MS
        self.load()

    def load(self) -> None:
        self.log = load_log(
            TopicPartition("t", 0), str(self.dir), self.config, self.env, clean=True
        )

    def encrypt(self, key_id: str) -> None:
        """Have what is written from now on encrypted by that key, or by none."""
        self.config = replace(self.config, penstock_encryption_key_id=key_id)
        self.log.config = self.config

    def reload(self) -> None:
        assert close_logs([self.log])
        self.load()

    def append(self, records: list[Record], **fields: Any) -> int:
        """One batch; its first offset."""
        return self._append(build_batch(records, **fields), AppendOrigin.CLIENT)

    def put(self, *pairs: tuple[str, str | None], **fields: Any) -> int:
        """One batch of keys and values (None: a tombstone)."""
        return self.append(
            [
                Record(0, self.now_ms, key.encode(), None if value is None else value.encode())
                for key, value in pairs
            ],
            **fields,
        )

    def transactional(self, producer_id: int, sequence: int, *pairs: tuple[str, str | None]) -> int:
        return self.put(
            *pairs,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=True,
        )

    def end(self, producer_id: int, *, commit: bool) -> int:
        batch = build_end_txn_marker(
            EndTxnMarker(commit, 0),
            producer_id=producer_id,
            producer_epoch=0,
            timestamp=self.now_ms,
        )
        return self._append(batch, AppendOrigin.COORDINATOR)

    def _append(self, batch: bytes, origin: AppendOrigin) -> int:
        staged = [Batch(check_batch(batch), batch)]
        first = self.log.append(staged, 0, self.now_ms, origin).first_offset
        self.log.update_high_watermark(self.log.log_end_offset)
        return first

    def job(self, producers: Iterable[ProducerEnd] | None = None, **changes: Any) -> CleanJob:
        todo = cleanable(log_state(self.log, self.checkpoint), self.now_ms)
        end, key_id = todo.first_uncleanable_offset, self.config.penstock_encryption_key_id
        count = sum(s.base_offset < end for s in todo.log.segments)
        job = clean_job(
            todo,
            keys=segment_keys(self.log, end, self.env.keys.make(key_id, count) if key_id else []),
            directory=str(self.dir),
            producers=producer_ends(self.log) if producers is None else producers,
            now_ms=self.now_ms,
            dedupe_buffer_bytes=128 << 20,
            io_max_bytes_per_second=1e300,
        )
        return job._replace(**changes)

    def clean(self, producers: Iterable[ProducerEnd] | None = None, **changes: Any) -> CleanResult:
        """Roll, clean everything that may be cleaned, and swap the result in."""
        if self.log.segments.active.size:
            self.log.roll()
        result = clean(self.job(producers, **changes), lambda _: None)
        self.swap(result)
        return result

    def swap(self, result: CleanResult) -> None:
        for group in result.groups:
            swap_in(self.log, group.base_offset, group.replaces)
        self.checkpoint = result.end_offset

    def batches(self) -> list[tuple[BatchHeader, list[Record]]]:
        """Every batch, read from the files."""
        found = []
        for segment in self.log.segments:
            data = Path(segment.file.path).read_bytes()
            if segment.file.seal is not None:
                data, _ = segment.file.seal.open_whole(data)
            for pos, header in check_batches(data):
                found.append((header, read_records(data[pos : pos + header.size])))
        return found

    def records(self) -> list[Record]:
        return [r for header, records in self.batches() if not header.is_control for r in records]

    def pairs(self) -> list[tuple[int, str, str | None]]:
        """(offset, key, value) of every data record."""
        return [
            (r.offset, (r.key or b"").decode(), None if r.value is None else r.value.decode())
            for r in self.records()
        ]

    def files(self) -> dict[str, bytes]:
        """Name and content of everything in the directory."""
        return {name: (self.dir / name).read_bytes() for name in sorted(os.listdir(self.dir))}


@pytest.fixture
def make_log(tmp_path: Path) -> Callable[..., CompactedLog]:
    def make(**config: Any) -> CompactedLog:
        directory = tmp_path / f"t-{len(os.listdir(tmp_path))}"
        directory.mkdir()
        return CompactedLog(directory, **config)

    return make


@pytest.fixture
def log(make_log: Callable[..., CompactedLog]) -> CompactedLog:
    return make_log()


@pytest.fixture(scope="session")
def compacted_log() -> type[CompactedLog]:
    """For tests that make their directories themselves."""
    return CompactedLog
