"""Offsets in transactions inside a node: verified, guarded, kept over a change of leaders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from penstock.coordinator.effects import EndTxnMarker
from penstock.metadata.names import OFFSETS_TOPIC
from penstock.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from penstock.wire.messages.end_txn import EndTxnRequest
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from penstock.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from unit.coordinating.test_group_coordinator import (
    FEW,
    commit,
    committed,
    driver_of,
    find,
    lag_of,
    offsets_partition,
    settled,
)
from unit.coordinating.test_group_leadership import elect
from unit.net.served import run
from unit.serving.rig import Peer, Rig, running, until

FEW_TRANSACTIONS = FEW | {
    "transaction_state_log_num_partitions": "2",
    "transaction_state_log_replication_factor": "1",
    "transaction_state_log_min_isr": "1",
}
BUSY = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_COORDINATOR,
)


async def ready(peer: Peer, request: Any, version: int) -> Any:
    """The answer, once the transaction's coordinator has one."""
    while (answer := await peer.call(request, version)).error_code in BUSY:
        continue
    return answer


class Txn:
    """A producer with the transactional id `x`, whose transactions store offsets of group `g`."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.producer_id, self.epoch = -1, -1

    async def begin(self) -> None:
        request = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000)
        found = await ready(self.peer, request, 4)
        assert found.error_code == 0
        self.producer_id, self.epoch = found.producer_id, found.producer_epoch

    def _fields(self) -> dict[str, Any]:
        return {
            "transactional_id": "x",
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }

    async def add_offsets(self) -> None:
        request = AddOffsetsToTxnRequest(group_id="g", **self._fields())
        assert (await ready(self.peer, request, 3)).error_code == 0

    async def commit(self, offset: int, version: int = 3, **fields: Any) -> int:
        data = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        request = TxnOffsetCommitRequest(
            topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[data])],
            **({"group_id": "g"} | self._fields() | fields),
        )
        answer = await self.peer.call(request, version)
        return int(answer.topics[0].partitions[0].error_code)

    async def end(self, *, commit: bool) -> None:
        request = EndTxnRequest(committed=commit, **self._fields())
        assert (await ready(self.peer, request, 4)).error_code == 0


async def prepared(rig: Rig) -> Txn:
    """A node with topic `t`, coordinators for group and transaction, and a producer."""
    peer = await rig.peer()
    await rig.topic()
    await find(peer, "g")
    await find(peer, "x", kind=1)
    txn = Txn(peer)
    await txn.begin()
    return txn


async def is_stable(peer: Peer) -> bool:
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    one = OffsetFetchRequestGroup(group_id="g", topics=topics)
    answer = await peer.call(OffsetFetchRequest(groups=[one], require_stable=True), 9)
    code = answer.groups[0].topics[0].partitions[0].error_code
    assert code in (0, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    return int(code) == 0


def is_open(rig: Rig) -> bool:
    return bool(offsets_partition(rig, "g").log.producers.ongoing)


# -- the whole way ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", TxnOffsetCommitRequest.VERSIONS)
def test_offsets_count_when_the_marker_is_written(tmp_path: Path, version: int) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW_TRANSACTIONS) as rig:
            txn = await prepared(rig)
            if version < 5:
                await txn.add_offsets()
            assert await txn.commit(5, version) == 0
            assert await committed(txn.peer, "g") == (0, -1)
            assert not await is_stable(txn.peer)
            await txn.end(commit=True)
            await until(lambda: not is_open(rig))
            assert await is_stable(txn.peer)
            assert await committed(txn.peer, "g") == (0, 5)

    run(test)


def test_an_open_transaction_survives_a_change_of_leaders(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW_TRANSACTIONS) as rig:
            txn = await prepared(rig)
            assert await commit(txn.peer, "g", 3) == 0
            await txn.add_offsets()
            assert await txn.commit(5) == 0
            await elect(rig, "g", rig.broker.node_id)
            assert await settled(txn.peer, "g") == 3
            assert not await is_stable(txn.peer)
            assert await txn.commit(6) == 0
            await txn.end(commit=True)
            await until(lambda: not is_open(rig))
            await elect(rig, "g", rig.broker.node_id)
            assert await settled(txn.peer, "g") == 6
            assert await is_stable(txn.peer)

    run(test)


def test_an_open_transaction_survives_a_restart(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW_TRANSACTIONS) as rig:
            txn = await prepared(rig)
            await txn.add_offsets()
            assert await txn.commit(5) == 0
        async with running(tmp_path, **FEW_TRANSACTIONS) as rig:
            txn.peer = await rig.peer()
            assert await settled(txn.peer, "g") == -1
            assert not await is_stable(txn.peer)
            await txn.end(commit=False)
            await until(lambda: not is_open(rig))
            assert await settled(txn.peer, "g") == -1
            assert await is_stable(txn.peer)

    run(test)


def test_lag_is_that_of_committed_offsets(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW_TRANSACTIONS) as rig:
            txn = await prepared(rig)
            await txn.add_offsets()
            assert await txn.commit(5) == 0
            assert list(lag_of(rig).read(with_seconds=False)) == []
            assert list(rig.broker.groups.committed_offsets()) == []

    run(test)


# -- what is refused -------------------------------------------------------------------------------


def test_an_old_producer_is_fenced_and_the_shard_lives_on(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(
            tmp_path, transaction_partition_verification_enable="false", **FEW_TRANSACTIONS
        ) as rig:
            txn = await prepared(rig)
            shard = driver_of(rig, "g").shard if await commit(txn.peer, "g", 1) == 0 else None
            txn.epoch += 1
            assert await txn.commit(5) == 0, "nobody asks the coordinator"
            old = await txn.commit(6, producer_epoch=txn.epoch - 1)
            assert old == ErrorCode.INVALID_PRODUCER_EPOCH
            assert driver_of(rig, "g").shard is shard
            assert await committed(txn.peer, "g") == (0, 1)

    run(test)


def test_what_the_coordinator_does_not_know_is_refused(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW_TRANSACTIONS) as rig:
            txn = await prepared(rig)
            assert await txn.commit(5, 3) == ErrorCode.INVALID_TXN_STATE
            assert await txn.commit(5, 4) == ErrorCode.TRANSACTION_ABORTABLE
            no_producer = {"producer_id": -1, "producer_epoch": -1}
            for version in (3, 5):
                code = await txn.commit(5, version, **no_producer)
                assert code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
            assert await is_stable(txn.peer)
            assert not is_open(rig)

    run(test)


@pytest.mark.parametrize("version", [3, 5])
def test_a_marker_between_the_question_and_the_append(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW_TRANSACTIONS) as rig:
            txn = await prepared(rig)
            await txn.add_offsets()
            verify = rig.broker.verifier.verify
            index = rig.broker.groups.partition_of("g")
            assert index is not None

            async def ended_meanwhile(*question: Any) -> Any:
                answer = await verify(*question)
                assert answer == {}
                marker = EndTxnMarker(txn.producer_id, txn.epoch, 0, commit=False)
                code = await rig.broker.groups.end_transaction(index, marker)
                assert code is ErrorCode.NONE
                return answer

            with monkeypatch.context() as patched:
                patched.setattr(rig.broker.verifier, "verify", ended_meanwhile)
                assert await txn.commit(5, version) == ErrorCode.INVALID_TXN_STATE
            assert await is_stable(txn.peer)
            assert not is_open(rig)

    run(test)


def test_the_last_transactions_marker_may_come_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the partition is added by the question, the question is asked again."""

    async def test() -> None:
        async with running(tmp_path, **FEW_TRANSACTIONS) as rig:
            txn = await prepared(rig)
            verify = rig.broker.verifier.verify
            index = rig.broker.groups.partition_of("g")
            assert index is not None
            asked = 0

            async def late_marker(*question: Any) -> Any:
                nonlocal asked
                asked += 1
                answer = await verify(*question)
                if asked == 1:
                    marker = EndTxnMarker(txn.producer_id, txn.epoch, 0, commit=False)
                    await rig.broker.groups.end_transaction(index, marker)
                return answer

            with monkeypatch.context() as patched:
                patched.setattr(rig.broker.verifier, "verify", late_marker)
                assert await txn.commit(5, 5) == 0
            assert asked == 2
            assert not await is_stable(txn.peer)

    run(test)


def test_another_leader_between_the_question_and_the_append(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW_TRANSACTIONS) as rig:
            txn = await prepared(rig)
            await txn.add_offsets()
            verify = rig.broker.verifier.verify

            async def elected_meanwhile(*question: Any) -> Any:
                answer = await verify(*question)
                await elect(rig, "g", rig.broker.node_id)
                return answer

            with monkeypatch.context() as patched:
                patched.setattr(rig.broker.verifier, "verify", elected_meanwhile)
                assert await txn.commit(5) == ErrorCode.NOT_COORDINATOR
            assert not is_open(rig)

    run(test)


def test_a_question_that_is_lost_is_to_be_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW_TRANSACTIONS) as rig:
            txn = await prepared(rig)
            await txn.add_offsets()

            async def lost(*question: Any) -> Any:
                return dict.fromkeys(question[3], ErrorCode.NETWORK_EXCEPTION)

            with monkeypatch.context() as patched:
                patched.setattr(rig.broker.verifier, "verify", lost)
                assert await txn.commit(5) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
                assert await txn.commit(5, 1) == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert await txn.commit(5) == 0

    run(test)


def test_markers_for_a_shard_that_is_not_here(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW_TRANSACTIONS) as rig:
            marker = EndTxnMarker(1, 0, 0, commit=True)
            assert OFFSETS_TOPIC not in rig.broker.metadata.topics
            code = await rig.broker.groups.end_transaction(0, marker)
            assert code is ErrorCode.NOT_COORDINATOR
            await prepared(rig)
            code = await rig.broker.groups.end_transaction(99, marker)
            assert code is ErrorCode.NOT_COORDINATOR
            assert await rig.broker.groups.end_transaction(0, marker) is ErrorCode.NONE

    run(test)
