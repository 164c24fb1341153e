"""Drives the metadata quorum of one voter: decisions into the log, committed records into the
image.

The way of a change: a decision of the pure controller gives `(records, response)`; the
records are appended to the `__cluster_metadata` log as one batch and taken into the
controller's own image, so that the next decision builds on them; an fsync in a worker
thread, shared by all that wait, makes them committed; then they are applied to the image
that the broker serves from, listeners are told, and the responses are given.

Invariants: nothing uncommitted is ever visible outside the controller; responses are given
in the order of their records. When the log refuses an append nothing has happened. When an
fsync fails nobody knows what the disk has kept: no further change is accepted until a
restart has read it back. Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from penstock.base.clock import Clock, Rng
from penstock.base.errors import ApiError, ErrorCode, StorageError, invariant
from penstock.base.ids import Uuid
from penstock.config.layers import BrokerSettings
from penstock.config.log_config import LogConfig
from penstock.log.files import write_atomically
from penstock.log.flush import FlushTask
from penstock.log.log import Batch, Log
from penstock.log.producer_state import AppendOrigin
from penstock.metadata.controller import Controller, Decision
from penstock.metadata.delta import MetadataDelta
from penstock.metadata.image import MetadataImage
from penstock.metadata.records import MetadataRecord, decode_batch, encode_record
from penstock.raft.quorum import Append, Effect, Quorum, WriteState
from penstock.raft.state import FILE_NAME, QuorumState
from penstock.wire.records import parse_header

logger = logging.getLogger("penstock.broker")

R = TypeVar("R")

METADATA_LOG_CONFIG = LogConfig(cleanup_policy=frozenset(), retention_ms=-1)
_REPLAY_READ_BYTES = 4 * 1024 * 1024


class ControllerDriver:
    def __init__(
        self, log: Log, settings: BrokerSettings, node_id: int, clock: Clock, rng: Rng
    ) -> None:
        self.committed = MetadataImage()
        self.deleted_topics: set[Uuid] = set()
        """The topics that the stored log deletes; their directories may have outlived them."""
        self.failure: str | None = None
        self._log = log
        self._clock = clock
        self._controller = Controller(MetadataImage(), settings, node_id, rng)
        self._listeners: list[Callable[[MetadataDelta], None]] = []
        # What is appended and not yet committed: end offset, records, who waits.
        self._uncommitted: deque[tuple[int, list[MetadataRecord], asyncio.Future[None]]] = deque()
        self._syncing = False
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="metadata-flush")
        self._replay()
        self._quorum = Quorum(
            node_id,
            _read_state(log.dir),
            log_end_offset=log.log_end_offset,
            last_epoch=log.epochs.latest_epoch,
        )

    @property
    def committed_offset(self) -> int:
        return self._quorum.high_watermark

    @property
    def next_offset(self) -> int:
        """The offset that the next record will have; a broker's registration takes it as its
        epoch.
        """
        return self._quorum.log_end_offset

    def on_committed(self, listener: Callable[[MetadataDelta], None]) -> None:
        """Have `listener` called after committed records have changed the image."""
        self._listeners.append(listener)

    def start(self) -> None:
        """Become the leader of a new epoch; before the loop serves anybody, so it may block."""
        for effect in self._quorum.start(self._clock.now_ms()):
            self._perform(effect)
        self._log.flush()
        self._quorum.on_flushed(self._log.log_end_offset)

    async def submit(self, decide: Callable[[Controller], Decision[R]]) -> R:
        """Make a decision, and give its response when its records are committed."""
        if self.failure is not None:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, self.failure)
        records, response = decide(self._controller)
        if records:
            await self._append(records)
        elif self._uncommitted:
            # A response that only reads may still rest on records that are not committed.
            await asyncio.shield(self._uncommitted[-1][2])
        return response

    def _append(self, records: list[MetadataRecord]) -> asyncio.Future[None]:
        append = self._quorum.append([encode_record(r) for r in records], self._clock.now_ms())
        try:
            self._perform(append)
        except (StorageError, ApiError) as e:
            self._quorum.on_refused(append)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(e)) from e
        self._controller.replay(records)
        committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._uncommitted.append((append.last + 1, records, committed))
        if not self._syncing:
            self._sync()
        return committed

    def _perform(self, effect: Effect) -> None:
        if isinstance(effect, WriteState):
            write_atomically(os.path.join(self._log.dir, FILE_NAME), effect.text.encode())
            return
        self._append_batch(effect)

    def _append_batch(self, append: Append) -> None:
        batch = Batch(parse_header(append.batch), append.batch)
        info = self._log.append(
            [batch], self._quorum.epoch, self._clock.now_ms(), AppendOrigin.COORDINATOR
        )
        invariant(
            info.first_offset == append.first,
            f"metadata meant for offset {append.first} was written at {info.first_offset}",
        )

    # -- committing ----------------------------------------------------------------------------

    def _sync(self) -> None:
        try:
            task = self._log.flush_begin()
        except StorageError as e:
            self._fail(e)
            return
        self._syncing = True
        work = asyncio.get_running_loop().run_in_executor(self._pool, task.run)
        work.add_done_callback(lambda _: self._synced(task))

    def _synced(self, task: FlushTask) -> None:
        self._syncing = False
        try:
            self._log.flush_done(task)
        except StorageError as e:
            self._fail(e)
            return
        committed = self._quorum.on_flushed(task.up_to_offset)
        delta = MetadataDelta()
        waiters = []
        while self._uncommitted and self._uncommitted[0][0] <= committed:
            _, records, waiter = self._uncommitted.popleft()
            self.committed.apply(records, delta)
            waiters.append(waiter)
        for listener in self._listeners:
            try:
                listener(delta)
            except Exception:
                # The change is committed: whoever asked for it must hear so.
                logger.exception("following a change of the metadata failed")
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        if self._uncommitted:
            self._sync()

    def _fail(self, error: StorageError) -> None:
        self.failure = f"the metadata log could not be flushed, restart the node: {error}"
        while self._uncommitted:
            waiter = self._uncommitted.popleft()[2]
            if not waiter.done():
                waiter.set_exception(ApiError(ErrorCode.KAFKA_STORAGE_ERROR, self.failure))

    def stop(self) -> None:
        self._pool.shutdown()

    # -- starting ------------------------------------------------------------------------------

    def _replay(self) -> None:
        """Build both images from the log; with one voter all of it counts."""
        log = self._log
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            found = log.read(offset, _REPLAY_READ_BYTES, up_to_offset=log.log_end_offset)
            invariant(found is not None, f"the metadata log has a hole at offset {offset}")
            assert found is not None
            data = memoryview(found.read())
            position = 0
            while position < len(data):
                header = parse_header(data, position)
                records = decode_batch(data[position : position + header.size])
                delta = MetadataDelta()
                self.committed.apply(records, delta)
                self.deleted_topics |= delta.deleted_topics.keys()
                self._controller.replay(records)
                position += header.size
                offset = header.last_offset + 1


def _read_state(log_dir: str) -> QuorumState | None:
    try:
        with open(os.path.join(log_dir, FILE_NAME), encoding="utf-8") as file:
            return QuorumState.from_json(file.read())
    except FileNotFoundError:
        return None
