"""Transactions at a partition's leader: verification, guards, markers, and who is woken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from penstock.metadata.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from penstock.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from penstock.wire.messages.describe_transactions import DescribeTransactionsRequest
from penstock.wire.messages.end_txn import EndTxnRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from support import calls
from support.batches import Rec, batch
from support.calls import RawTopic
from unit.serving.rig import (
    Peer,
    Rig,
    full_disk,
    one,
    produce_request,
    running,
    until,
    waiting_reads,
)

TRANSACTIONAL = 0x10
TRANSACTION = 1
ID = "mine"
# Produce of clients that add their partitions themselves, and of those that need not.
OLD, NEW = 11, 13


def run(test: Any) -> None:
    asyncio.run(test())


class Sender:
    """A producer with a transactional id, by hand."""

    def __init__(self, rig: Rig, peer: Peer, topic: RawTopic) -> None:
        self.rig = rig
        self.peer = peer
        self.topic = topic
        self.producer_id = self.epoch = -1

    async def init(self) -> Sender:
        asked = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[ID])
        answer = await self.patiently(asked, 4, lambda a: a.coordinators[0].error_code)
        answer = await self.patiently(
            InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=60_000), 4
        )
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return self

    async def patiently(self, request: Any, version: int, code: Any = None) -> Any:
        """The first answer without an error."""
        for _ in range(500):
            answer = await self.peer.call(request, version)
            error = answer.error_code if code is None else code(answer)
            if not error:
                return answer
            await asyncio.sleep(0.01)
        raise AssertionError(f"{request} is answered with {ErrorCode(error).name}")

    async def add(self, *partitions: int) -> None:
        topics = [AddPartitionsToTxnTopic(name=self.topic.name, partitions=list(partitions))]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=ID,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=topics,
        )

        def code(answer: Any) -> int:
            [of_topic] = answer.results_by_topic_v3_and_below
            return max(p.partition_error_code for p in of_topic.results_by_partition)

        await self.patiently(request, 3, code)

    async def end(self, *, commit: bool, version: int) -> None:
        """End the transaction; markers follow by themselves."""
        request = EndTxnRequest(
            transactional_id=ID,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        answer = await self.patiently(request, version)
        if version >= 5:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    def request(self, sequence: int, version: int, partition: int = 0, **fields: Any) -> Any:
        base = {
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "base_sequence": sequence,
            "attributes": TRANSACTIONAL,
        }
        value = b"x" * fields.pop("size", 1)
        records = batch([Rec(value, timestamp=self.rig.broker.clock.now_ms())], **(base | fields))
        request = produce_request(self.topic, records, version, partition=partition)
        request.transactional_id = ID
        return request

    async def send(self, sequence: int, version: int, **how: Any) -> Any:
        return one(await self.peer.call(self.request(sequence, version, **how), version))


@asynccontextmanager
async def sending(
    tmp_path: Path, partitions: int = 1, **settings: str
) -> AsyncIterator[tuple[Rig, Sender]]:
    settings |= {"transaction_state_log_num_partitions": "1", "offsets_topic_num_partitions": "1"}
    async with running(tmp_path, **settings) as rig:
        topic = await rig.topic(partitions=partitions)
        yield rig, await Sender(rig, await rig.peer(), topic).init()


class Gate:
    """Lets verifications take place and holds their answers back."""

    def __init__(self, rig: Rig) -> None:
        self._verify = rig.broker.verifier.verify
        self.answers: list[dict[Any, ErrorCode]] = []
        self.open = asyncio.Event()
        rig.broker.verifier.verify = self.verify  # type: ignore[method-assign]

    async def verify(self, *args: Any) -> dict[Any, ErrorCode]:
        answer = await self._verify(*args)
        self.answers.append(answer)
        await self.open.wait()
        return answer

    async def answered(self) -> None:
        """Until the coordinator has answered once, with a yes."""
        await until(lambda: self.answers)
        assert self.answers == [{}]


@pytest.mark.parametrize("version", [OLD, NEW])
def test_a_marker_that_comes_before_the_verified_append_keeps_it_out(
    tmp_path: Path, version: int
) -> None:
    async def test() -> None:
        async with sending(tmp_path) as (rig, sender):
            log = rig.partition(sender.topic).log
            if version == OLD:
                await sender.add(0)
            gate = Gate(rig)
            late = await rig.peer()
            late.send(sender.request(0, version), version)
            await gate.answered()
            await sender.end(commit=False, version=4 if version == OLD else 5)
            await until(lambda: log.log_end_offset == 1)  # the marker
            gate.open.set()
            answer = one(await late.receive())
            assert answer.error_code == (
                ErrorCode.INVALID_TXN_STATE if version == OLD else ErrorCode.INVALID_PRODUCER_EPOCH
            )
            assert (log.log_end_offset, log.producers.ongoing) == (1, {})

    run(test)


@pytest.mark.parametrize("version", [OLD, NEW])
def test_what_comes_behind_a_verification_keeps_its_order(tmp_path: Path, version: int) -> None:
    async def test() -> None:
        async with sending(tmp_path, partitions=2) as (rig, sender):
            if version == OLD:
                await sender.add(0)
            gate = Gate(rig)
            for sequence in range(4):
                sender.peer.send(sender.request(sequence, version), version)
            await gate.answered()
            # Nobody else waits for it.
            assert (await (await rig.peer()).produce(sender.topic, partition=1)).error_code == 0
            assert await sender.peer.silent()
            assert rig.partition(sender.topic).log.log_end_offset == 0
            gate.open.set()
            answers = [one(await sender.peer.receive()) for _ in range(4)]
            assert [(a.error_code, a.base_offset) for a in answers] == [(0, i) for i in range(4)]
            assert len(gate.answers) == 1, "the first append has opened the transaction"
            assert rig.server.memory.used_bytes == 0

    run(test)


def test_a_connection_that_ends_while_it_is_verified_leaves_nothing_behind(tmp_path: Path) -> None:
    async def test() -> None:
        async with sending(tmp_path) as (rig, sender):
            gate = Gate(rig)
            lost = await rig.peer()
            lost.send(sender.request(0, NEW), NEW)
            await gate.answered()
            lost.close()
            await until(lambda: lost.inside.closing)
            gate.open.set()
            # As everywhere, what has arrived is appended.
            await until(lambda: rig.partition(sender.topic).log.log_end_offset == 1)
            await until(lambda: rig.server.memory.used_bytes == 0)

    run(test)


def test_a_node_that_stops_does_not_wait_for_verifications(tmp_path: Path) -> None:
    async def test() -> None:
        async with sending(tmp_path) as (rig, sender):
            gate = Gate(rig)
            sender.peer.send(sender.request(0, NEW), NEW)
            await gate.answered()
            rig.node.hurry()
            async with asyncio.timeout(5):
                await rig.stop()

    run(test)


@pytest.mark.parametrize("version", [OLD, NEW])
def test_a_new_leadership_has_other_guards(tmp_path: Path, version: int) -> None:
    """Markers may have come to another leader in between. Who may add the partition asks anew."""

    async def test() -> None:
        async with sending(tmp_path) as (rig, sender):
            if version == OLD:
                await sender.add(0)
            gate = Gate(rig)
            partition = rig.partition(sender.topic)
            sender.peer.send(sender.request(0, version), version)
            await gate.answered()
            assert partition.log.producers.guards
            registration = partition.registration
            newer = registration._replace(leader_epoch=registration.leader_epoch + 1)
            assert partition.leadership.follow(newer)
            assert not partition.log.producers.guards
            gate.open.set()
            answer = one(await sender.peer.receive())
            if version == OLD:
                assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
                assert partition.log.log_end_offset == 0
            else:
                assert answer.error_code == 0
                assert len(gate.answers) == 2

    run(test)


def test_verification_can_be_switched_off_for_clients_that_add_partitions_themselves(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        off = {"transaction_partition_verification_enable": "false"}
        async with sending(tmp_path, **off) as (rig, sender):
            gate = Gate(rig)
            assert (await sender.send(0, OLD)).error_code == 0
            assert not gate.answers
            assert rig.partition(sender.topic).log.producers.ongoing

    run(test)


@pytest.mark.parametrize(
    ("code", "old", "new"),
    [
        ("NETWORK_EXCEPTION", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS"),
        ("COORDINATOR_LOAD_IN_PROGRESS", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS"),
        ("COORDINATOR_NOT_AVAILABLE", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS"),
        ("NOT_COORDINATOR", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS"),
        ("CONCURRENT_TRANSACTIONS", "NOT_ENOUGH_REPLICAS", "CONCURRENT_TRANSACTIONS"),
        ("INVALID_TXN_STATE", "INVALID_TXN_STATE", "INVALID_TXN_STATE"),
        ("TRANSACTION_ABORTABLE", "TRANSACTION_ABORTABLE", "TRANSACTION_ABORTABLE"),
        ("INVALID_PRODUCER_ID_MAPPING",) * 3,
        ("INVALID_PRODUCER_EPOCH",) * 3,
    ],
)
def test_what_the_coordinator_says_is_told_so_that_clients_do_the_right_thing(
    tmp_path: Path, code: str, old: str, new: str
) -> None:
    async def test() -> None:
        async with sending(tmp_path) as (rig, sender):

            async def verify(*asked: Any) -> dict[Any, ErrorCode]:
                return dict.fromkeys(asked[3], ErrorCode[code])

            rig.broker.verifier.verify = verify  # type: ignore[method-assign]
            for version, expected in ((OLD, old), (NEW, new)):
                answer = await sender.send(0, version)
                assert ErrorCode(answer.error_code).name == expected
                assert answer.log_start_offset == -1
            assert rig.partition(sender.topic).log.log_end_offset == 0

    run(test)


def test_every_partition_of_a_request_has_its_own_verification(tmp_path: Path) -> None:
    async def test() -> None:
        async with sending(tmp_path, partitions=2) as (_, sender):
            await sender.add(0)
            request = sender.request(0, OLD)
            [topic] = request.topic_data
            topic.partition_data += sender.request(0, OLD, partition=1).topic_data[0].partition_data
            [answered] = (await sender.peer.call(request, OLD)).responses
            codes = {p.index: p.error_code for p in answered.partition_responses}
            assert codes == {0: 0, 1: ErrorCode.TRANSACTION_ABORTABLE}

    run(test)


def test_the_next_transaction_waits_for_the_markers_of_the_last(tmp_path: Path) -> None:
    """What the coordinator still ends is asked for again, under guards that no marker has met."""

    async def test() -> None:
        long = {"add_partitions_to_txn_retry_backoff_max_ms": "5000"}
        async with sending(tmp_path, **long) as (rig, sender):
            log = rig.partition(sender.topic).log
            here, held = rig.broker.markers_here, asyncio.Event()
            write = here.write

            async def later(request: WriteTxnMarkersRequest) -> Any:
                await held.wait()
                return await write(request)

            rig.broker.transactions.markers._write_here = later
            assert (await sender.send(0, NEW)).error_code == 0
            await sender.end(commit=True, version=5)
            sender.peer.send(sender.request(0, NEW), NEW)
            assert await sender.peer.silent()
            held.set()
            answer = one(await sender.peer.receive())
            assert (answer.error_code, answer.base_offset) == (0, 2)
            assert list(log.producers.ongoing) == [2]

    run(test)


# -- markers -----------------------------------------------------------------------------------


def marker(sender: Sender, *partitions: int, **fields: Any) -> WritableTxnMarker:
    base = {
        "producer_id": sender.producer_id,
        "producer_epoch": sender.epoch,
        "transaction_result": True,
        "coordinator_epoch": 0,
    }
    topic = WritableTxnMarkerTopic(name=sender.topic.name, partition_indexes=list(partitions))
    return WritableTxnMarker(**({"topics": [topic]} | base | fields))


def codes(answer: Any) -> list[list[int]]:
    return [
        [partition.error_code for topic in found.topics for partition in topic.partitions]
        for found in answer.markers
    ]


def test_markers_of_one_request_have_their_own_answers(tmp_path: Path) -> None:
    async def test() -> None:
        async with sending(tmp_path, partitions=2) as (rig, sender):
            assert (await sender.send(0, NEW)).error_code == 0
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            nowhere = [WritableTxnMarkerTopic(name="nowhere", partition_indexes=[0])]
            request = WriteTxnMarkersRequest(
                markers=[
                    marker(sender, 0, 5, coordinator_epoch=3),
                    marker(sender, 1, 0, producer_id=77),
                    marker(sender, topics=nowhere),
                    marker(sender, 0, coordinator_epoch=2),
                    marker(sender),
                ]
            )
            answer = await sender.peer.call(request, 2)
            fenced = ErrorCode.TRANSACTION_COORDINATOR_FENCED
            assert codes(answer) == [[0, unknown], [0, 0], [unknown], [fenced], []]
            logs = [rig.partition(sender.topic, i).log for i in range(2)]
            assert [log.log_end_offset for log in logs] == [3, 1]
            assert rig.partition(sender.topic).last_stable_offset == 3

    run(test)


@pytest.mark.parametrize("field", ["producer_id", "producer_epoch", "transaction_version"])
def test_a_marker_of_nobody_is_not_written(tmp_path: Path, field: str) -> None:
    async def test() -> None:
        async with sending(tmp_path) as (rig, sender):
            request = WriteTxnMarkersRequest(markers=[marker(sender, 0, **{field: -1})])
            answer = await sender.peer.call(request, 2)
            assert codes(answer) == [[ErrorCode.INVALID_REQUEST]]
            assert rig.partition(sender.topic).log.log_end_offset == 0

    run(test)


def test_a_marker_that_cannot_be_written_is_said_and_can_come_again(tmp_path: Path) -> None:
    async def test() -> None:
        async with sending(tmp_path) as (rig, sender):
            assert (await sender.send(0, NEW, size=70_000)).error_code == 0
            partition = rig.partition(sender.topic)
            request = WriteTxnMarkersRequest(markers=[marker(sender, 0)])
            with full_disk(partition):
                answer = await sender.peer.call(request, 2)
                assert codes(answer) == [[ErrorCode.KAFKA_STORAGE_ERROR]]
                assert partition.last_stable_offset == 0
            await sender.patiently(request, 2, lambda a: codes(a)[0][0])
            assert partition.last_stable_offset == 2

    run(test)


@pytest.mark.parametrize("topic", [TRANSACTIONS_TOPIC, OFFSETS_TOPIC])
def test_what_a_client_may_not_write_to_does_not_come_into_its_transaction(
    tmp_path: Path, topic: str
) -> None:
    """A marker in the transaction log could not be replayed."""

    async def test() -> None:
        async with sending(tmp_path) as (rig, sender):
            assert (await sender.send(0, NEW)).error_code == 0
            await rig.broker.groups.make_topic()
            await until(lambda: topic in rig.broker.metadata.topics)
            theirs = RawTopic(topic, rig.broker.metadata.topics[topic].id)
            stranger = Sender(rig, sender.peer, theirs)
            stranger.producer_id, stranger.epoch = sender.producer_id, sender.epoch
            answer = await stranger.send(0, NEW)
            assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
            asked = DescribeTransactionsRequest(transactional_ids=[ID])
            [state] = (await sender.peer.call(asked, 0)).transaction_states
            assert [found.topic for found in state.topics] == [sender.topic.name]

    run(test)


def test_nobody_writes_markers_to_the_transaction_log(tmp_path: Path) -> None:
    async def test() -> None:
        async with sending(tmp_path) as (rig, sender):
            log_topic = RawTopic(
                TRANSACTIONS_TOPIC, rig.broker.metadata.topics[TRANSACTIONS_TOPIC].id
            )
            end = rig.partition(log_topic).log.log_end_offset
            theirs = [WritableTxnMarkerTopic(name=TRANSACTIONS_TOPIC, partition_indexes=[0])]
            request = WriteTxnMarkersRequest(markers=[marker(sender, topics=theirs)])
            answer = await sender.peer.call(request, 2)
            assert codes(answer) == [[ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT]]
            assert rig.partition(log_topic).log.log_end_offset == end
            added = AddPartitionsToTxnTransaction(
                transactional_id=ID,
                producer_id=sender.producer_id,
                producer_epoch=sender.epoch,
                verify_only=False,
                topics=[AddPartitionsToTxnTopic(name=TRANSACTIONS_TOPIC, partitions=[0])],
            )
            refused = await sender.peer.call(AddPartitionsToTxnRequest(transactions=[added]), 5)
            [result] = refused.results_by_transaction[0].topic_results
            assert result.results_by_partition[0].partition_error_code != 0

    run(test)


# -- who is woken ------------------------------------------------------------------------------


def waiting_fetch(sender: Sender, offset: int, isolation: int, **fields: Any) -> Any:
    return calls.fetch_request(
        [(sender.topic, {0: offset})], 16, isolation_level=isolation, max_wait_ms=4_000, **fields
    )


def records(answer: Any) -> int:
    [topic] = answer.responses
    return len(topic.partitions[0].records or b"")


def test_readers_of_committed_data_sleep_until_the_transaction_ends(tmp_path: Path) -> None:
    async def test() -> None:
        async with sending(tmp_path) as (rig, sender):
            assert (await sender.send(0, NEW)).error_code == 0
            committed, uncommitted = await rig.peer(), await rig.peer()
            committed.send(waiting_fetch(sender, 0, 1), 16)
            uncommitted.send(waiting_fetch(sender, 1, 0), 16)
            partition = rig.partition(sender.topic)
            await until(lambda: len(waiting_reads(partition)) == 2)
            other = await rig.peer()
            for _ in range(3):
                assert (await other.produce(sender.topic)).error_code == 0
            assert records(await uncommitted.receive())
            assert await committed.silent()
            assert len(waiting_reads(partition)) == 1
            await sender.end(commit=True, version=5)
            assert records(await committed.receive())

    run(test)


def test_what_a_transaction_held_back_counts_when_it_ends(tmp_path: Path) -> None:
    """`min_bytes` is reached by what came in long before the marker."""

    async def test() -> None:
        async with sending(tmp_path) as (rig, sender):
            assert (await sender.send(0, NEW, size=5_000)).error_code == 0
            reader = await rig.peer()
            reader.send(waiting_fetch(sender, 0, 1, min_bytes=4_000), 16)
            await until(lambda: waiting_reads(rig.partition(sender.topic)))
            await sender.end(commit=True, version=5)
            async with asyncio.timeout(2):
                assert records(await reader.receive()) > 5_000

    run(test)


def test_too_little_goes_on_waiting_when_a_transaction_ends(tmp_path: Path) -> None:
    async def test() -> None:
        async with sending(tmp_path) as (rig, sender):
            assert (await sender.send(0, NEW, size=1_000)).error_code == 0
            reader = await rig.peer()
            reader.send(waiting_fetch(sender, 0, 1, min_bytes=4_000), 16)
            partition = rig.partition(sender.topic)
            await until(lambda: waiting_reads(partition))
            await sender.end(commit=True, version=5)
            await until(lambda: partition.last_stable_offset == 2)
            assert await reader.silent()
            more = batch([Rec(b"x" * 5_000, timestamp=rig.broker.clock.now_ms())])
            assert (await (await rig.peer()).produce(sender.topic, more)).error_code == 0
            assert records(await reader.receive()) > 6_000

    run(test)


def test_an_answer_names_only_the_aborted_transactions_of_what_it_carries(tmp_path: Path) -> None:
    """A reader that catches up would be told of all that lie before it, time and again."""

    async def test() -> None:
        async with sending(tmp_path) as (rig, sender):
            for _ in range(30):
                assert (await sender.send(0, NEW, size=1_000)).error_code == 0
                await sender.end(commit=False, version=5)
            partition = rig.partition(sender.topic)
            await until(lambda: partition.last_stable_offset == 60)
            peer = await rig.peer()
            for offset in (0, 20, 58):
                asked = calls.fetch_request(
                    [(sender.topic, {0: offset})], 16, isolation_level=1, partition_max_bytes=3_000
                )
                [topic] = (await peer.call(asked, 16)).responses
                [data] = topic.partitions
                told = [found.first_offset for found in data.aborted_transactions]
                # The index has an entry every few kilobytes: no closer can the end be known.
                assert told == list(range(offset, 60, 2))[: len(told)]
                assert 1 <= len(told) <= 12

    run(test)
