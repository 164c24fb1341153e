"""The transactional side of an append: verified before it is staged.

Duty: find out which partitions of a request begin a transaction there, have them verified with the
transaction's coordinator (or added to the transaction, from Produce version 12 on), and have the
batches staged under the guard that was taken before the coordinator was asked. A request that has
nothing to verify does not wait. One that waits holds its source, so that the order of a producer's
batches stays.

Where the coordinator has not finished the producer's last transaction (CONCURRENT_TRANSACTIONS) a
request that adds its partitions retries for a moment, under new guards: the marker of the last
transaction, which is on its way, invalidates the older ones. The marker may also arrive while the
request is on its way to a coordinator that has finished by then: so a request whose guard is gone
retries, too.

Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from penstock.base.clock import Clock
from penstock.base.errors import ApiError, CorruptRecord, ErrorCode
from penstock.base.ids import TopicKey, TopicPartition
from penstock.config.broker_config import BrokerConfig
from penstock.coordinating.transaction_verification import SupportedOperation, TransactionVerifier
from penstock.log.verification import NOT_ASKED, VerificationGuard
from penstock.metadata.names import INTERNAL_TOPICS
from penstock.partitions.partition import Partition
from penstock.partitions.replica_manager import ReplicaManager
from penstock.wire.records import TRANSACTIONAL_FLAG, BatchHeader, parse_header

if TYPE_CHECKING:
    from penstock.serving.append import AppendInFlight, AppendRequest

log = logging.getLogger("penstock.serving")

RETRY_S: Final = 0.002
"""The first pause before a retry; it doubles up to
`add.partitions.to.txn.retry.backoff.ms`. A transaction is mostly ended within a few milliseconds.
"""

_Place: TypeAlias = tuple[TopicKey, int]

# Clients that verify do not know these codes; they get one upon which they send the batch again.
_PASSING: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class _Guarded(NamedTuple):
    partition: Partition
    producer_id: int
    guard: VerificationGuard
    leader_epoch: int

    @property
    def holds(self) -> bool:
        return self.partition.log.producers.guards.get(self.producer_id) is self.guard


class AppendTransaction:
    """What is known of the transaction that a Produce request belongs to."""

    __slots__ = ("errors", "guards", "operation", "verifies")

    def __init__(self, operation: SupportedOperation, *, verifies: bool) -> None:
        self.operation = operation
        self.verifies = verifies
        self.guards: dict[_Place, _Guarded] = {}
        self.errors: dict[_Place, ApiError] = {}

    def check(self, topic: TopicKey, index: int) -> None:
        """Refuse what the coordinator, or the partition before it, has refused."""
        error = self.errors.get((topic, index))
        if error is not None:
            raise error

    def guard_for(self, topic: TopicKey, partition: Partition) -> VerificationGuard | None:
        """Under what the batch for `partition` was verified, if it was."""
        if not self.verifies:
            return NOT_ASKED
        guarded = self.guards.get((topic, partition.index))
        if guarded is None:
            return None
        if guarded.leader_epoch != partition.leader_epoch:
            # Markers may have been written by another leader in between.
            raise ApiError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                "the partition's leader has changed while the transaction was being verified",
            )
        return guarded.guard

    @property
    def lost_a_guard(self) -> bool:
        """Whether a marker or a new epoch has reached a partition since its guard was taken."""
        return any(not guarded.holds for guarded in self.guards.values())


class AppendVerification:
    """Holds transactional requests until they are verified, then resumes them."""

    def __init__(
        self,
        replicas: ReplicaManager,
        verifier: TransactionVerifier,
        clock: Clock,
        config: Callable[[], BrokerConfig],
    ) -> None:
        self._replicas = replicas
        self._verifier = verifier
        self._clock = clock
        self._config = config
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[AppendInFlight, asyncio.Task[None]] = {}

    def begin(self, append: AppendInFlight, resume: Callable[[AppendInFlight], None]) -> bool:
        """Whether the request waits; `resume` is called for it then."""
        request = append.request
        operation = request.operation
        verifies = operation.adds or self._config().transaction_partition_verification_enable
        transaction = AppendTransaction(operation, verifies=verifies)
        append.transaction = transaction
        batches = _transactional(request)
        producers = {(h.producer_id, h.producer_epoch) for h in batches.values()}
        if len(producers) > 1:
            append.refusal = ApiError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                "the transactional batches of a request come from more than one producer",
            )
            return False
        if not verifies or not self._guard(transaction, batches):
            return False
        append.hold()
        self._waiting[append] = self._loop.create_task(
            self._verify(append, transaction, batches, resume)
        )
        return True

    def _guard(self, transaction: AppendTransaction, batches: dict[_Place, BatchHeader]) -> bool:
        """Take a guard wherever a batch begins a transaction; whether there is one."""
        transaction.guards.clear()
        transaction.errors.clear()
        now_ms, adds = self._clock.now_ms(), transaction.operation.adds
        for place, header in batches.items():
            try:
                partition = self._replicas.leader_of(*place)
                if partition.topic in INTERNAL_TOPICS:
                    continue  # refused where it is staged, and not to be added to the transaction
                guard = partition.log.producers.begin_verification(
                    header.producer_id,
                    header.producer_epoch,
                    header.base_sequence,
                    now_ms,
                    starts_at_zero=adds,
                )
            except ApiError as e:
                transaction.errors[place] = e
                continue
            if guard is not None:
                epoch = partition.leader_epoch
                transaction.guards[place] = _Guarded(partition, header.producer_id, guard, epoch)
        return bool(transaction.guards)

    async def _verify(
        self,
        append: AppendInFlight,
        transaction: AppendTransaction,
        batches: dict[_Place, BatchHeader],
        resume: Callable[[AppendInFlight], None],
    ) -> None:
        request = append.request
        try:
            await self._ask(transaction, request.transactional_id or "", batches)
        except Exception:
            log.exception("a transactional append could not be verified")
            append.refusal = ApiError(
                ErrorCode.UNKNOWN_SERVER_ERROR, "the transaction could not be verified"
            )
        finally:
            del self._waiting[append]
        resume(append)

    async def _ask(
        self,
        transaction: AppendTransaction,
        transactional_id: str,
        batches: dict[_Place, BatchHeader],
    ) -> None:
        config, operation = self._config(), transaction.operation
        give_up_at = self._loop.time() + config.add_partitions_to_txn_retry_backoff_max_ms / 1000
        header = next(iter(batches.values()))
        pause_s = RETRY_S
        while transaction.guards:
            asked = {
                TopicPartition(guarded.partition.topic, place[1]): place
                for place, guarded in transaction.guards.items()
            }
            errors = await self._verifier.verify(
                transactional_id,
                header.producer_id,
                header.producer_epoch,
                list(asked),
                operation,
            )
            concurrent = ErrorCode.CONCURRENT_TRANSACTIONS in errors.values()
            if operation.adds and concurrent and self._loop.time() < give_up_at:
                await asyncio.sleep(
                    min(pause_s, config.add_partitions_to_txn_retry_backoff_ms / 1000)
                )
                pause_s *= 2
            elif not (operation.adds and not errors and transaction.lost_a_guard):
                for tp, code in errors.items():
                    transaction.errors[asked[tp]] = _refusal(code, operation)
                return
            self._guard(transaction, batches)

    async def stop(self) -> None:
        tasks = list(self._waiting.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _transactional(request: AppendRequest) -> dict[_Place, BatchHeader]:
    """The transactional batches of a request; what cannot be read is refused where it is staged."""
    batches: dict[_Place, BatchHeader] = {}
    for topic, partitions in request.topics:
        for index, records in partitions:
            try:
                header = parse_header(records or b"")
            except CorruptRecord:
                continue
            if header.attributes & TRANSACTIONAL_FLAG and header.producer_id >= 0:
                batches[topic, index] = header
    return batches


def _refusal(code: ErrorCode, operation: SupportedOperation) -> ApiError:
    if code == ErrorCode.INVALID_TXN_STATE:
        return ApiError(code, "the partition is not in the transaction")
    passing = code in _PASSING or (code == ErrorCode.CONCURRENT_TRANSACTIONS and not operation.adds)
    if passing:
        return ApiError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"the transaction could not be verified with its coordinator: {code.name}",
        )
    return ApiError(code)
