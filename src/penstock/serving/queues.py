"""A share group as a queue, for people: what is available, held and waits, and by whom; and records
that it has given up made its work again.

Each node answers for the share-partitions whose partitions it leads. One that no member consumes at
the moment is loaded for the answer and leaves again.

With rights active, to look takes DESCRIBE on the group and the topic. To revive takes READ on both,
as to acknowledge does: it is what Kafka asks for to move a share group's offsets, which can bring
records back just as well.

Limits: `RUNS_MAX` in an answer, with a place to go on from; `RANGES_MAX` in a request;
`LOADS_AT_ONCE_MAX`. Many partitions are handled with others in between. Owned by the event loop's
thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterable
from contextlib import asynccontextmanager
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from penstock.auth.principal import Principal
from penstock.auth.types import Operation
from penstock.base.errors import ApiError, ErrorCode, InvariantBroken, PenstockError, invariant
from penstock.net.turn import Turn
from penstock.serving.rights import TOPIC_DENIED, Rights
from penstock.serving.share_driver import ShareDriver
from penstock.share.changes import OffsetRange
from penstock.share.partition import SharePartition
from penstock.share.reviving import REVIVED_RECORDS_MAX
from penstock.share.types import RecordState, ShareKey
from penstock.wire.messages.describe_queues import (
    UNKNOWN_MS,
    DescribedQueuePartition,
    DescribedQueueTopic,
    DescribedRun,
    DescribeQueuesRequest,
    DescribeQueuesResponse,
    QueuePartition,
)
from penstock.wire.messages.redrive import (
    Redriven,
    RedrivenPartition,
    RedrivenRange,
    RedrivenTopic,
    RedrivePartition,
    RedriveRequest,
    RedriveResponse,
)

if TYPE_CHECKING:
    from penstock.partitions.replica_manager import ReplicaManager
    from penstock.serving.share import ShareService

RUNS_MAX: Final = 1_000
"""Runs of records in one answer."""
RANGES_MAX: Final = 1_000
"""Ranges of records in one request."""
LOADS_AT_ONCE_MAX: Final = 100
"""Share-partitions that are loaded for one request at a time."""

READ_COMMITTED: Final = "read_committed"
_GIVEN_UP: Final = frozenset({RecordState.ACKNOWLEDGED.name, RecordState.ARCHIVED.name})
"""States of records that the group is done with."""
_ENDING: Final = frozenset(
    {
        RecordState.ARCHIVING.name,
        *(f"TO_{RecordState[name].name}" for name in ("ACKNOWLEDGED", "ARCHIVING", "ARCHIVED")),
    }
)
"""States of records that it is about to be done with."""
_T = TypeVar("_T")


Outcome: TypeAlias = tuple[int, int, Redriven]
"""First and last offset, and what becomes of the records."""


class QueueService:
    def __init__(self, share: ShareService, replicas: ReplicaManager, rights: Rights) -> None:
        self._share = share
        self._replicas = replicas
        self._rights = rights

    # -- looking -------------------------------------------------------------------------------

    async def describe(
        self, principal: Principal, request: DescribeQueuesRequest
    ) -> DescribeQueuesResponse:
        """The share-partitions that are named and led here; ApiError if nothing can be told."""
        group_id = _group_id(request.group_id)
        self._rights.require_group(principal, Operation.DESCRIBE, group_id)
        config = self._share.partitions.config(group_id)
        left = _Left(min(request.runs_max, RUNS_MAX))

        async def one(name: str, wanted: QueuePartition) -> DescribedQueuePartition:
            try:
                self._require_topic(principal, Operation.DESCRIBE, name)
                async with self._borrowed(group_id, name, wanted.partition_index) as driver:
                    return _described(driver, wanted, left, committed_only=committed_only)
            except ApiError as e:
                return DescribedQueuePartition(
                    partition_index=wanted.partition_index,
                    error_code=e.code,
                    error_message=e.message,
                )

        committed_only = config.share_isolation_level == READ_COMMITTED
        places = [(topic.name, wanted) for topic in request.topics for wanted in topic.partitions]
        found = iter(await _some_at_once(one(name, wanted) for name, wanted in places))
        return DescribeQueuesResponse(
            record_locks_max=config.share_partition_max_record_locks,
            delivery_count_limit=config.share_delivery_count_limit,
            lock_duration_ms=config.share_record_lock_duration_ms,
            read_committed=committed_only,
            topics=[
                DescribedQueueTopic(name=t.name, partitions=[next(found) for _ in t.partitions])
                for t in request.topics
            ],
        )

    def _require_topic(self, principal: Principal, operation: Operation, name: str) -> None:
        if not self._rights.topic(principal, operation, name):
            raise TOPIC_DENIED

    @asynccontextmanager
    async def _borrowed(self, group_id: str, topic: str, index: int) -> AsyncIterator[ShareDriver]:
        """A share-partition that is active, and stays so at least until the caller waits."""
        key = ShareKey(group_id, self._replicas.topic(topic).id, index)
        driver = self._share.partitions.opened(key)
        driver.borrow()
        try:
            await _loaded(driver)
            if driver.error is not None:
                raise driver.error
            yield driver
        finally:
            driver.give_back(is_used=self._share.sessions.sessions_of(group_id) > 0)

    # -- reviving ------------------------------------------------------------------------------

    async def redrive(self, principal: Principal, request: RedriveRequest) -> RedriveResponse:
        """Records that the group has given up are its work again, where they are still there."""
        group_id = _group_id(request.group_id)
        self._rights.require_group(principal, Operation.READ, group_id)
        self._rights.require_change(principal)
        if sum(len(p.ranges) for t in request.topics for p in t.partitions) > RANGES_MAX:
            message = f"a request has at most {RANGES_MAX} ranges: divide it"
            raise ApiError(ErrorCode.INVALID_REQUEST, message)

        async def one(name: str, wanted: RedrivePartition) -> RedrivenPartition:
            index = wanted.partition_index
            try:
                self._require_topic(principal, Operation.READ, name)
                ranges = _checked(wanted)
                async with self._borrowed(group_id, name, index) as driver:
                    if not request.validate_only:
                        await _ready_to_revive(driver)
                    found = outcomes(driver, ranges)
                    if request.validate_only:
                        _core(driver).revivable(_revived(found))
                    else:
                        await _revive(driver, found)
            except ApiError as e:
                return RedrivenPartition(
                    partition_index=index, error_code=e.code, error_message=e.message
                )
            told = [
                RedrivenRange(first_offset=first, last_offset=last, outcome=outcome)
                for first, last, outcome in found
            ]
            return RedrivenPartition(partition_index=index, ranges=told)

        places = [(topic.name, wanted) for topic in request.topics for wanted in topic.partitions]
        found = iter(await _some_at_once(one(name, wanted) for name, wanted in places))
        return RedriveResponse(
            topics=[
                RedrivenTopic(name=t.name, partitions=[next(found) for _ in t.partitions])
                for t in request.topics
            ]
        )


class _Left:
    """How many runs the answer may still have."""

    __slots__ = ("runs",)

    def __init__(self, runs: int) -> None:
        self.runs = max(runs, 0)


class _Loading:
    """Waits until a share-partition is loaded, or is not to be used."""

    __slots__ = ("_driver", "over")

    def __init__(self, driver: ShareDriver) -> None:
        self._driver = driver
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake(self) -> None:
        if _is_settled(self._driver) and not self.over.done():
            self.over.set_result(None)


def _is_settled(driver: ShareDriver) -> bool:
    return driver.is_active or driver.error is not None


async def _loaded(driver: ShareDriver) -> None:
    if _is_settled(driver):
        return
    loading = _Loading(driver)
    driver.waiting[loading] = None
    try:
        await loading.over
    finally:
        driver.waiting.pop(loading, None)


def _described(
    driver: ShareDriver, wanted: QueuePartition, left: _Left, *, committed_only: bool
) -> DescribedQueuePartition:
    """A share-partition, and as many of its runs as there is room for."""
    core, partition, now_ms = _core(driver), driver.partition, driver.now_ms
    end = partition.last_stable_offset if committed_only else partition.high_watermark
    told = DescribedQueuePartition(
        partition_index=wanted.partition_index,
        start_offset=core.start_offset,
        window_end_offset=core.end_offset,
        log_start_offset=partition.log.log_start_offset,
        log_end_offset=end,
        available=core.available + max(end - core.end_offset - 1, 0),
        locked=core.held,
        parked=core.parked,
        archiving=core.waiting_dead_letters,
        revived=core.revived,
    )
    if left.runs == 0:
        return told
    for run in core.runs(wanted.from_offset, core.end_offset):
        if left.runs == 0:
            told.next_offset = run.first_offset
            break
        left.runs -= 1
        told.runs.append(
            DescribedRun(
                first_offset=run.first_offset,
                last_offset=run.last_offset,
                state=run.state,
                delivery_count=run.delivery_count,
                member_id=run.member_id,
                cause=run.cause.name if run.cause else "",
                is_revived=run.revived,
                age_ms=now_ms - run.since_ms if run.since_ms else UNKNOWN_MS,
                left_ms=max(run.free_at_ms - now_ms, 0) if run.free_at_ms else UNKNOWN_MS,
            )
        )
    return told


def _checked(wanted: RedrivePartition) -> list[OffsetRange]:
    """The ranges in ascending order; they do not overlap."""
    ranges = sorted((one.first_offset, one.last_offset) for one in wanted.ranges)
    before = -1
    for first, last in ranges:
        if not before < first <= last:
            message = "ranges begin at 0 or later, do not end before they begin, and do not overlap"
            raise ApiError(ErrorCode.INVALID_REQUEST, message)
        before = last
    if sum(last - first + 1 for first, last in ranges) > REVIVED_RECORDS_MAX:
        message = f"at most {REVIVED_RECORDS_MAX} records of a partition can be revived at a time"
        raise ApiError(ErrorCode.INVALID_REQUEST, message)
    return ranges


def outcomes(driver: ShareDriver, ranges: Iterable[OffsetRange]) -> list[Outcome]:
    """What is to become of these records. A record of a compacted topic may be gone from the log
    though the log begins before it: it is taken for gone.
    """
    core, log = _core(driver), driver.partition.log
    alive_from = log.log_start_offset
    if "compact" in log.config.cleanup_policy:
        alive_from = core.end_offset + 1
    found: list[Outcome] = []

    def add(first: int, last: int, outcome: Redriven) -> None:
        if first > last:
            return
        if found and found[-1][1:] == (first - 1, outcome):
            first = found.pop()[0]
        found.append((first, last, outcome))

    for first, last in ranges:
        add(first, min(last, alive_from - 1), Redriven.GONE)
        first = max(first, alive_from)
        add(first, min(last, core.start_offset - 1), Redriven.REVIVED)
        for run in core.runs(max(first, core.start_offset), last):
            add(max(run.first_offset, first), min(run.last_offset, last), _outcome(run.state))
        add(max(first, core.end_offset + 1), last, Redriven.NOT_YET)
    return found


def _outcome(state: str) -> Redriven:
    if state in _GIVEN_UP:
        return Redriven.REVIVED
    return Redriven.NOT_YET if state in _ENDING else Redriven.UNFINISHED


async def _ready_to_revive(driver: ShareDriver) -> None:
    """Nothing may be awaited between this and the revival."""
    if not _core(driver).limits.dead_letters:
        return
    try:
        await driver.dead_letters.forget_marker()
    except (ApiError, InvariantBroken):
        raise
    except PenstockError as e:
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(e)) from e


def _revived(found: Iterable[Outcome]) -> list[OffsetRange]:
    return [(first, last) for first, last, outcome in found if outcome is Redriven.REVIVED]


async def _revive(driver: ShareDriver, found: Iterable[Outcome]) -> None:
    """Returns when it is written."""
    ranges = _revived(found)
    if not ranges:
        return
    over: asyncio.Future[ApiError | None] = asyncio.get_running_loop().create_future()

    def done(error: ApiError | None) -> None:
        if not over.done():
            over.set_result(error)

    driver.revive(ranges, done)
    if (error := await over) is not None:
        raise error


def _core(driver: ShareDriver) -> SharePartition:
    core = driver.core
    invariant(core is not None, "a share-partition that is loaded has a core")
    assert core is not None
    return core


def _group_id(group_id: str) -> str:
    if not group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID, "a share group has an id")
    return group_id


async def _some_at_once(answers: Iterable[Awaitable[_T]]) -> list[_T]:
    """All answers, in their order; a limited number of them is made at a time."""
    rest, turn = iter(answers), Turn()
    found: list[_T] = []
    while some := list(islice(rest, LOADS_AT_ONCE_MAX)):
        found += await asyncio.gather(*some)
        if turn.is_over:
            await turn.next()
    return found
