"""Dead letters: what a share group has given up, written to its dead-letter topic exactly once.

Duty: take the records of a share-partition that wait as ARCHIVING, and write them with a marker, an
offset of the group `__dlq.GROUP` whose metadata names them, in one transaction. When that is
committed they are persisted as ARCHIVED; then the next transaction begins, or the marker is cleared
if there is nothing more.

Invariants:
* One transaction of a share-partition is under way at a time, and the one before is persisted.
* What the marker names is written, and nothing else that waits as ARCHIVING. It is read where it is
  not known what the last transaction came to: after a fail-over, and when a writer was fenced.
* Whoever writes has opened the transactional id of the share-partition (`Origin.transactional_id`)
  and has found afterwards that no later leader has read the state. So a leader of the past, which
  may open the id once more, writes nothing: a later leader opens it again and reads the marker.
* A marker names nothing that is revived: who has records delivered anew awaits `forget_marker`
  before. If the group's offsets are set anew instead, the state epoch tells the old marker.

Where the topic cannot be written to, records wait and are tried again with a growing pause, at once
when the metadata changes; they are lost only if somebody switches the dead letters of the group
off, which archives what waits. Records that have gone from the log are written as their headers
alone; so is, as far as needed, what is too large for the topic.

Limits: RECORDS_MAX, BATCH_BYTES_MAX and `offset.metadata.max.bytes` for a transaction. What has to
be read and encoded is done by one worker thread. A marker lives as long as
`offsets.retention.minutes` says: a leader that comes back later takes what waits for not written. A
share-partition is loaded when a member fetches: what has waited at the death of a leader waits for
that, too. Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from penstock.base.clock import Clock
from penstock.base.errors import ApiError, ErrorCode, PenstockError, StorageError
from penstock.base.ids import TopicPartition
from penstock.config.broker_config import BrokerConfig
from penstock.coordinating.share_persister import SharePersister
from penstock.coordinating.transactional_writer import (
    GroupPositions,
    Outcome,
    Position,
    TransactionalWriter,
    WriterEnvironment,
)
from penstock.observe.logs import Alarm
from penstock.serving.dead_letter_reading import FoundRecords, records_of
from penstock.serving.dead_letter_topics import DeadLetterTopic, DeadLetterTopics, NotWritable
from penstock.serving.share_driver import FENCING, ShareDriver, for_clients
from penstock.share.dead_letter_records import (
    Made,
    Marker,
    Origin,
    divided,
    made,
    marked,
    offsets_of,
    room_for_ranges,
)
from penstock.share.partition import DeadLetter, SharePartition
from penstock.share.types import Cause
from penstock.wire.records import Record

log = logging.getLogger("penstock.serving")

RECORDS_MAX: Final = 500
BATCH_BYTES_MAX: Final = 1024 * 1024
MARKER_CHARS_MAX: Final = 4_096
MARKER_CHARS_MIN: Final = 100
RETRY_S: Final = 0.5
"""The first pause; each is twice as long as the one before, up to `RETRY_S_MAX`."""
RETRY_S_MAX: Final = 30.0
GROUPS_COUNTED_MAX: Final = 1_000
SWITCHED_OFF, RETENTION = "switched off", "retention"
"""Why records were lost that waited to become dead letters."""
OTHERS: Final = "(others)"
"""Under this name more groups are counted together."""
_ALL: Final = 2**31


@dataclass(slots=True)
class DeadLetterCounts:
    """Of a group, on this node."""

    written: int = 0
    shortened: int = 0
    """Of them, those with less than the group wants: their record was too large or gone."""
    lost: Counter[str] = field(default_factory=Counter)
    """Archived without a dead letter, by reason."""
    failures: Counter[str] = field(default_factory=Counter)
    """Attempts that came to nothing, by reason."""


class DeadLetters:
    """What those of a node share."""

    def __init__(
        self,
        writers: WriterEnvironment,
        persister: SharePersister,
        topics: DeadLetterTopics,
        clock: Clock,
        config: Callable[[], BrokerConfig],
    ) -> None:
        self.writers = writers
        self.persister = persister
        self.topics = topics
        self.clock = clock
        self.config = config
        self.alarm = Alarm(log, level=logging.WARNING)
        self.worker = ThreadPoolExecutor(1, thread_name_prefix="dead-letters")
        self.counts: dict[str, DeadLetterCounts] = {}
        self.running: dict[DeadLetterDriver, None] = {}
        self.is_stopping = False
        self._pausing: dict[DeadLetterDriver, None] = {}

    def of(self, share: ShareDriver) -> DeadLetterDriver:
        return DeadLetterDriver(self, share)

    def counts_of(self, group_id: str) -> DeadLetterCounts:
        if group_id not in self.counts and len(self.counts) >= GROUPS_COUNTED_MAX:
            group_id = OTHERS
        return self.counts.setdefault(group_id, DeadLetterCounts())

    async def pause(self, driver: DeadLetterDriver, seconds: float) -> None:
        """Or until the metadata changes."""
        self._pausing[driver] = None
        try:
            await asyncio.wait_for(driver.woken.wait(), seconds)
        except TimeoutError:
            pass
        finally:
            driver.woken.clear()
            self._pausing.pop(driver, None)

    def metadata_changed(self) -> None:
        """A topic or a setting: what was refused may be possible now."""
        for driver in self._pausing:
            driver.woken.set()

    def end_waiting(self) -> None:
        """The node stops: what is not written is the next leader's."""
        self.is_stopping = True
        for driver in list(self.running):
            driver.stop()

    def stop(self) -> None:
        self.worker.shutdown()


class _Fenced(PenstockError):
    """Another node leads by now, or the state was set anew."""


class DeadLetterDriver:
    """The dead letters of one share-partition."""

    def __init__(self, env: DeadLetters, share: ShareDriver) -> None:
        self._env = env
        self._share = share
        topic, index = share.partition.log.topic_partition
        self._place = TopicPartition(topic, index)
        self._origin = Origin(share.key.group_id, topic, index)
        self._writer = TransactionalWriter(env.writers, self._origin.transactional_id)
        self._ready = False
        """Whether the writer is this leader's, and the outcome of the last transaction known."""
        self._marked = False
        """Whether the marker names something."""
        self._offset = 0
        """After the last dead letter."""
        self._lock = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self.woken = asyncio.Event()

    @property
    def is_busy(self) -> bool:
        return self._task is not None

    def begin(self) -> None:
        """There are dead letters to be written."""
        if self._task is None and not self._env.is_stopping:
            self._task = asyncio.get_running_loop().create_task(self._run())
            self._task.add_done_callback(self._ended)
            self._env.running[self] = None

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        del self._env.running[self]
        core = self._share.core
        if self._share.is_active and core is not None and core.has_dead_letters:
            self.begin()  # they have come since
        self._share.leave_if_idle()

    def stop(self) -> None:
        """The share-partition is not to be used any more."""
        if self._task is not None:
            self._task.cancel()

    async def forget_marker(self) -> None:
        """Return when the marker names no record that is archived by now; to be awaited before
        archived records are revived, and between the two nothing may be awaited. Else, if they are
        given up again and the leader dies, the next one would take the old marker for the new one.
        `PenstockError` if it is not possible at the moment.
        """
        async with self._lock:
            if not self._ready and not (await self._marker()).metadata:
                return  # nor will there be one of what is archived: nothing was opened since
            await self._be_ready()
            if self._marked:
                await self._clear()

    # -- one after another ---------------------------------------------------------------------

    async def _run(self) -> None:
        pause_s = RETRY_S
        try:
            while self._share.is_active:
                try:
                    async with self._lock:
                        if not await self._step():
                            break
                    pause_s = RETRY_S
                    continue
                except _Fenced:
                    break
                except NotWritable as failure:
                    self._failed(failure.reason, failure)
                except ApiError as failure:
                    self._failed(failure.code.name.lower(), failure)
                except StorageError as failure:
                    self._failed("storage", failure)
                await self._env.pause(self, pause_s)
                pause_s = min(2 * pause_s, RETRY_S_MAX)
        except Exception as e:
            log.exception("dead letters of %r cannot be written", self._share)
            self._share.fence(ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(e)))

    async def _step(self) -> bool:
        """Do what is next; whether there may be more."""
        group_id, topic_id, _ = self._share.key
        if not self._core.has_dead_letters:
            if not self._marked:
                return False
            await self._clear()
        elif not self._env.topics.wanted(group_id, topic_id):
            await self._drop()
        elif not await self._be_ready():
            await self._write(await self._env.topics.find(group_id))
        return True

    def _failed(self, reason: str, failure: PenstockError) -> None:
        group_id = self._share.key.group_id
        self._env.counts_of(group_id).failures[reason] += 1
        self._env.alarm.raised(
            f"{group_id} {reason}",
            "dead letters cannot be written; they wait and are tried again",
            share_partition=self._share.key.text,
            reason=reason,
            error=str(failure),
        )

    @property
    def _core(self) -> SharePartition:
        core = self._share.core
        if core is None or not self._share.is_active:
            raise _Fenced("it is not used any more")
        return core

    @property
    def _state_epoch(self) -> int:
        return self._core.state_epoch

    async def _settle(self, ranges: list[tuple[int, int]]) -> None:
        """Have it persisted that these are written, before anything else is."""
        try:
            await self._share.dead_letters_written(ranges)
        except ApiError as e:
            # The next leader, or this one when it has loaded the state, finds them by the marker.
            self._share.fence(e)
            raise _Fenced(str(e)) from e

    async def _drop(self) -> None:
        """The group has no dead letters any more: what waits is archived without."""
        letters = self._core.dead_letters(_ALL)
        self._lost(SWITCHED_OFF, sum(1 for _ in offsets_of(letters)))
        await self._settle(_ranges(letters))

    def lost(self, records: int) -> None:
        """Retention has removed records before their dead letters were written."""
        self._lost(RETENTION, records)

    def _lost(self, reason: str, records: int) -> None:
        self._env.counts_of(self._share.key.group_id).lost[reason] += records
        log.error(
            "records are archived that should have become dead letters",
            extra={"share_partition": self._share.key.text, "records": records, "reason": reason},
        )

    # -- the marker ----------------------------------------------------------------------------

    async def _be_ready(self) -> bool:
        """Be the one who writes, and know what is written; whether that had to be found out."""
        if self._ready and self._writer.is_open:
            return False
        self._ready = False
        await self._writer.open()
        await self._check_leadership()
        position = await self._marker()
        self._offset, self._marked = position.offset, bool(position.metadata)
        named = marked(position.metadata, self._share.key.topic_id, self._state_epoch)
        letters = self._core.dead_letters(_ALL) if named else []
        inside, outside = divided(letters, named)
        self._core.dead_letters_failed(outside)
        if inside:
            await self._settle(inside)
        self._ready = True
        return True

    async def _marker(self) -> Position:
        """What is committed, when no transaction is open that would change it."""
        found = await self._writer.committed(self._origin.marker_group, [self._place])
        return found.get(self._place, Position(0, ""))

    async def _check_leadership(self) -> None:
        """That no later leader has read the state: if one does from now on, it opens the writer
        after this one did.
        """
        share = self._share
        try:
            state = await self._env.persister.read(share.key, share.leader_epoch)
        except ApiError as e:
            if e.code not in FENCING:
                raise
            share.fence(for_clients(e.code, e.message))
            raise _Fenced(str(e)) from e
        if state.state_epoch != self._state_epoch:
            code = ErrorCode.FENCED_STATE_EPOCH
            share.fence(for_clients(code, "the offsets of the group were set anew"))
            raise _Fenced("the state is another one")

    async def _clear(self) -> None:
        await self._be_ready()
        await self._commit({}, "")
        self._marked = False

    async def _commit(self, batches: dict[TopicPartition, bytes], marker: str) -> None:
        position = {self._place: Position(self._offset, marker)}
        written = await self._writer.write(
            batches, GroupPositions(self._origin.marker_group, position)
        )
        if written.outcome is not Outcome.COMMITTED:
            raise NotWritable(written.code.name.lower(), written.message)

    # -- writing -------------------------------------------------------------------------------

    async def _write(self, topic: DeadLetterTopic) -> None:
        """One transaction."""
        core, key = self._core, self._share.key
        letters = [self._explained(letter) for letter in core.dead_letters(RECORDS_MAX)]
        taken = _ranges(letters)
        try:
            read = await records_of(
                self._share.partition, letters, self._env.worker, BATCH_BYTES_MAX
            )
            batch = await self._made(topic, read)
            _, left = divided(letters, batch.ranges)
            core.dead_letters_failed(left)
            taken = batch.ranges
            self._offset = taken[-1][1] + 1
            marker = Marker(key.topic_id, self._state_epoch, taken)
            place = TopicPartition(topic.name, key.partition % topic.partitions)
            await self._commit({place: batch.batch}, marker.text)
        except BaseException:
            if self._share.is_active:
                core.dead_letters_failed(taken)
            raise
        self._marked = True
        self._count(batch, read.found)
        await self._settle(taken)

    def _explained(self, letter: DeadLetter) -> DeadLetter:
        """Its cause is guessed where it is not known, as Kafka does after a fail-over."""
        if letter.cause is not Cause.NONE:
            return letter
        too_often = letter.delivery_count >= self._core.limits.delivery_count_limit
        return letter._replace(cause=Cause.LIMIT if too_often else Cause.REJECTED)

    def _count(self, batch: Made, found: dict[int, Record]) -> None:
        counts = self._env.counts_of(self._share.key.group_id)
        offsets = [offset for first, last in batch.ranges for offset in range(first, last + 1)]
        gone = sum(1 for offset in offsets if offset not in found)
        counts.written += len(offsets)
        counts.shortened += batch.shortened + gone
        if gone:
            log.warning(
                "dead letters are written without their records, which are not in the log any more",
                extra={"share_partition": self._share.key.text, "records": gone},
            )

    async def _made(self, topic: DeadLetterTopic, read: FoundRecords) -> Made:
        config = self._env.config()
        room = room_for_ranges(
            self._share.key.topic_id,
            self._state_epoch,
            min(config.offset_metadata_max_bytes, MARKER_CHARS_MAX),
        )
        if room < MARKER_CHARS_MIN:
            raise NotWritable("marker", "offset.metadata.max.bytes is too small for a marker")
        now_ms = self._env.clock.now_ms()
        return await asyncio.get_running_loop().run_in_executor(
            self._env.worker,
            lambda: made(
                self._origin,
                read.letters,
                read.found,
                now_ms=now_ms,
                copy=topic.copy,
                record_bytes_max=topic.max_bytes,
                batch_bytes_max=min(topic.max_bytes, BATCH_BYTES_MAX),
                marker_room=room,
            ),
        )


def _ranges(letters: Sequence[DeadLetter]) -> list[tuple[int, int]]:
    return [(letter.first_offset, letter.last_offset) for letter in letters]
