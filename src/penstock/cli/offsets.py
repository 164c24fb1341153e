"""Where partitions begin and end, as their leaders tell it, and who does not tell.

Leaders are asked by ListOffsets, side by side, on connections of our own: confluent-kafka answers
"no offset" for a leader that it cannot reach, and does not say why. While leaders move, and while
one cannot be reached, they are looked up and asked again, until `--timeout` is over. What is still
missing then is an error, unless the caller wants the rest; in either case with the broker and the
address that it advertises. A partition that was given up is not waited for again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from penstock.base.errors import ErrorCode
from penstock.cli.errors import CliError
from penstock.cli.kafka import Cluster
from penstock.kafka.brokers import Brokers, Patience
from penstock.kafka.client import Address, unreachable, why
from penstock.kafka.connection import Connection
from penstock.kafka.offsets import (
    END_OF_LOG,
    LIST_OFFSETS_VERSION,
    PASSING,
    START_OF_LOG,
    Answered,
    Partition,
    offsets_request,
    read_offsets,
)
from penstock.wire.messages.list_offsets import ListOffsetsResponse

ASKED_AT_ONCE_MAX: Final = 16
NAMED_MAX: Final = 5
"""So many partitions are named in a sentence; the others are counted."""


class Leader(NamedTuple):
    id: int
    address: Address


class Trouble(NamedTuple):
    """Why a partition could not be asked."""

    leader: Leader | None
    said: ErrorCode | str = ""
    """What the leader answered, or why it could not be reached."""

    @property
    def is_unreachable(self) -> bool:
        return self.leader is not None and not isinstance(self.said, ErrorCode)

    @property
    def passes(self) -> bool:
        """Whether to ask again: a leader may come back or move, a refusal stays."""
        return not isinstance(self.said, ErrorCode) or self.said in PASSING

    def text(self, partitions: Sequence[str]) -> str:
        """A clause about the partitions that share the trouble."""
        names = ", ".join(partitions[:NAMED_MAX])
        if len(partitions) > NAMED_MAX:
            names += f" and {len(partitions) - NAMED_MAX} more"
        if self.leader is None:
            return f"{names} {'has' if len(partitions) == 1 else 'have'} no leader"
        broker = f"broker {self.leader.id}, the leader of {names},"
        if isinstance(self.said, ErrorCode):
            return f"{broker} answers {self.said.name}"
        return unreachable(broker, self.leader.address, self.said)


class Offsets:
    """Asks the leaders of one cluster; `partial` leaves out who does not answer."""

    def __init__(self, cluster: Cluster, *, partial: bool = False, way_out: str = "") -> None:
        self.missing: dict[Partition, Trouble] = {}
        self._cluster = cluster
        self._partial = partial
        self._way_out = f", or {way_out}" if way_out else ""
        self._brokers = Brokers(cluster.access.addresses, cluster.timeout_s, cluster.access.client)

    def starts(self, places: Iterable[Partition]) -> dict[Partition, int]:
        """The start offset of each partition."""
        return self._ask(dict.fromkeys(places, START_OF_LOG))

    def ends(self, places: Iterable[Partition]) -> dict[Partition, int]:
        """The end offset of each partition: the one that the next message will get."""
        return self._ask(dict.fromkeys(places, END_OF_LOG))

    def at_time(self, places: Iterable[Partition], time_ms: int) -> dict[Partition, int]:
        """The first offset whose timestamp is `time_ms` or later; -1 where there is none."""
        return self._ask(dict.fromkeys(places, time_ms))

    def _ask(self, wanted: Mapping[Partition, int]) -> dict[Partition, int]:
        found: dict[Partition, int] = {}
        patience = Patience(self._cluster.timeout_s)
        while left := {p: t for p, t in wanted.items() if p not in found | self.missing}:
            leaders = self.leaders(left)
            got, troubles = self._ask_leaders(left, leaders)
            found |= got
            lasting = {p: t for p, t in troubles.items() if not t.passes}
            if troubles and not patience.wait():
                lasting = troubles
            self.missing |= lasting
        if self.missing and not self._partial:
            raise CliError(f"cannot read the offsets: {self.missing_text()}")
        return found

    def trouble_of(self, partition: Partition) -> Trouble | None:
        """Why the partition's leader does not answer at this moment; None if it does."""
        wanted = {partition: END_OF_LOG}
        return self._ask_leaders(wanted, self.leaders(wanted))[1].get(partition)

    def leaders(self, places: Iterable[Partition]) -> dict[Partition, Leader | None]:
        """Who leads each partition, as any broker knows it."""
        answer = self._brokers.metadata(sorted({topic for topic, _ in places}))
        addresses = {b.node_id: (b.host, b.port) for b in answer.brokers}
        led = {
            (topic.name or "", p.partition_index): Leader(p.leader_id, addresses[p.leader_id])
            for topic in answer.topics
            for p in topic.partitions
            if p.leader_id in addresses
        }
        return {p: led.get(p) for p in places}

    def _ask_leaders(
        self, wanted: Mapping[Partition, int], leaders: Mapping[Partition, Leader | None]
    ) -> tuple[dict[Partition, int], dict[Partition, Trouble]]:
        by_leader: dict[Leader | None, dict[Partition, int]] = {}
        for partition, time_ms in wanted.items():
            by_leader.setdefault(leaders[partition], {})[partition] = time_ms
        unled = by_leader.pop(None, {})
        found: dict[Partition, int] = {}
        troubles = dict.fromkeys(unled, Trouble(None))
        asked = {leader: mine for leader, mine in by_leader.items() if leader is not None}
        with ThreadPoolExecutor(ASKED_AT_ONCE_MAX) as pool:
            answers = list(pool.map(self._ask_at, asked, asked.values()))
        for (leader, mine), answer in zip(asked.items(), answers, strict=True):
            if isinstance(answer, OSError):
                troubles |= dict.fromkeys(mine, Trouble(leader, why(answer)))
                continue
            found |= answer.found
            troubles |= {p: Trouble(leader, code) for p, code in answer.refused.items()}
        return found, troubles

    def _ask_at(self, leader: Leader, wanted: Mapping[Partition, int]) -> Answered | OSError:
        request = offsets_request(wanted, committed=False)
        try:
            with Connection(leader.address, self._cluster.access.client) as connection:
                answer = connection.call(request, ListOffsetsResponse, LIST_OFFSETS_VERSION)
        except OSError as e:
            return e
        return read_offsets(answer)

    def missing_text(self) -> str:
        """What is missing, why, and what to do about it."""
        shared: dict[Trouble, list[str]] = {}
        for (topic, partition), trouble in sorted(self.missing.items()):
            shared.setdefault(trouble, []).append(f"{topic}-{partition}")
        clauses = [trouble.text(names) for trouble, names in shared.items()]
        advice = "see `penstock cluster status`"
        if any(trouble.is_unreachable for trouble in shared):
            advice = (
                "start the broker, or correct its advertised.listeners if clients cannot use that"
                " address"
            )
        return f"{'; '.join(clauses)}; {advice}{self._way_out}"

    def missing_facts(self, places: Iterable[Partition]) -> list[dict[str, object]]:
        """The same about some partitions, for programs."""
        return [
            {"topic": t, "partition": p, "reason": self.missing[t, p].text([f"{t}-{p}"])}
            for t, p in sorted(self.missing.keys() & set(places))
        ]
