"""The transaction coordinator inside a node: its topic, its shards, what survives, and markers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.base.errors import ErrorCode
from penstock.coordinating.shard_driver import ShardState
from penstock.coordinator.effects import EndTxnMarker
from penstock.metadata.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from penstock.metadata.records import NO_LEADER
from penstock.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from penstock.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from penstock.wire.messages.describe_transactions import DescribeTransactionsRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.messages.list_transactions import ListTransactionsRequest
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from penstock.wire.records import ControlType, control_type, parse_header, read_records
from support.calls import RawTopic
from unit.coordinating.transaction_rig import (
    FEW,
    PASSING,
    Identity,
    add,
    begin,
    driver_of,
    elect,
    end,
    open_transaction,
    shard_partition,
    state,
    state_becomes,
    write,
)
from unit.net.served import run
from unit.serving.rig import Peer, Rig, full_disk, running, until


async def prepared_without_leader(rig: Rig, peer: Peer, *, commit: bool = True) -> RawTopic:
    """A decided transaction whose one marker cannot be written: its partition has no leader."""
    topic = await rig.topic()
    who = await open_transaction(peer, topic)
    await elect(rig, "t", 0, NO_LEADER)
    assert await end(peer, who, commit=commit) == 0
    decided = "PrepareCommit" if commit else "PrepareAbort"
    assert (await state(peer)).transaction_state == decided
    assert rig.broker.transactions.markers.pending == 1
    return topic


def markers(rig: Rig, topic: RawTopic) -> list[ControlType]:
    """The control records of partition 0."""
    log = rig.partition(topic).log
    kinds, offset = [], 0
    while offset < log.log_end_offset:
        found = log.read(offset, 1, up_to_offset=log.log_end_offset)
        assert found is not None
        data = memoryview(found.read())
        header = parse_header(data)
        if header.is_control:
            kinds += [control_type(record) for record in read_records(data[: header.size])]
        offset = header.last_offset + 1
    return kinds


# -- where a transactional id lives ----------------------------------------------------------------


def test_the_first_question_creates_the_topic(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, transaction_state_log_segment_bytes="2000000", **FEW) as rig:
            peer = await rig.peer()
            request = FindCoordinatorRequest(coordinator_keys=["a", "b"], key_type=1)
            for found in (await peer.call(request, 6)).coordinators:
                assert (found.error_code, found.node_id) == (0, rig.broker.node_id)
            assert len(rig.broker.metadata.topics[TRANSACTIONS_TOPIC].partitions) == 4
            config = rig.broker.topic_config(TRANSACTIONS_TOPIC)
            assert config.cleanup_policy == {"compact"}
            assert (config.segment_bytes, config.min_insync_replicas) == (2_000_000, 2)

    run(test)


def test_asking_for_its_metadata_creates_the_topic_as_it_must_be(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, auto_create_topics_enable="true", **FEW) as rig:
            peer = await rig.peer()
            topics = [MetadataRequestTopic(name=TRANSACTIONS_TOPIC)]
            await peer.call(MetadataRequest(topics=topics), 8)
            assert len(rig.broker.metadata.topics[TRANSACTIONS_TOPIC].partitions) == 4
            assert rig.broker.topic_config(TRANSACTIONS_TOPIC).cleanup_policy == {"compact"}

    run(test)


def test_only_the_coordinator_writes_to_its_topic(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer = await rig.peer()
            await begin(peer)
            own = RawTopic(TRANSACTIONS_TOPIC, rig.broker.metadata.topics[TRANSACTIONS_TOPIC].id)
            refused = ErrorCode.INVALID_TOPIC_EXCEPTION
            assert (await peer.produce(own)).error_code == refused

    run(test)


def test_a_transactional_id_before_there_is_a_coordinator(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer = await rig.peer()
            for id_, code in (("x", ErrorCode.NOT_COORDINATOR), ("", ErrorCode.INVALID_REQUEST)):
                request = InitProducerIdRequest(transactional_id=id_, transaction_timeout_ms=9)
                assert (await peer.call(request, 5)).error_code == code
                [found] = (
                    await peer.call(DescribeTransactionsRequest(transactional_ids=[id_]), 0)
                ).transaction_states
                assert (found.error_code, found.transactional_id) == (code, id_)
            asked = ListTransactionsRequest(state_filters=["Ongoing", "Sleeping"])
            listed = await peer.call(asked, 2)
            assert (listed.error_code, listed.unknown_state_filters) == (0, ["Sleeping"])

    run(test)


# -- the way of a transaction ----------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", range(5))
def test_a_transaction_ends_in_its_partitions(tmp_path: Path, version: int, commit: bool) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer, topic = await rig.peer(), await rig.topic()
            who = await open_transaction(peer, topic)
            partition = rig.partition(topic)
            assert (partition.last_stable_offset, partition.high_watermark) == (0, 1)
            [shown] = list(rig.broker.transactions.open_transactions())
            assert (shown.transactional_id, shown.state) == ("x", "Ongoing")
            assert shown.age_ms >= 0

            assert await end(peer, who, commit=commit, version=version) == 0
            await state_becomes(peer, "CompleteCommit" if commit else "CompleteAbort")
            assert partition.last_stable_offset == partition.high_watermark == 2
            kind = ControlType.COMMIT if commit else ControlType.ABORT
            assert markers(rig, topic) == [kind]
            assert not rig.broker.transactions.markers.pending
            assert not list(rig.broker.transactions.open_transactions())

    run(test)


def test_no_marker_goes_out_before_the_decision_is_committed(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, log_flush_interval_messages="1", **FEW) as rig:
            peer, topic = await rig.peer(), await rig.topic()
            who = await open_transaction(peer, topic)
            log = rig.partition(topic).log
            with rig.held_flushes():
                task = asyncio.create_task(end(peer, who))
                await until(lambda: driver_of(rig)._uncommitted)
                await asyncio.sleep(0.05)
                assert not task.done()
                assert not rig.broker.transactions.markers.pending
                assert log.log_end_offset == 1
            assert await task == 0
            await state_becomes(peer, "CompleteCommit")
            assert log.log_end_offset == 2

    run(test)


def test_a_transaction_that_takes_too_long_is_aborted(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer, topic = await rig.peer(), await rig.topic()
            who = await open_transaction(peer, topic, timeout_ms=50)
            await state_becomes(peer, "CompleteAbort")
            assert markers(rig, topic) == [ControlType.ABORT]
            assert await end(peer, who) == ErrorCode.PRODUCER_FENCED
            assert await end(peer, who, version=1) == ErrorCode.INVALID_PRODUCER_EPOCH

    run(test)


def test_transactional_ids_that_are_not_used_are_forgotten(tmp_path: Path) -> None:
    settings = FEW | {
        "transactional_id_expiration_ms": "1",
        "transaction_remove_expired_transaction_cleanup_interval_ms": "20",
    }

    async def test() -> None:
        async with running(tmp_path, **settings) as rig:
            peer = await rig.peer()
            await begin(peer)
            await until(lambda: not driver_of(rig).shard.transactions)
            assert (await state(peer)).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND

    run(test)


# -- adding ----------------------------------------------------------------------------------------


def test_partitions_that_cannot_be_added(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer = await rig.peer()
            await rig.topic()
            who = await begin(peer)
            unknown, skipped = (
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ErrorCode.OPERATION_NOT_ATTEMPTED,
            )
            closed = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            for version in range(4):
                codes = await add(peer, who, "t", "nowhere", TRANSACTIONS_TOPIC, version=version)
                assert codes == [skipped, unknown, closed]
                assert await add(peer, who, "t", index=7, version=version) == [unknown]
                stale = Identity(who.producer_id, who.epoch + 5)
                fenced = (
                    ErrorCode.INVALID_PRODUCER_EPOCH if version < 2 else ErrorCode.PRODUCER_FENCED
                )
                assert await add(peer, stale, "t", version=version) == [fenced]
            assert (await state(peer)).transaction_state == "Empty"

    run(test)


def test_brokers_ask_for_several_transactions_at_once(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer = await rig.peer()
            await rig.topic(partitions=3)
            ids = [f"x{i}" for i in range(8)]
            owners = {id_: await begin(peer, id_) for id_ in ids}
            assert len({rig.broker.transactions.partition_of(id_) for id_ in ids}) > 1

            async def ask(topic: str, *, verify_only: bool) -> dict[str, list[ErrorCode]]:
                request = AddPartitionsToTxnRequest(
                    transactions=[
                        AddPartitionsToTxnTransaction(
                            transactional_id=id_,
                            producer_id=who.producer_id,
                            producer_epoch=who.epoch,
                            verify_only=verify_only,
                            topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0, 1])],
                        )
                        for id_, who in owners.items()
                    ]
                )
                answer = await peer.call(request, 5)
                assert answer.error_code == 0
                return {
                    one.transactional_id: [
                        ErrorCode(p.partition_error_code)
                        for t in one.topic_results
                        for p in t.results_by_partition
                    ]
                    for one in answer.results_by_transaction
                }

            none, abortable = ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE
            assert await ask("t", verify_only=True) == dict.fromkeys(ids, [abortable] * 2)
            assert await ask("t", verify_only=False) == dict.fromkeys(ids, [none] * 2)
            assert await ask("t", verify_only=True) == dict.fromkeys(ids, [none] * 2)
            gone = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert await ask("nowhere", verify_only=False) == dict.fromkeys(ids, [gone] * 2)

    run(test)


@pytest.mark.parametrize("version", range(5))
def test_offsets_of_a_group_come_into_a_transaction(tmp_path: Path, version: int) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer = await rig.peer()
            who = await begin(peer)
            request = AddOffsetsToTxnRequest(
                transactional_id="x",
                producer_id=who.producer_id,
                producer_epoch=who.epoch,
                group_id="g",
            )
            assert (await peer.call(request, version)).error_code == 0
            [topic] = (await state(peer)).topics
            assert topic.topic == OFFSETS_TOPIC
            assert topic.partitions == [rig.broker.groups.partition_of("g")]
            request.producer_epoch += 1
            fenced = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
            assert (await peer.call(request, version)).error_code == fenced

    run(test)


# -- markers that cannot be written ----------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
def test_markers_wait_for_a_leader(tmp_path: Path, commit: bool) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer = await rig.peer()
            topic = await prepared_without_leader(rig, peer, commit=commit)
            await elect(rig, "t", 0, rig.broker.node_id)
            await state_becomes(peer, "CompleteCommit" if commit else "CompleteAbort")
            kind = ControlType.COMMIT if commit else ControlType.ABORT
            assert markers(rig, topic) == [kind]
            assert rig.partition(topic).last_stable_offset == 2

    run(test)


def test_a_partition_that_is_gone_needs_no_marker(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer = await rig.peer()
            await prepared_without_leader(rig, peer)
            await rig.delete_topic("t")
            await state_becomes(peer, "CompleteCommit")

    run(test)


def test_a_new_leader_of_the_shard_goes_on_with_the_markers(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer = await rig.peer()
            topic = await prepared_without_leader(rig, peer)
            former = driver_of(rig)
            index = rig.broker.transactions.partition_of("x")
            assert index is not None
            await elect(rig, TRANSACTIONS_TOPIC, index, NO_LEADER)
            assert not rig.broker.transactions.markers.pending
            await elect(rig, TRANSACTIONS_TOPIC, index, rig.broker.node_id)
            await until(lambda: rig.broker.transactions.markers.pending)
            await elect(rig, "t", 0, rig.broker.node_id)
            await state_becomes(peer, "CompleteCommit")
            # The markers carry the coordinator epoch, which is the leader epoch of the shard.
            [entry] = rig.partition(topic).log.producers.producers.values()
            assert entry.coordinator_epoch == former.leader_epoch + 2

    run(test)


def test_a_restart_goes_on_with_the_markers(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer = await rig.peer()
            topic = await prepared_without_leader(rig, peer)
            other = await open_transaction(peer, await rig.topic("u"), id_="y")
        async with running(tmp_path, **FEW) as rig:
            peer = await rig.peer()
            if rig.broker.metadata.topics["t"].partitions[0].leader == NO_LEADER:
                await elect(rig, "t", 0, rig.broker.node_id)
            await state_becomes(peer, "CompleteCommit")
            assert markers(rig, topic) == [ControlType.COMMIT]
            # What was open is still open, and its producer goes on with it.
            assert (await state(peer, "y")).transaction_state == "Ongoing"
            assert await end(peer, other, id_="y") == 0
            await state_becomes(peer, "CompleteCommit", "y")

    run(test)


def test_a_partition_that_knows_a_newer_producer_ends_the_sending(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer, topic = await rig.peer(), await rig.topic()
            who = await open_transaction(peer, topic)
            newer = WritableTxnMarker(
                producer_id=who.producer_id,
                producer_epoch=who.epoch + 1,
                transaction_result=False,
                topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
            )
            await peer.call(WriteTxnMarkersRequest(markers=[newer]), 1)
            assert await end(peer, who) == 0
            await until(lambda: not rig.broker.transactions.markers.pending)
            assert (await state(peer)).transaction_state == "PrepareCommit"
            assert markers(rig, topic) == [ControlType.ABORT]

    run(test)


# -- shards that fail ------------------------------------------------------------------------------


def test_a_full_disk_costs_the_shard_and_nothing_else(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, transaction_state_log_num_partitions="1") as rig:
            peer = await rig.peer()
            topic = await rig.topic(partitions=400)
            who = await open_transaction(peer, topic)
            log = shard_partition(rig).log
            for index in range(1, 400):  # each writes the whole transaction anew
                if log.segments.active.size > 64 * 1024:
                    break
                assert await add(peer, who, "t", index=index) == [ErrorCode.NONE]
            with full_disk(shard_partition(rig)):
                assert await end(peer, who) == ErrorCode.COORDINATOR_NOT_AVAILABLE
                assert driver_of(rig).state is not ShardState.ACTIVE
                assert not rig.broker.transactions.markers.pending
            assert (await state(peer)).transaction_state == "Ongoing"
            while (code := await end(peer, who)) != 0:
                assert code in PASSING
                await asyncio.sleep(0.05)
            await state_becomes(peer, "CompleteCommit")

    run(test)


def test_a_marker_that_the_log_refuses_leaves_the_group_shard_alone(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer = await rig.peer()
            await peer.call(FindCoordinatorRequest(coordinator_keys=["g"]), 6)
            index = rig.broker.groups.partition_of("g")
            assert index is not None
            driver = rig.broker.groups._driver_at(index)
            assert driver is not None
            await until(lambda: driver.state is ShardState.ACTIVE)
            log = rig.broker.replicas.leader_of(OFFSETS_TOPIC, index).log
            assert await driver.end_transaction(EndTxnMarker(5, 3, 2, True)) == ErrorCode.NONE
            assert log.log_end_offset == 1
            fenced = ErrorCode.INVALID_PRODUCER_EPOCH
            assert await driver.end_transaction(EndTxnMarker(5, 2, 2, True)) == fenced
            fenced = ErrorCode.TRANSACTION_COORDINATOR_FENCED
            assert await driver.end_transaction(EndTxnMarker(5, 3, 1, True)) == fenced
            assert (driver.state, log.log_end_offset) == (ShardState.ACTIVE, 1)
            driver.close()
            away = ErrorCode.NOT_COORDINATOR
            assert await driver.end_transaction(EndTxnMarker(5, 3, 2, True)) == away

    run(test)


def test_a_write_of_an_unknown_transaction_is_refused(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer, topic = await rig.peer(), await rig.topic()
            who = await begin(peer)
            assert await write(peer, topic, who) == ErrorCode.TRANSACTION_ABORTABLE

    run(test)
