"""Elections of partition leaders, as the commands ask for them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from penstock.base.errors import ErrorCode
from penstock.cli.cluster.asking import Brokers, check, reason
from penstock.cli.cluster.state import Key
from penstock.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)

PREFERRED, UNCLEAN = 0, 1
"""Kafka's numbers for the two kinds of elections."""


class Election(NamedTuple):
    """How the election in one partition went; an empty `error` means that it has a new leader."""

    topic: str
    number: int
    error: str


def elect(brokers: Brokers, keys: Iterable[Key], kind: int, doing: str) -> list[Election]:
    """Holds elections; partitions where none was needed are left out."""
    by_topic: dict[str, list[int]] = {}
    for topic, number in sorted(keys):
        by_topic.setdefault(topic, []).append(number)
    request = ElectLeadersRequest(
        election_type=kind,
        topic_partitions=[TopicPartitions(topic=t, partitions=ps) for t, ps in by_topic.items()],
        timeout_ms=brokers.timeout_ms,
    )
    answer = brokers.ask(request, ElectLeadersResponse, doing)
    check(answer.error_code, None, doing)
    return sorted(
        Election(
            topic.topic,
            result.partition_id,
            reason(result.error_code, result.error_message) if result.error_code else "",
        )
        for topic in answer.replica_election_results
        for result in topic.partition_result
        if result.error_code != ErrorCode.ELECTION_NOT_NEEDED
    )
