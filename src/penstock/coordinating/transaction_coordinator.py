"""The transaction coordinator of this node: a shard for each partition of `__transaction_state` it
leads.

Duty, beyond what all coordinators share (`coordinators`): have the markers of a shard written
(`transaction_markers`) and notify it when they are; show what the node knows of open transactions.
A shard's leader epoch is the coordinator epoch that its markers carry. Owned by the event loop's
thread.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.base.errors import ErrorCode
from penstock.coordinating.coordinators import (
    CoordinatorEnvironment,
    InternalTopic,
    ShardedCoordinator,
)
from penstock.coordinating.shard_driver import ShardKind
from penstock.coordinating.transaction_markers import TransactionMarkers
from penstock.coordinator.transaction import (
    EndCounts,
    TransactionConfig,
    TransactionShard,
    WriteMarkers,
    refuse,
)
from penstock.coordinator.transaction.states import IDLE
from penstock.metadata.features import TRANSACTION_VERSION
from penstock.metadata.names import TRANSACTIONS_TOPIC
from penstock.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from penstock.wire.messages.end_txn import EndTxnRequest
from penstock.wire.messages.init_producer_id import InitProducerIdRequest

if TYPE_CHECKING:
    from penstock.config.broker_config import BrokerConfig
    from penstock.coordinator.effects import Effects
    from penstock.metadata.delta import MetadataDelta
    from penstock.partitions.metadata_brokers import MetadataBrokers
    from penstock.peers.peers import Peers
    from penstock.wire.messages.write_txn_markers import (
        WriteTxnMarkersRequest,
        WriteTxnMarkersResponse,
    )
    from penstock.wire.schema import Message

COMMIT_TIMEOUT_S: Final = 5.0
"""How long a request waits for its records to be replicated before it fails with a retriable
error.
"""
PATIENCE_S: Final = 0.1
"""How long a client's request waits for the end of the transaction before."""

TRANSACTION_SHARDS: Final = ShardKind(
    "transaction coordinator",
    refuse,
    (InitProducerIdRequest, AddPartitionsToTxnRequest, EndTxnRequest),
)


class OpenTransaction(NamedTuple):
    transactional_id: str
    state: str
    """Kafka's name of it: Ongoing, PrepareCommit or PrepareAbort."""
    age_ms: int


class TransactionCoordinator(ShardedCoordinator[TransactionShard]):
    def __init__(
        self,
        env: CoordinatorEnvironment,
        brokers: MetadataBrokers,
        peers: Peers,
        *,
        take_producer_id: Callable[[], int | None],
        write_markers_here: Callable[[WriteTxnMarkersRequest], Awaitable[WriteTxnMarkersResponse]],
    ) -> None:
        """`take_producer_id` gives a new producer id, or None if there is none at the moment;
        `write_markers_here` writes markers to partitions of this node.
        """
        config = env.config
        super().__init__(
            env,
            TRANSACTION_SHARDS,
            transactions_topic(config),
            commit_timeout_s=COMMIT_TIMEOUT_S,
            expiry_interval_s=(
                config.transaction_remove_expired_transaction_cleanup_interval_ms / 1000
            ),
        )
        self._transaction_config = transaction_config(config)
        self._take_producer_id = take_producer_id
        self.counts = EndCounts()
        self.markers = TransactionMarkers(
            config.node_id,
            env.metadata,
            brokers,
            peers,
            write_here=write_markers_here,
            on_written=self._markers_written,
        )

    def _make_shard(self, index: int, leader_epoch: int) -> TransactionShard:
        return TransactionShard(
            self._transaction_config,
            leader_epoch,
            self._take_producer_id,
            lambda: self._metadata.features.get(TRANSACTION_VERSION, 0),
            self.counts,
        )

    def _expire(self, shard: TransactionShard, now_ms: int) -> Effects:
        return shard.expire(now_ms)

    def submit(
        self, key: str, request: Message, version: int, client_id: str, client_host: str
    ) -> Message | Awaitable[Message]:
        if not key:
            # An empty id has no coordinator.
            return refuse(request, version, ErrorCode.INVALID_REQUEST)
        return super().submit(key, request, version, client_id, client_host)

    def submit_patiently(
        self, key: str, request: Message, version: int, client_id: str, client_host: str
    ) -> Message | Awaitable[Message]:
        """Like `submit`; a request that arrives while the last transaction is being ended waits for
        that a moment. Otherwise a quick producer would get a retriable error, and retry much later
        than necessary.
        """
        if self.markers.is_ending(key):
            return self._submit_after(key, request, version, client_id, client_host)
        return self.submit(key, request, version, client_id, client_host)

    async def _submit_after(
        self, key: str, request: Message, version: int, client_id: str, client_host: str
    ) -> Message:
        await self.markers.ended(key, PATIENCE_S)
        answer = self.submit(key, request, version, client_id, client_host)
        return await answer if inspect.isawaitable(answer) else answer

    # -- markers -------------------------------------------------------------------------------

    def _action(self, index: int, action: WriteMarkers) -> None:
        self.markers.add(index, action)

    def _given_up(self, index: int) -> None:
        self.markers.forget(index)

    def _markers_written(self, index: int, action: WriteMarkers) -> None:
        self._drivers[index].event(
            lambda shard, now_ms: shard.markers_written(
                action.transactional_id, action.producer_id, action.producer_epoch, now_ms
            )
        )

    def lead(self, delta: MetadataDelta) -> None:
        super().lead(delta)
        self.markers.apply(delta)

    # -- duties --------------------------------------------------------------------------------

    def open_transactions(self) -> Iterator[OpenTransaction]:
        """The transactions of this node's shards that are not over, for metrics."""
        now_ms = self._env.clock.now_ms()
        for shard in self._active_shards():
            for found in list(shard.transactions.values()):
                if found.state not in IDLE:
                    age_ms = max(0, now_ms - found.start_ms)
                    yield OpenTransaction(found.transactional_id, found.state.value, age_ms)

    async def stop(self) -> None:
        await super().stop()
        await self.markers.stop()


def transactions_topic(config: BrokerConfig) -> InternalTopic:
    return InternalTopic(
        TRANSACTIONS_TOPIC,
        config.transaction_state_log_num_partitions,
        config.transaction_state_log_replication_factor,
        {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(config.transaction_state_log_min_isr),
            "segment.bytes": str(config.transaction_state_log_segment_bytes),
            "unclean.leader.election.enable": "false",
        },
    )


def transaction_config(config: BrokerConfig) -> TransactionConfig:
    """What the coordinator reads of the node's settings; the names are the same."""
    return TransactionConfig(
        **{f.name: getattr(config, f.name) for f in dataclasses.fields(TransactionConfig)}
    )
