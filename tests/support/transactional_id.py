"""A transactional id in a script that two brokers play: what is needed is done quietly, what is
compared is asked.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from penstock.wire.messages.describe_transactions import DescribeTransactionsRequest

from .calls import RawTopic, find_topic
from .helpers import make_topic
from .process import BrokerProcess
from .raw import RawClient
from .referee import Script, compare
from .transactions import (
    BATCHED_FROM,
    END_TELLS_EPOCH_FROM,
    Topics,
    add_offsets_request,
    add_request,
    await_end,
    commit_request,
    end_request,
    init_request,
    ready,
)

LAST_EPOCH: Final = 32_767
STRANGER: Final = 900_000  # added to a producer id, it is nobody's
OFFSETS, STATES = "__consumer_offsets", "__transaction_state"


class Id:
    """A transactional id: what is needed is done quietly, what is compared is asked."""

    def __init__(self, run: Script, name: str) -> None:
        self.run = run
        self.name = f"{run.name}-{name}"
        self.client = RawClient(run.broker.host, run.broker.port)
        self.producer_id = self.epoch = -1

    # Quietly

    def init(self, version: int = 4, **fields: Any) -> Id:
        found = ready(self.client, init_request(self.name, **fields), version)
        assert found.error_code == 0
        self.producer_id, self.epoch = found.producer_id, found.producer_epoch
        return self

    def add(self, topics: Topics, version: int = 3) -> Id:
        request = add_request(version, self.name, self.producer_id, self.epoch, topics)
        answer = self.client.call(request, version)
        found = answer.results_by_topic_v3_and_below
        if version >= BATCHED_FROM:
            [result] = answer.results_by_transaction
            found = result.topic_results
        assert {p.partition_error_code for t in found for p in t.results_by_partition} == {0}
        return self

    def finish(self, *, commit: bool, version: int = 4) -> Id:
        request = end_request(self.name, self.producer_id, self.epoch, commit=commit)
        answer = ready(self.client, request, version)
        assert answer.error_code == 0
        if version >= END_TELLS_EPOCH_FROM:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        await_end(self.client, self.name)
        return self

    # Compared

    def ask_add(self, label: str, version: int, topics: Topics, **how: Any) -> Any:
        request = add_request(version, *self._who(how), topics, **how)
        return self.run.ask(f"{version} {label}", request, version)

    def ask_add_offsets(self, label: str, version: int, group: str, **how: Any) -> None:
        request = add_offsets_request(*self._who(how), group)
        self.run.ask(f"{version} {label}", request, version)

    def ask_commit(
        self, label: str, version: int, group: str, topics: dict[str, dict[int, int]], **how: Any
    ) -> None:
        request = commit_request(*self._who(how), group, topics, **how)
        self.run.ask(f"{version} {label}", request, version)

    def ask_end(self, label: str, version: int, *, commit: bool, **how: Any) -> Any:
        """EndTxn, and what has become of the transaction when it is over."""
        request = end_request(*self._who(how), commit=commit)
        answer = self.run.ask(f"{version} {label}", request, version)
        await_end(self.client, self.name)
        self.describe(f"{version} {label}: state")
        return answer

    def describe(self, label: str) -> None:
        self.run.ask(label, DescribeTransactionsRequest(transactional_ids=[self.name]), 0)
        timeless(self.run, label)

    def _who(self, how: dict[str, Any]) -> tuple[str, int, int]:
        return (
            how.pop("name", self.name),
            how.pop("producer_id", self.producer_id),
            how.pop("epoch", self.epoch),
        )


def timeless(run: Script, label: str) -> None:
    """Of a time only whether there is one is compared."""
    for state in run.answers[label]["transaction_states"]:
        state["transaction_start_time_ms"] = state["transaction_start_time_ms"] >= 0


def topic(run: Script, suffix: str, partitions: int = 1) -> RawTopic:
    name = make_topic(run.broker, f"{run.name}-{suffix}", partitions)
    with RawClient(run.broker.host, run.broker.port) as client:
        return find_topic(client, name)


def left(
    script: Callable[[Script], None],
    deviations: list[tuple[str, str, str]],
    referee: BrokerProcess,
    tested: BrokerProcess,
) -> list[str]:
    """The differences between two brokers that are not among the deviations, which are of
    (script, pattern, reason).
    """
    name = script.__name__
    found = compare(script, f"tx-{name}".replace("_", "-"), referee, tested)
    allowed = [re.compile(pattern) for of, pattern, _ in deviations if of == name]
    return [line for line in found if not any(pattern.search(line) for pattern in allowed)]
