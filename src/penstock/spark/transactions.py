"""The transaction of one task: begun and filled by the task, ended by the driver.

Duty: `begin` takes a transactional id over, `Transaction` fills it and leaves its marker, and `end`
decides it in another process, by what the task has handed over (`Prepared`).

The marker is a group's offset that is committed with the rows: its group is the task's
transactional id, its offset the id of the batch, its metadata says how many rows and bytes. It
exists if and only if the rows are visible. So a repeated batch asks for it first, and an end whose
answer was lost asks for it, too.

Invariants: one epoch of the producer holds at most one transaction: every `begin` bumps the epoch,
aborts what was open and fences whoever had the id before. The marker is read after that, when
nobody else can change it any more, and written after all rows were acknowledged.

Limits: the coordinator aborts what is open for longer than transaction.timeout.ms. A marker lives
as long as the broker keeps the offsets of an idle group (offsets.retention.minutes).
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from penstock.base.errors import ErrorCode
from penstock.kafka.brokers import GROUP, TRANSACTION, Brokers
from penstock.kafka.errors import ClusterError
from penstock.spark.errors import OptionError
from penstock.spark.producer import Identity, fenced
from penstock.wire.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from penstock.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from penstock.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from penstock.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from penstock.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from penstock.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from penstock.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

INIT_PRODUCER_ID_VERSION: Final = 3
ADD_PARTITIONS_VERSION: Final = 3
ADD_OFFSETS_VERSION: Final = 3
TXN_OFFSET_COMMIT_VERSION: Final = 3
END_TXN_VERSION: Final = 3
OFFSET_FETCH_VERSION: Final = 7
DESCRIBE_TRANSACTIONS_VERSION: Final = 0
MARKER_PARTITION: Final = 0

_OVER: Final = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
    }
)
"""What a coordinator says of a transaction that was ended otherwise."""


class Written(msgspec.Struct, frozen=True):
    """How much a task has written; also the metadata of its marker."""

    rows: int
    bytes: int


class Marker(NamedTuple):
    """The last batch whose rows of one task are visible."""

    batch_id: int
    written: Written


class Prepared(NamedTuple):
    """All that is needed to end a transaction; `batch_id` is None where there is no marker."""

    identity: Identity
    batch_id: int | None


def begin(brokers: Brokers, transactional_id: str | None, timeout_ms: int) -> Identity:
    """A producer id and epoch; whoever wrote under `transactional_id` before is fenced."""
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
    )
    if transactional_id is None:
        answer = brokers.ask_anyone(request, InitProducerIdResponse, INIT_PRODUCER_ID_VERSION)
    else:
        answer = brokers.ask_coordinator(
            TRANSACTION,
            transactional_id,
            request,
            InitProducerIdResponse,
            INIT_PRODUCER_ID_VERSION,
            lambda got: [got.error_code],
        )
    code = ErrorCode(answer.error_code)
    if code is ErrorCode.INVALID_TRANSACTION_TIMEOUT:
        raise OptionError(
            f"kafka.transaction.timeout.ms is {timeout_ms}, more than the broker's"
            " transaction.max.timeout.ms: make it smaller, or raise the broker's"
        )
    if code is not ErrorCode.NONE:
        raise ClusterError(f"{transactional_id!r} is given no producer id: {code.name}")
    return Identity(transactional_id, answer.producer_id, answer.producer_epoch)


def was_begun(brokers: Brokers, transactional_id: str) -> bool:
    """Whether anybody has ever begun under this id."""
    answer = brokers.ask_coordinator(
        TRANSACTION,
        transactional_id,
        DescribeTransactionsRequest(transactional_ids=[transactional_id]),
        DescribeTransactionsResponse,
        DESCRIBE_TRANSACTIONS_VERSION,
        lambda got: [state.error_code for state in got.transaction_states],
    )
    [state] = answer.transaction_states
    code = ErrorCode(state.error_code)
    if code not in (ErrorCode.NONE, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND):
        raise ClusterError(f"{transactional_id!r} cannot be looked for: {code.name}")
    return code is ErrorCode.NONE


def read_marker(brokers: Brokers, transactional_id: str, *, stable: bool = True) -> Marker | None:
    """The marker of the last committed transaction, if there is one; `stable` waits for the end of
    one that is open.
    """
    answer = brokers.ask_coordinator(
        GROUP,
        transactional_id,
        OffsetFetchRequest(group_id=transactional_id, topics=None, require_stable=stable),
        OffsetFetchResponse,
        OFFSET_FETCH_VERSION,
        _codes_of_markers,
    )
    # Whatever is wrong, it must not look as if there were none: rows would be written twice.
    for code in map(ErrorCode, filter(None, _codes_of_markers(answer))):
        raise ClusterError(f"the marker of {transactional_id!r} cannot be read: {code.name}")
    found = [
        Marker(p.committed_offset, msgspec.json.decode(p.metadata, type=Written))
        for topic in answer.topics
        for p in topic.partitions
        if p.committed_offset >= 0 and p.metadata
    ]
    return max(found, default=None, key=lambda marker: marker.batch_id)


class Transaction:
    """The task's side of an open transaction."""

    def __init__(self, brokers: Brokers, identity: Identity) -> None:
        self._brokers = brokers
        self._name = identity.transactional_id or ""
        self._identity = identity

    def add_partitions(self, places: list[tuple[str, int]]) -> None:
        """From now on rows may be sent to these partitions."""
        topics: dict[str, list[int]] = {}
        for topic, partition in places:
            topics.setdefault(topic, []).append(partition)
        answer = self._brokers.ask_coordinator(
            TRANSACTION,
            self._name,
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self._name,
                v3_and_below_producer_id=self._identity.producer_id,
                v3_and_below_producer_epoch=self._identity.producer_epoch,
                v3_and_below_topics=[
                    AddPartitionsToTxnTopic(name=t, partitions=p) for t, p in topics.items()
                ],
            ),
            AddPartitionsToTxnResponse,
            ADD_PARTITIONS_VERSION,
            _codes_of_partitions,
        )
        self._check(_codes_of_partitions(answer), "add partitions to")

    def mark(self, topic: str, batch_id: int, written: Written) -> None:
        """Leaves the marker; it counts from the commit on."""
        request = AddOffsetsToTxnRequest(
            transactional_id=self._name,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.producer_epoch,
            group_id=self._name,
        )
        added = self._brokers.ask_coordinator(
            TRANSACTION,
            self._name,
            request,
            AddOffsetsToTxnResponse,
            ADD_OFFSETS_VERSION,
            lambda got: [got.error_code],
        )
        self._check([added.error_code], "add a marker to")
        marked = self._brokers.ask_coordinator(
            GROUP,
            self._name,
            self._marker(topic, batch_id, written),
            TxnOffsetCommitResponse,
            TXN_OFFSET_COMMIT_VERSION,
            _codes_of_offsets,
        )
        self._check(_codes_of_offsets(marked), "store the marker of")

    def _marker(self, topic: str, batch_id: int, written: Written) -> TxnOffsetCommitRequest:
        offset = TxnOffsetCommitRequestPartition(
            partition_index=MARKER_PARTITION,
            committed_offset=batch_id,
            committed_metadata=msgspec.json.encode(written).decode(),
        )
        return TxnOffsetCommitRequest(
            transactional_id=self._name,
            group_id=self._name,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.producer_epoch,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[offset])],
        )

    def _check(self, codes: list[int], doing: str) -> None:
        for code in map(ErrorCode, codes):
            if code in _OVER:
                raise fenced(self._name, code)
            if code is not ErrorCode.NONE:
                raise ClusterError(
                    f"cannot {doing} the transaction of {self._name!r}: {code.name}; look at the"
                    " broker's log"
                )


def _codes_of_partitions(answer: AddPartitionsToTxnResponse) -> list[int]:
    return [
        partition.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for partition in topic.results_by_partition
    ]


def _codes_of_markers(answer: OffsetFetchResponse) -> list[int]:
    return [answer.error_code, *(p.error_code for t in answer.topics for p in t.partitions)]


def _codes_of_offsets(answer: TxnOffsetCommitResponse) -> list[int]:
    return [p.error_code for topic in answer.topics for p in topic.partitions]


def commit(brokers: Brokers, prepared: Prepared) -> None:
    """Makes the rows and the marker visible. May be repeated, by anyone, at any time: once it was
    committed it is so for good.
    """
    code = _end(brokers, prepared.identity, commit=True)
    if code is ErrorCode.NONE:
        return
    name = prepared.identity.transactional_id or ""
    if code not in _OVER:
        raise ClusterError(f"the transaction of {name!r} is not committed: {code.name}")
    if prepared.batch_id is not None:
        # The id has a new owner, perhaps since this very transaction was committed before. The
        # owner's own transaction may be open, and is no matter.
        marker = read_marker(brokers, name, stable=False)
        if marker is not None and marker.batch_id >= prepared.batch_id:
            return
    raise fenced(name, code)


def abort(brokers: Brokers, prepared: Prepared) -> None:
    """Ends the transaction without its rows, if it is still open."""
    code = _end(brokers, prepared.identity, commit=False)
    if code is not ErrorCode.NONE and code not in _OVER:
        name = prepared.identity.transactional_id
        raise ClusterError(f"the transaction of {name!r} is not aborted: {code.name}")


def _end(brokers: Brokers, identity: Identity, *, commit: bool) -> ErrorCode:
    request = EndTxnRequest(
        transactional_id=identity.transactional_id or "",
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        committed=commit,
    )
    answer = brokers.ask_coordinator(
        TRANSACTION,
        request.transactional_id,
        request,
        EndTxnResponse,
        END_TXN_VERSION,
        lambda got: [got.error_code],
    )
    return ErrorCode(answer.error_code)
