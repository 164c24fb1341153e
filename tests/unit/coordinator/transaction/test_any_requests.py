"""Whatever is asked in whatever order: the shard answers, keeps its invariants, and its records
rebuild it (the rig looks after every step).
"""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import ErrorCode
from penstock.coordinator.transaction.metadata import LAST_EPOCH_OF_CLIENTS
from penstock.coordinator.transaction.states import State
from penstock.wire.messages.describe_transactions import DescribeTransactionsRequest
from penstock.wire.messages.list_transactions import ListTransactionsRequest
from unit.coordinator.transaction.rig import FIRST_PRODUCER_ID, Rig

IDS = st.sampled_from(["t", "u", ""])
EPOCHS = st.one_of(st.integers(-1, 4), st.integers(LAST_EPOCH_OF_CLIENTS - 2, 2**15 - 1))
PRODUCERS = st.tuples(st.integers(FIRST_PRODUCER_ID, FIRST_PRODUCER_ID + 3), EPOCHS)
ANY_PRODUCER = st.one_of(PRODUCERS, st.tuples(st.sampled_from([-1, 0, 2**63 - 1]), EPOCHS))
CURRENT = st.none()
"""The producer that the transactional id has at the moment."""
NAMES = st.lists(st.sampled_from(["a-0", "a-1", "b-0"]), max_size=3, unique=True)
TIMEOUTS = st.sampled_from([1, 60_000, 0, 2**31 - 1])

STEPS = st.one_of(
    st.tuples(st.just("init"), IDS, st.integers(0, 5), TIMEOUTS),
    st.tuples(st.just("bump"), IDS, st.one_of(CURRENT, ANY_PRODUCER), st.integers(3, 5)),
    st.tuples(st.just("add"), IDS, st.one_of(CURRENT, ANY_PRODUCER), NAMES, st.integers(0, 5)),
    st.tuples(st.just("verify"), IDS, st.one_of(CURRENT, ANY_PRODUCER), NAMES),
    st.tuples(
        st.just("end"),
        IDS,
        st.one_of(CURRENT, CURRENT, ANY_PRODUCER),
        st.booleans(),
        st.integers(0, 5),
    ),
    st.tuples(st.just("markers")),
    st.tuples(st.just("crash")),
    st.tuples(st.just("time"), st.integers(0, 100_000)),
    st.tuples(st.just("expire")),
    st.tuples(st.just("epoch"), EPOCHS.filter(lambda epoch: 0 <= epoch <= LAST_EPOCH_OF_CLIENTS)),
    st.tuples(st.just("ids"), st.booleans()),
    st.tuples(st.just("feature"), st.integers(1, 2)),
    st.tuples(st.just("look")),
)


class Asker:
    def __init__(self) -> None:
        self.rig = Rig(transactional_id_expiration_ms=50_000)

    def producer(self, id_: str, named: tuple[int, int] | None) -> tuple[int, int]:
        found = self.rig.shard.transactions.get(id_)
        if named is not None or found is None:
            return named or (-1, -1)
        return found.producer_id, found.producer_epoch

    def init(self, id_: str, version: int, timeout_ms: int) -> None:
        self.rig.init(id_, version=version, transaction_timeout_ms=timeout_ms)

    def bump(self, id_: str, named: tuple[int, int] | None, version: int) -> None:
        producer_id, epoch = self.producer(id_, named)
        self.rig.init(id_, version=version, producer_id=producer_id, producer_epoch=epoch)

    def add(self, id_: str, named: tuple[int, int] | None, names: list[str], version: int) -> None:
        self.rig.add(self.producer(id_, named), *names, id_=id_, version=version)

    def verify(self, id_: str, named: tuple[int, int] | None, names: list[str]) -> None:
        self.rig.verify(self.producer(id_, named), *names, id_=id_)

    def end(self, id_: str, named: tuple[int, int] | None, commit: bool, version: int) -> None:
        self.rig.end(self.producer(id_, named), commit=commit, id_=id_, version=version)

    def markers(self) -> None:
        self.rig.write_markers()

    def crash(self) -> None:
        self.rig.crash()

    def expire(self) -> None:
        self.rig.expire()

    def time(self, passed_ms: int) -> None:
        rig = self.rig
        end = rig.now + passed_ms
        for _ in range(20):
            timer = rig.next_timer()
            if timer is None or timer[1] > end:
                break
            rig.now = max(rig.now, timer[1])
            rig.fire(timer[0])
        rig.now = end

    def epoch(self, epoch: int) -> None:
        """Jump ahead, never back."""
        found = self.rig.shard.transactions.get("t")
        if found and found.state is State.EMPTY and epoch > found.producer_epoch:
            self.rig.set_epoch(epoch)

    def ids(self, some: bool) -> None:
        self.rig.out_of_ids = not some

    def feature(self, level: int) -> None:
        self.rig.transaction_version = level

    def look(self) -> None:
        self.rig.ask(DescribeTransactionsRequest(transactional_ids=["t", ""]), 0)
        self.rig.ask(ListTransactionsRequest(duration_filter=1), 2)


@given(st.lists(STEPS, max_size=25))
def test_any_requests(steps: list[tuple[Any, ...]]) -> None:
    asker = Asker()
    epochs: dict[tuple[str, int], int] = {}
    for name, *arguments in steps:
        getattr(asker, name)(*arguments)
        for id_, metadata in asker.rig.shard.transactions.items():
            key = (id_, metadata.producer_id)
            assert metadata.producer_epoch >= epochs.get(key, 0)
            epochs[key] = metadata.producer_epoch


@given(st.lists(STEPS, max_size=15))
def test_whatever_has_happened_a_new_producer_can_begin(steps: list[tuple[Any, ...]]) -> None:
    asker = Asker()
    for name, *arguments in steps:
        getattr(asker, name)(*arguments)
    rig = asker.rig
    rig.out_of_ids = False
    for _ in range(3):
        rig.write_markers()
        code, *producer = rig.init()
        if code is ErrorCode.NONE:
            break
        assert code is ErrorCode.CONCURRENT_TRANSACTIONS
    assert code is ErrorCode.NONE
    owner = (producer[0], producer[1])
    assert rig.add(owner, "a-0", version=5) == [ErrorCode.NONE]
    assert rig.end(owner)[0] is ErrorCode.NONE
    rig.write_markers()
    assert rig.state == "CompleteCommit"
