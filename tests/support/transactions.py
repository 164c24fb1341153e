"""Raw requests of transactions, as each version wants them, and brokers to send them to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from penstock.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from penstock.wire.messages.api_versions import ApiVersionsRequest
from penstock.wire.messages.describe_transactions import DescribeTransactionsRequest
from penstock.wire.messages.end_txn import EndTxnRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from penstock.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

from .group_calls import await_coordinator
from .groups import GROUP_SETTINGS
from .process import BrokerProcess
from .raw import RawClient
from .waiting import eventually

TRANSACTION: Final = 1  # what FindCoordinator is asked for
BATCHED_FROM: Final = 4  # AddPartitionsToTxn names several transactions
END_TELLS_EPOCH_FROM: Final = 5
NOT_READY: Final = (14, 15, 16, 51)  # loading, not there yet, elsewhere, a transaction is ending
POLL_SECONDS: Final = 0.01

SETTINGS: Final = GROUP_SETTINGS | {
    "transaction.state.log.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "log.cleaner.backoff.ms": "200",
}
"""Of a broker whose transactions tests can wait for."""

LEVELS: Final = {
    "transaction.version": 2,
    "group.version": 1,
    "share.version": 1,
    "streams.version": 1,
}
"""Of a new cluster; a Kafka that was formatted by hand has not got them."""

_AWAITED: Final = "0123"
"""Names whose hashes fall into the four partitions, one into each."""

Topics = Mapping[str, Sequence[int]]


def newest_features(broker: BrokerProcess) -> None:
    """Switches on what a new cluster of Kafka's has, and waits until it is so."""
    updates = [
        FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=1)
        for name, level in LEVELS.items()
    ]
    with RawClient(broker.host, broker.port) as client:
        answer = client.call(UpdateFeaturesRequest(timeout_ms=10_000, feature_updates=updates), 1)
        assert answer.error_code == 0, answer

        def finalised() -> bool:
            shown = client.call(
                ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4
            )
            found = {f.name: f.max_version_level for f in shown.finalized_features}
            return found.items() >= LEVELS.items()

        eventually(finalised)


def await_transactions(broker: BrokerProcess) -> None:
    """Waits until the broker coordinates transactions and groups, each in all partitions."""
    with RawClient(broker.host, broker.port) as client:
        for name in _AWAITED:
            asked = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[name])
            eventually(lambda asked=asked: not client.call(asked, 4).coordinators[0].error_code)
            assert ready(client, init_request(name), 4).error_code == 0
            await_coordinator(client, name)


def ready(client: RawClient, request: Any, version: int) -> Any:
    """The answer once the coordinator is ready to give one."""

    def answered() -> Any:
        answer = client.call(request, version)
        return None if answer.error_code in NOT_READY else answer

    return eventually(answered, every=POLL_SECONDS)


def init_request(transactional_id: str | None, **fields: Any) -> InitProducerIdRequest:
    base: dict[str, Any] = {"transaction_timeout_ms": 60_000}
    return InitProducerIdRequest(transactional_id=transactional_id, **(base | fields))


def add_request(
    version: int,
    transactional_id: str,
    producer_id: int,
    epoch: int,
    topics: Topics,
    *,
    verify_only: bool = False,
) -> AddPartitionsToTxnRequest:
    """AddPartitionsToTxn for one transaction."""
    wanted = [
        AddPartitionsToTxnTopic(name=name, partitions=list(indexes))
        for name, indexes in topics.items()
    ]
    if version < BATCHED_FROM:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=wanted,
        )
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=epoch,
        verify_only=verify_only,
        topics=wanted,
    )
    return AddPartitionsToTxnRequest(transactions=[transaction])


def add_offsets_request(
    transactional_id: str, producer_id: int, epoch: int, group: str
) -> AddOffsetsToTxnRequest:
    return AddOffsetsToTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=epoch,
        group_id=group,
    )


def commit_request(
    transactional_id: str,
    producer_id: int,
    epoch: int,
    group: str,
    topics: Mapping[str, Mapping[int, int]],
    **fields: Any,
) -> TxnOffsetCommitRequest:
    """TxnOffsetCommit of {topic: {partition: offset}}."""
    metadata = fields.pop("metadata", "")
    return TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=epoch,
        group_id=group,
        topics=[
            TxnOffsetCommitRequestTopic(
                name=name,
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=index, committed_offset=offset, committed_metadata=metadata
                    )
                    for index, offset in offsets.items()
                ],
            )
            for name, offsets in topics.items()
        ],
        **fields,
    )


def end_request(
    transactional_id: str, producer_id: int, epoch: int, *, commit: bool
) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=epoch,
        committed=commit,
    )


def await_end(client: RawClient, transactional_id: str) -> Any:
    """Waits until a transaction that is being ended is over; what is said of it then."""

    def over() -> Any:
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        [found] = client.call(request, 0).transaction_states
        ending = found.transaction_state.startswith("Prepare")
        return None if ending or found.error_code in NOT_READY else found

    return eventually(over, every=POLL_SECONDS)
