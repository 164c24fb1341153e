"""What the coordinator knows of one transactional id, and each step that changes it.

A step checks the move in the table of states and changes memory; the caller writes the record. The
steps are those of Kafka 4.3, so are the values that they leave in the record.

Invariants: the epoch of a producer id never goes back; `previous_producer_id` is the id before the
last step, `next_producer_id` is set only while a transaction that used up the epochs is prepared.
`last_producer_epoch` is not in the log (Kafka's record has no field for it), so a bump of the epoch
cannot be recognised as retried after a fail-over.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from penstock.base.errors import CorruptRecord, invariant
from penstock.base.ids import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    TopicPartition,
)
from penstock.coordinator.effects import CoordinatorRecord, TimerKey
from penstock.coordinator.transaction.records import (
    PartitionsSchema,
    TransactionLogValue,
    encode,
)
from penstock.coordinator.transaction.states import (
    BY_STATUS,
    MOVES,
    PASSED_THROUGH,
    PREPARED,
    STATUS,
    State,
)

EPOCH_MAX: Final = 2**15 - 1
LAST_EPOCH_OF_CLIENTS: Final = EPOCH_MAX - 1
"""The highest epoch that a client gets: the one above it is left for fencing the client."""
VERSION_1: Final = 0
"""What the record says of clients that add partitions themselves (Kafka writes 0, not 1)."""
VERSION_2: Final = 2
"""Clients whose epoch every EndTxn bumps (KIP-890)."""


@dataclass(slots=True)
class TransactionMetadata:
    transactional_id: str
    producer_id: int
    producer_epoch: int = NO_PRODUCER_EPOCH
    last_producer_epoch: int = field(default=NO_PRODUCER_EPOCH, compare=False)
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    timeout_ms: int = 0
    state: State = State.EMPTY
    partitions: dict[TopicPartition, None] = field(default_factory=dict)
    start_ms: int = NO_TIMESTAMP
    last_update_ms: int = NO_TIMESTAMP
    client_version: int = VERSION_1

    # -- steps ---------------------------------------------------------------------------------

    def initialise(
        self, producer_id: int, producer_epoch: int, last_epoch: int, timeout_ms: int, now_ms: int
    ) -> None:
        """InitProducerId: a producer starts again, with this id and epoch."""
        self._go(State.EMPTY, now_ms)
        self._identify(producer_id, producer_epoch)
        self.last_producer_epoch = last_epoch
        self.timeout_ms = timeout_ms
        self.partitions = {}
        self.start_ms = NO_TIMESTAMP

    def add(self, partitions: Iterable[TopicPartition], client_version: int, now_ms: int) -> None:
        """These partitions are written to in the transaction, which begins if none is open."""
        if self.state is not State.ONGOING:
            self.start_ms = now_ms
        self._go(State.ONGOING, now_ms)
        self.partitions.update(dict.fromkeys(partitions))
        self.client_version = client_version

    def fence(self, *, bump: bool) -> None:
        """The open transaction is closed to its producer; `prepare` must follow, and bumps the
        epoch itself in version 2.
        """
        self._go(State.PREPARE_EPOCH_FENCE, self.last_update_ms)
        if bump:
            self._bump()
            self.last_producer_epoch = NO_PRODUCER_EPOCH

    def prepare(
        self, *, commit: bool, client_version: int, next_producer_id: int, now_ms: int
    ) -> None:
        """The transaction is decided; in version 2 this is also the end of the epoch."""
        if self.state not in (State.ONGOING, State.PREPARE_EPOCH_FENCE):
            self.start_ms = now_ms  # nothing was put into it
        self._go(State.PREPARE_COMMIT if commit else State.PREPARE_ABORT, now_ms)
        if client_version >= VERSION_2:
            self.last_producer_epoch = self.producer_epoch
            self._bump()
        self.next_producer_id = next_producer_id
        self.client_version = client_version

    def complete(self, now_ms: int) -> None:
        """Every partition of the transaction has its marker."""
        commit = self.state is State.PREPARE_COMMIT
        self._go(State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT, now_ms)
        self._identify(*self.after_end)
        self.next_producer_id = NO_PRODUCER_ID
        self.partitions = {}

    def die(self) -> None:
        """The transactional id has not been used for too long."""
        self._go(State.DEAD, self.last_update_ms)

    def _go(self, state: State, now_ms: int) -> None:
        invariant(
            state in MOVES[self.state],
            f"{self.transactional_id!r} goes from {self.state.value} to {state.value}",
        )
        self.state = state
        self.last_update_ms = now_ms
        self.previous_producer_id = self.producer_id

    def _bump(self) -> None:
        # A log that another wrote may have a transaction of the last epoch, and it must end too.
        self._identify(self.producer_id, min(self.producer_epoch + 1, EPOCH_MAX))

    def _identify(self, producer_id: int, producer_epoch: int) -> None:
        invariant(
            (producer_id != self.producer_id or producer_epoch >= self.producer_epoch)
            and 0 <= producer_epoch <= EPOCH_MAX,
            f"the epoch of {self.transactional_id!r} goes from {self.producer_epoch} to"
            f" {producer_epoch}",
        )
        self.producer_id, self.producer_epoch = producer_id, producer_epoch

    # -- questions -----------------------------------------------------------------------------

    @property
    def epochs_exhausted(self) -> bool:
        """Whether a client cannot be given another epoch of this producer id."""
        return self.producer_epoch >= LAST_EPOCH_OF_CLIENTS

    @property
    def after_end(self) -> tuple[int, int]:
        """The producer id and epoch that are good for the transaction after this one."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return self.next_producer_id, 0
        return self.producer_id, self.producer_epoch

    @property
    def timer(self) -> TimerKey:
        """The timer that watches the open transaction."""
        return self.transactional_id, "timeout"

    @property
    def deadline_ms(self) -> int:
        """When the open transaction has taken too long."""
        return self.start_ms + self.timeout_ms

    def by_topic(self) -> dict[str, list[int]]:
        topics: dict[str, list[int]] = {}
        for topic, partition in self.partitions:
            topics.setdefault(topic, []).append(partition)
        return topics

    def invariants(self) -> None:
        """Raise InvariantBroken if the fields contradict each other."""
        name = f"{self.transactional_id!r} in {self.state.value}"
        invariant(self.state not in PASSED_THROUGH, f"{name} has been left there")
        invariant(self.producer_id >= 0, f"{name} has no producer id")
        invariant(0 <= self.producer_epoch <= EPOCH_MAX, f"{name}: epoch {self.producer_epoch}")
        busy = self.state is State.ONGOING or self.state in PREPARED
        invariant(busy or not self.partitions, f"{name} has partitions")
        invariant((self.start_ms == NO_TIMESTAMP) == (self.state is State.EMPTY), f"{name}: start")
        invariant(
            self.next_producer_id == NO_PRODUCER_ID or self.state in PREPARED,
            f"{name} has a next producer id",
        )
        invariant(
            self.producer_epoch < EPOCH_MAX or self.state not in (State.EMPTY, State.ONGOING),
            f"{name}: a client has been given the last epoch",
        )

    # -- the log -------------------------------------------------------------------------------

    def record(self, transaction_version: int) -> CoordinatorRecord:
        """The record of this state, in the format that the cluster's
        `transaction.version` allows.
        """
        invariant(self.state is not State.PREPARE_EPOCH_FENCE, "a fence is not written")
        if self.state is State.DEAD:
            return encode(self.transactional_id, None, transaction_version)
        partitions = [
            PartitionsSchema(topic=topic, partition_ids=ids)
            for topic, ids in self.by_topic().items()
        ]
        value = TransactionLogValue(
            producer_id=self.producer_id,
            previous_producer_id=self.previous_producer_id,
            next_producer_id=self.next_producer_id,
            producer_epoch=self.producer_epoch,
            transaction_timeout_ms=self.timeout_ms,
            transaction_status=STATUS[self.state],
            transaction_partitions=None if self.state is State.EMPTY else partitions,
            transaction_last_update_timestamp_ms=self.last_update_ms,
            transaction_start_timestamp_ms=self.start_ms,
            client_transaction_version=self.client_version,
        )
        return encode(self.transactional_id, value, transaction_version)


def from_record(transactional_id: str, value: TransactionLogValue) -> TransactionMetadata:
    """What `record` has written; CorruptRecord for a state that is never written."""
    state = BY_STATUS.get(value.transaction_status)
    if state is None or state in PASSED_THROUGH:
        raise CorruptRecord(
            f"the transaction log has status {value.transaction_status} for {transactional_id!r},"
            " which is none that is written"
        )
    partitions = {
        TopicPartition(topic.topic, partition): None
        for topic in value.transaction_partitions or ()
        for partition in topic.partition_ids
    }
    return TransactionMetadata(
        transactional_id=transactional_id,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        partitions={} if state is State.EMPTY else partitions,
        start_ms=value.transaction_start_timestamp_ms,
        last_update_ms=value.transaction_last_update_timestamp_ms,
        client_version=value.client_transaction_version,
    )
