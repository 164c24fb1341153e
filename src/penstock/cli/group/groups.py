"""The groups of a cluster as the commands see them, through confluent-kafka's admin client, which
cannot list all of them (`listing.py`).

Every wait is bounded by `--timeout`, and every error becomes one sentence. This module imports
confluent-kafka: import it inside commands only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from functools import partial
from typing import Any, TypeVar

from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from penstock.cli.cluster.asking import Brokers
from penstock.cli.errors import CliError, did_you_mean
from penstock.cli.group.listing import CONSUMERS, UNKNOWN, Listed, Listing, list_all
from penstock.cli.group.others import Described, Member, describe_other
from penstock.cli.kafka import AdminClient, Cluster
from penstock.kafka.offsets import Partition

_T = TypeVar("_T")
_KAFKA_NAMES = {
    ConsumerGroupState.PREPARING_REBALANCING: "PreparingRebalance",
    ConsumerGroupState.COMPLETING_REBALANCING: "CompletingRebalance",
    ConsumerGroupState.STABLE: "Stable",
    ConsumerGroupState.DEAD: "Dead",
    ConsumerGroupState.EMPTY: "Empty",
}
_NOT_YET = {
    "_WAIT_COORD",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "COORDINATOR_NOT_AVAILABLE",
    "NOT_COORDINATOR",
}
_NO_COORDINATOR = {*_NOT_YET, "_TIMED_OUT"}
_BUSY = {"NON_EMPTY_GROUP", "UNKNOWN_MEMBER_ID", "STALE_MEMBER_EPOCH"}

RETRY_S = 0.1


class Groups:
    """Asks one cluster about its groups."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.admin: AdminClient = cluster.admin()
        self._listing: Listing | None = None

    def listed(self) -> Listing:
        """Every group, as of when it was first asked for."""
        if self._listing is None:
            self._listing = list_all(Brokers(self.cluster.access))
        return self._listing

    def exists(self, name: str) -> bool:
        """Whether there is such a group; an error where that cannot be told."""
        listing = self.listed()
        if name not in listing.groups and (incomplete := listing.incomplete):
            raise CliError(f"cannot tell whether group {name!r} exists: {incomplete.sentence}")
        return name in listing.groups

    def require(self, names: Iterable[str], advice: str = "see `penstock group list`") -> None:
        """Raises for the first of `names` that is no group."""
        for name in names:
            if not self.exists(name):
                raise CliError(
                    f"group {name!r} does not exist on {self.cluster.bootstrap}"
                    f"{did_you_mean(name, self.listed().groups)}: {advice}"
                )

    def describe(self, names: list[str]) -> list[Described]:
        """State and members of each group."""
        return [self._describe(name, self.listed().groups.get(name)) for name in names]

    def _describe(self, name: str, listed: Listed | None) -> Described:
        doing = f"describe group {name!r}"
        if listed is not None and listed.protocol not in ("", CONSUMERS):
            return describe_other(self.cluster, listed, doing)
        call = partial(
            self.admin.describe_consumer_groups, [name], request_timeout=self.cluster.timeout_s
        )
        return _described(self.ask(call, doing, name), listed)

    def committed(self, name: str) -> dict[Partition, int]:
        """The offset of every partition that the group has committed."""
        asked = [ConsumerGroupTopicPartitions(name)]
        call = partial(
            self.admin.list_consumer_group_offsets, asked, request_timeout=self.cluster.timeout_s
        )
        found = self.ask(call, f"read the offsets of group {name!r}", name)
        return {(p.topic, p.partition): p.offset for p in found.topic_partitions if p.offset >= 0}

    def delete(self, name: str) -> None:
        call = partial(
            self.admin.delete_consumer_groups, [name], request_timeout=self.cluster.timeout_s
        )
        self.ask(call, f"delete group {name!r}", name)

    def member_count(self, name: str) -> int:
        """How many members the group has; one that does not exist yet has none."""
        return len(self.describe([name])[0].members) if self.exists(name) else 0

    def commit(self, name: str, offsets: dict[Partition, int]) -> None:
        """Stores offsets for a group without members."""
        doing = f"move group {name!r}"
        wanted = [TopicPartition(t, p, offset) for (t, p), offset in offsets.items()]
        asked = [ConsumerGroupTopicPartitions(name, wanted)]
        call = partial(
            self.admin.alter_consumer_group_offsets, asked, request_timeout=self.cluster.timeout_s
        )
        for partition in self.ask(call, doing, name).topic_partitions:
            if partition.error is not None:
                raise self.sentence(partition.error, doing, name)

    def ask(self, call: Callable[[], dict[str, Future[_T]]], doing: str, name: str) -> _T:
        """The result of an admin call about one group, or its error as a sentence.

        A coordinator that has just been found may still be reading its groups: it is asked again.
        """
        deadline = time.monotonic() + self.cluster.timeout_s
        while True:
            try:
                return call()[name].result(self.cluster.timeout_s + 1)
            except KafkaException as e:
                error = e.args[0]
            except FutureTimeout:
                raise self._no_coordinator(doing) from None
            if error.name() not in _NOT_YET or time.monotonic() > deadline:
                raise self.sentence(error, doing, name) from None
            time.sleep(RETRY_S)

    def sentence(self, error: KafkaError, doing: str, name: str) -> CliError:
        """What an error about a group means to the person who typed the command."""
        if error.name() in _NO_COORDINATOR:
            return self._no_coordinator(doing)
        if error.name() in _BUSY:
            return CliError(f"cannot {doing}: it has active members; {stop_members(name)}")
        return self.cluster.sentence(error, doing)

    def _no_coordinator(self, doing: str) -> CliError:
        return CliError(
            f"cannot {doing}: no coordinator of the group answered on {self.cluster.bootstrap}"
            f" within {self.cluster.timeout_s:g} s; it may still be loading: try again, wait longer"
            " with --timeout, or look at the broker's log"
        )


def stop_members(name: str) -> str:
    """What to do about a group that is in use."""
    return f"stop them, wait until `penstock group describe {name}` shows Empty, and try again"


def _described(found: Any, listed: Listed | None) -> Described:
    """Some states the client has no name for: those are as they were listed a moment ago."""
    members = [
        Member(
            member.member_id,
            member.group_instance_id or None,
            member.client_id,
            member.host.removeprefix("/"),
            sorted((tp.topic, tp.partition) for tp in member.assignment.topic_partitions),
        )
        for member in found.members
    ]
    # An old broker tells no type, and knows only one.
    group_type = found.type if found.type is not ConsumerGroupType.UNKNOWN else None
    return Described(
        found.group_id,
        group_type.name.lower() if group_type else "classic",
        _KAFKA_NAMES.get(found.state, listed.state if listed else UNKNOWN),
        found.partition_assignor,
        found.coordinator.id if found.coordinator is not None else None,
        sorted(members),
        {},
        {},
    )
