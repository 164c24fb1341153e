"""The transactions of a cluster as its coordinators tell them.

A coordinator that loads, moves or is busy with the same transaction is asked again until
`--timeout` is over; every other refusal becomes one sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, TypeVar

from penstock.base.errors import ErrorCode
from penstock.cli.cluster.asking import Brokers, check, reason
from penstock.cli.cluster.state import Key, Node, read_nodes, read_partitions
from penstock.cli.errors import CliError, did_you_mean
from penstock.kafka.brokers import TRANSACTION, Patience
from penstock.kafka.client import Address, place, why
from penstock.metadata.names import TRANSACTIONS_TOPIC
from penstock.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from penstock.wire.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from penstock.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from penstock.wire.schema import Message

_NOT_YET: Final = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}
_T = TypeVar("_T")
_R = TypeVar("_R", bound=Message)


class Listed(NamedTuple):
    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


class Described(NamedTuple):
    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int
    """When the transaction began, in ms since 1970; -1 when none is open."""
    partitions: list[Key]


class Transactions:
    """Asks the transaction coordinators of one cluster."""

    def __init__(self, brokers: Brokers) -> None:
        self.brokers = brokers

    def listed(
        self,
        *,
        states: Sequence[str] = (),
        producer_ids: Sequence[int] = (),
        longer_than_ms: int | None = None,
        pattern: str | None = None,
    ) -> list[Listed]:
        """What every coordinator knows; the filters are the brokers' to apply."""
        request = ListTransactionsRequest(
            state_filters=list(states),
            producer_id_filters=list(producer_ids),
            duration_filter=-1 if longer_than_ms is None else longer_than_ms,
            transactional_id_pattern=pattern,
        )
        nodes = read_nodes(self.brokers).nodes.values()
        return sorted(
            found for node in nodes if not node.fenced for found in self._listed_at(node, request)
        )

    def _listed_at(self, node: Node, request: ListTransactionsRequest) -> list[Listed]:
        doing = f"list the transactions of node {node.id}"

        def ask() -> tuple[int, ListTransactionsResponse]:
            answer = ask_node(self.brokers, node.address, request, ListTransactionsResponse, doing)
            return answer.error_code, answer

        answer = self._until_ready(ask, doing)
        return [
            Listed(t.transactional_id, node.id, t.producer_id, t.transaction_state)
            for t in answer.transaction_states
        ]

    def describe(self, transactional_id: str) -> Described | None:
        """What its coordinator knows of an id, or None if that is nothing."""
        doing = f"describe transactional id {transactional_id!r}"
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])

        def ask() -> tuple[int, DescribeTransactionsResponse]:
            at = self._coordinator(transactional_id, doing)
            answer = ask_node(self.brokers, at, request, DescribeTransactionsResponse, doing)
            code = answer.transaction_states[0].error_code
            return (0 if code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND else code), answer

        [found] = self._until_ready(ask, doing).transaction_states
        if found.error_code:
            return None
        return Described(
            found.transactional_id,
            found.transaction_state,
            found.producer_id,
            found.producer_epoch,
            found.transaction_timeout_ms,
            found.transaction_start_time_ms,
            sorted((topic.topic, p) for topic in found.topics for p in topic.partitions),
        )

    def require(self, transactional_id: str) -> Described:
        """What is known of an id, or the sentence that nothing is."""
        found = self.describe(transactional_id)
        if found is None:
            known = [listed.transactional_id for listed in self.listed()]
            raise CliError(
                f"no coordinator knows the transactional id {transactional_id!r}"
                f"{did_you_mean(transactional_id, known)}: see `penstock txn list`; for a"
                " transaction that only a partition knows, see `penstock txn list --hanging`"
            )
        return found

    def fence(self, found: Described) -> tuple[int, int]:
        """Aborts what the id has open and fences its producer; the new producer id and epoch."""
        doing = f"abort the transaction of {found.transactional_id!r}"
        request = InitProducerIdRequest(
            transactional_id=found.transactional_id, transaction_timeout_ms=found.timeout_ms
        )

        def ask() -> tuple[int, InitProducerIdResponse]:
            at = self._coordinator(found.transactional_id, doing)
            answer = ask_node(self.brokers, at, request, InitProducerIdResponse, doing)
            return answer.error_code, answer

        answer = self._until_ready(ask, doing)
        return answer.producer_id, answer.producer_epoch

    def require_all_led(self) -> None:
        """Refuses while a part of the coordinators' log has no leader: the coordinators would know
        less than there is.
        """
        state_log = [
            p for p in read_partitions(self.brokers).values() if p.topic == TRANSACTIONS_TOPIC
        ]
        lost = [str(p) for p in state_log if p.leader is None]
        if lost:
            raise CliError(
                f"cannot tell what hangs: {', '.join(lost)} has no leader, so some transactions are"
                " unknown for now; see `penstock cluster status`"
            )

    def _coordinator(self, transactional_id: str, doing: str) -> Address:
        return self.brokers.cluster.coordinator(TRANSACTION, transactional_id, doing)

    def _until_ready(self, ask: Callable[[], tuple[int, _T]], doing: str) -> _T:
        """The answer, as soon as a coordinator gives one."""
        patience = Patience(self.brokers.timeout_s)
        while True:
            code, answer = ask()
            if code not in _NOT_YET:
                check(code, None, doing)
                return answer
            if not patience.wait():
                raise CliError(
                    f"cannot {doing}: its coordinator is not ready ({reason(code, None)}); try"
                    " again, or wait longer with --timeout"
                )


def ask_node(
    brokers: Brokers, address: Address, request: Message, answer: type[_R], doing: str
) -> _R:
    """The answer of this very broker, or the sentence that it gives none."""
    try:
        return brokers.ask_at(address, request, answer, doing)
    except OSError as e:
        raise CliError(
            f"cannot {doing}: {place(address)} does not answer ({why(e)}); see"
            " `penstock cluster nodes`"
        ) from None


def ids_by_producer(listed: Iterable[Listed]) -> dict[int, str]:
    """The transactional id that each producer id belongs to."""
    return {found.producer_id: found.transactional_id for found in listed}
