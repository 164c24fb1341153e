"""Transactions that are open in a partition's log and that no coordinator will ever end.

Readers with read_committed wait behind them for ever, and compaction stops there. A transaction
hangs when every coordinator has forgotten its producer, when the coordinator's transaction does
not have the partition, or when the coordinator is already in a later one. Partitions and
coordinators are asked one after the other, so what seems to hang is looked at a second time: a
transaction that simply ended in between is not there any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from penstock.base.errors import ErrorCode
from penstock.cli.cluster.asking import Brokers, check, reason
from penstock.cli.cluster.state import Key, Partition, read_nodes, read_partitions
from penstock.cli.errors import CliError
from penstock.cli.txn.transactions import Described, Transactions, ask_node, ids_by_producer
from penstock.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from penstock.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

ASKED_PARTITIONS_MAX: Final = 500
"""In one request, so that no broker is held up by a very large one."""
_PREPARED: Final = {"PrepareCommit", "PrepareAbort", "PrepareEpochFence"}


class Open(NamedTuple):
    """A transaction as the log of one partition has it."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_ms: int
    """When the producer wrote last, in ms since 1970."""

    @property
    def key(self) -> Key:
        return self.topic, self.partition


class Found(NamedTuple):
    """What is open, and the partitions that could not be asked, with the reason."""

    open: list[Open]
    not_asked: dict[Key, str]


def find_open(brokers: Brokers, partitions: Mapping[Key, Partition]) -> Found:
    """The open transactions of these partitions, as their leaders know them."""
    nodes = read_nodes(brokers).nodes
    found = Found([], {})
    by_leader: dict[int, list[Key]] = {}
    for key, partition in partitions.items():
        if partition.leader is None or partition.leader not in nodes:
            found.not_asked[key] = "it has no leader"
        else:
            by_leader.setdefault(partition.leader, []).append(key)
    for leader, keys in by_leader.items():
        for first in range(0, len(keys), ASKED_PARTITIONS_MAX):
            request = _producers_request(keys[first : first + ASKED_PARTITIONS_MAX])
            doing = f"read the producers of partitions on node {leader}"
            address = nodes[leader].address
            answer = ask_node(brokers, address, request, DescribeProducersResponse, doing)
            _take(found, answer)
    found.open.sort()
    return found


def _producers_request(keys: Iterable[Key]) -> DescribeProducersRequest:
    topics: dict[str, list[int]] = {}
    for topic, partition in keys:
        topics.setdefault(topic, []).append(partition)
    return DescribeProducersRequest(
        topics=[TopicRequest(name=t, partition_indexes=ps) for t, ps in topics.items()]
    )


def _take(found: Found, answer: DescribeProducersResponse) -> None:
    for topic in answer.topics:
        for p in topic.partitions:
            if p.error_code:
                why = reason(p.error_code, p.error_message)
                found.not_asked[topic.name, p.partition_index] = why
            found.open.extend(
                Open(
                    topic.name,
                    p.partition_index,
                    producer.producer_id,
                    producer.producer_epoch,
                    producer.coordinator_epoch,
                    producer.current_txn_start_offset,
                    producer.last_timestamp,
                )
                for producer in p.active_producers
                if producer.current_txn_start_offset >= 0
            )


class Hanging(NamedTuple):
    open: Open
    why: str


def find_hanging(
    transactions: Transactions, partitions: Mapping[Key, Partition], candidates: Iterable[Open]
) -> list[Hanging]:
    """Those of the candidates that hang, and still do at a second look."""
    suspects = list(_suspects(transactions, list(candidates)))
    if not suspects:
        return []
    keys = {suspect.open.key for suspect in suspects}
    again = find_open(transactions.brokers, {key: partitions[key] for key in keys}).open
    still = {(o.key, o.producer_id, o.producer_epoch, o.start_offset) for o in again}
    return [
        s
        for s in suspects
        if (s.open.key, s.open.producer_id, s.open.producer_epoch, s.open.start_offset) in still
    ]


def _suspects(transactions: Transactions, candidates: list[Open]) -> Iterator[Hanging]:
    if not candidates:
        return
    transactions.require_all_led()
    producer_ids = sorted({candidate.producer_id for candidate in candidates})
    ids = ids_by_producer(transactions.listed(producer_ids=producer_ids))
    described = {producer: transactions.describe(name) for producer, name in ids.items()}
    for candidate in candidates:
        why = _why_it_hangs(candidate, described.get(candidate.producer_id))
        if why is not None:
            yield Hanging(candidate, why)


def _why_it_hangs(candidate: Open, known: Described | None) -> str | None:
    """Why its coordinator will not end it; None if it will."""
    if known is None or known.producer_id != candidate.producer_id:
        return "no coordinator knows its producer"
    if candidate.key not in known.partitions:
        return f"the transaction of {known.transactional_id} does not have the partition"
    if known.state not in _PREPARED and candidate.producer_epoch < known.producer_epoch:
        return f"it is older than the transaction of {known.transactional_id}"
    return None


def known_id(transactions: Transactions, found: Open) -> str | None:
    """The transactional id whose coordinator will end this transaction, or None if it hangs."""
    partitions = read_partitions(transactions.brokers)
    if find_hanging(transactions, partitions, [found]):
        return None
    ids = ids_by_producer(transactions.listed(producer_ids=[found.producer_id]))
    if found.producer_id not in ids:
        raise CliError(
            f"the transaction at offset {found.start_offset} of {found.topic}-{found.partition} has"
            " just ended: there is nothing to abort"
        )
    return ids[found.producer_id]


def write_abort_marker(brokers: Brokers, partition: Partition, found: Open) -> None:
    """Ends the transaction in the log of its one partition."""
    doing = f"abort the transaction at offset {found.start_offset} of {partition}"
    marker = WritableTxnMarker(
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        transaction_result=False,
        topics=[
            WritableTxnMarkerTopic(name=found.topic, partition_indexes=[found.partition]),
        ],
        # -1 where no coordinator ever wrote to the partition: 0 is below every real epoch.
        coordinator_epoch=max(0, found.coordinator_epoch),
    )
    if partition.leader is None:
        raise CliError(f"cannot {doing}: it has no leader; see `penstock cluster status`")
    address = read_nodes(brokers).nodes[partition.leader].address
    request = WriteTxnMarkersRequest(markers=[marker])
    answer = ask_node(brokers, address, request, WriteTxnMarkersResponse, doing)
    code = answer.markers[0].topics[0].partitions[0].error_code
    if code == ErrorCode.INVALID_PRODUCER_EPOCH:
        raise CliError(
            f"cannot {doing}: its producer has a newer epoch by now (INVALID_PRODUCER_EPOCH); look"
            " again with `penstock txn list --hanging`"
        )
    check(code, None, doing)
