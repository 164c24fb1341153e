"""A share-partition between the members and the persister: the order of writes, what becomes of
those that fail, loading, fencing, leaving.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import pytest

from penstock.base.errors import ApiError, ErrorCode
from penstock.base.ids import Uuid
from penstock.partitions.partition import Partition
from penstock.serving.share_driver import ShareDriver, ShareEnvironment, State
from penstock.share.partition import AckBatch, AcquireMode, ShareLimits
from penstock.share.types import RecordState, ShareKey, ShareState, StateBatch
from unit.net.served import run
from unit.serving.rig import until

TOPIC: Uuid = bytes(15) + b"t"
KEY = ShareKey("group", TOPIC, 0)
LIMITS = ShareLimits(2_000, 5, 30_000, True)
ACCEPT, RELEASE = 1, 2
MEMBER = "member"


class Write(NamedTuple):
    start_offset: int
    batches: list[StateBatch]
    done: Callable[[ErrorCode, str], None]


class Persister:
    """What was asked of the coordinator; the test answers."""

    def __init__(self, state: ShareState | ApiError) -> None:
        self.state = state
        self.reads: list[int] = []
        self.writes: list[Write] = []

    async def read(self, key: ShareKey, leader_epoch: int) -> ShareState:
        assert key == KEY
        self.reads.append(leader_epoch)
        await asyncio.sleep(0)
        if isinstance(self.state, ApiError):
            raise self.state
        return self.state

    def write(
        self,
        key: ShareKey,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        batches: Sequence[StateBatch],
        done: Callable[[ErrorCode, str], None],
    ) -> None:
        assert (key, state_epoch, leader_epoch) == (KEY, 3, 7)
        self.writes.append(Write(start_offset, list(batches), done))

    def answer(self, code: ErrorCode = ErrorCode.NONE) -> None:
        """Answers the only write that is under way."""
        [write] = self.writes
        self.writes.clear()
        write.done(code, "")


class Clock:
    def __init__(self) -> None:
        self.ms = 0

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000


class _Log:
    log_start_offset = 0


class _Replica:
    """The partition, as far as it matters here."""

    leader_epoch = 7

    def __init__(self) -> None:
        self.log = _Log()


class Waiting:
    def __init__(self) -> None:
        self.woken = 0

    def wake(self) -> None:
        self.woken += 1


class Rig:
    def __init__(
        self, start: int = 0, batches: Sequence[StateBatch] = (), refusal: ApiError | None = None
    ) -> None:
        self.persister = Persister(refusal or ShareState(3, start, -1, batches))
        self.clock = Clock()
        self.gone: list[ShareDriver] = []
        self.answers: list[ErrorCode | None] = []
        self.begins: int | ApiError = 0
        self.env = ShareEnvironment(
            cast(Any, self.persister), self.clock, lambda _: LIMITS, self._begin
        )
        replica = cast(Partition, _Replica())
        self.driver = ShareDriver(self.env, KEY, replica, self.gone.append)

    async def _begin(self, partition: Partition, group_id: str) -> int:
        if isinstance(self.begins, ApiError):
            raise self.begins
        return self.begins

    async def loaded(self) -> ShareDriver:
        self.driver.load()
        await until(lambda: self.driver.state is not State.INITIALIZING)
        return self.driver

    def acquire(self, *batches: tuple[int, int], member: str = MEMBER) -> Any:
        driver = self.driver
        assert driver.hold(Waiting())
        found = driver.acquire(
            member,
            batches,
            fetch_offset=driver.fetch_offset,
            max_records=500,
            batch_size=500,
            mode=AcquireMode.BATCH_OPTIMIZED,
            members=1,
        )
        driver.let_go()
        return [tuple(run) for run in found]

    def acknowledge(self, first: int, last: int, kind: int = ACCEPT) -> None:
        self.driver.acknowledge(MEMBER, [AckBatch(first, last, [kind])], self._answered)

    def _answered(self, error: ApiError | None) -> None:
        self.answers.append(error.code if error is not None else None)

    def written(self) -> list[tuple[int, int, RecordState]]:
        [write] = self.persister.writes
        return [(b.first_offset, b.last_offset, RecordState(b.state)) for b in write.batches]


def test_one_write_at_a_time_in_order_and_what_waits_is_one_write() -> None:
    async def test() -> None:
        rig = Rig()
        await rig.loaded()
        assert rig.acquire((0, 9)) == [(0, 9, 1)]
        rig.acknowledge(0, 1)
        rig.acknowledge(4, 5)
        rig.acknowledge(2, 3)
        done = RecordState.ACKNOWLEDGED
        assert rig.written() == [(0, 1, done)]
        assert rig.answers == []
        rig.persister.answer()
        assert rig.answers == [None]
        assert sorted(rig.written()) == [(2, 3, done), (4, 5, done)]
        rig.persister.answer()
        assert rig.answers == [None] * 3
        assert rig.persister.writes == []

    run(test)


def test_a_write_that_fails_gives_the_records_back_to_their_member() -> None:
    async def test() -> None:
        rig = Rig()
        driver = await rig.loaded()
        rig.acquire((0, 4))
        rig.acknowledge(0, 4)
        rig.persister.answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        assert rig.answers == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
        assert rig.env.counts.failed_writes == 1
        assert driver.is_active
        rig.acknowledge(0, 4)
        rig.persister.answer()
        assert rig.answers[-1] is None

    run(test)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (ErrorCode.FENCED_STATE_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.GROUP_ID_NOT_FOUND),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_what_was_fenced_is_thrown_away(code: ErrorCode, told: ErrorCode) -> None:
    async def test() -> None:
        rig = Rig()
        driver = await rig.loaded()
        rig.acquire((0, 4))
        waiting = Waiting()
        driver.waiting[waiting] = None
        rig.acknowledge(0, 1)
        rig.acknowledge(2, 3)
        rig.persister.answer(code)
        assert sorted(c or 0 for c in rig.answers) == [told, told], "what waited behind it as well"
        assert driver.state is State.FENCED
        assert rig.gone == [driver]
        assert driver.error is not None
        assert driver.error.code == told
        assert waiting.woken
        rig.acknowledge(4, 4)
        assert rig.answers[-1] == told

    run(test)


def test_a_write_under_way_is_answered_as_it_ends_after_the_leader_has_changed() -> None:
    async def test() -> None:
        rig = Rig()
        driver = await rig.loaded()
        rig.acquire((0, 4))
        rig.acknowledge(0, 1)
        driver.fence(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        assert rig.answers == []
        rig.persister.answer()
        assert rig.answers == [None], "it is persisted: the next leader has it"

    run(test)


def test_it_leaves_only_when_nothing_is_being_written() -> None:
    async def test() -> None:
        rig = Rig()
        driver = await rig.loaded()
        rig.acquire((0, 4))
        driver.release(MEMBER)
        driver.retire()
        assert driver.is_active
        rig.persister.answer()
        assert driver.state is State.FENCED

    run(test)


def test_a_member_that_comes_meanwhile_keeps_it() -> None:
    async def test() -> None:
        rig = Rig()
        driver = await rig.loaded()
        rig.acquire((0, 4))
        driver.release(MEMBER)
        driver.retire()
        driver.serve_on()
        rig.persister.answer()
        assert driver.is_active
        assert rig.acquire((0, 4), member="other") == [(0, 4, 2)]

    run(test)


def test_it_goes_on_where_the_state_says() -> None:
    async def test() -> None:
        done = RecordState.ACKNOWLEDGED
        rig = Rig(5, [StateBatch(5, 6, done, 1), StateBatch(7, 8, RecordState.AVAILABLE, 2)])
        driver = await rig.loaded()
        assert driver.fetch_offset == 7
        assert rig.acquire((7, 8), (9, 10)) == [(7, 8, 3), (9, 10, 1)]

    run(test)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_state_that_cannot_be_read(code: ErrorCode, told: ErrorCode) -> None:
    async def test() -> None:
        rig = Rig(refusal=ApiError(code))
        driver = await rig.loaded()
        assert driver.state is State.FAILED
        assert driver.error is not None
        assert driver.error.code == told
        assert rig.gone == [driver]
        assert rig.env.counts.failed_loads == 1

    run(test)


def test_a_start_that_the_leader_cannot_tell_yet() -> None:
    async def test() -> None:
        rig = Rig(-1)
        rig.begins = ApiError(ErrorCode.OFFSET_NOT_AVAILABLE)
        driver = await rig.loaded()
        assert driver.error is not None
        assert driver.error.code == ErrorCode.OFFSET_NOT_AVAILABLE

    run(test)


def test_one_fetch_holds_it_at_a_time_and_who_missed_it_is_woken() -> None:
    async def test() -> None:
        rig = Rig()
        driver = await rig.loaded()
        first, second = Waiting(), Waiting()
        assert driver.hold(first)
        assert not driver.hold(second)
        driver.let_go()
        assert (first.woken, second.woken) == (0, 1)
        assert driver.hold(second)

    run(test)


def test_locks_run_out_by_one_timer() -> None:
    async def test() -> None:
        rig = Rig()
        driver = await rig.loaded()
        rig.acquire((0, 4))
        rig.clock.ms = 30_000
        waiting = Waiting()
        driver.waiting[waiting] = None
        driver._run_out()
        assert rig.env.counts.lock_timeouts == 5
        assert rig.written() == [(0, 4, RecordState.AVAILABLE)]
        assert waiting.woken
        assert driver.fetch_offset == 0, "free at once, written or not"

    run(test)


def test_a_log_that_begins_later_moves_the_start() -> None:
    async def test() -> None:
        rig = Rig()
        driver = await rig.loaded()
        rig.acquire((0, 4))
        driver.partition.log.log_start_offset = 8
        assert driver.fetch_offset == 8
        [write] = rig.persister.writes
        assert write.start_offset == 8

    run(test)
