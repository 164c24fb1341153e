"""Share groups as the commands about queues see them: their coordinators say where they are,
the leaders of the partitions what of them is available, held or waits.

The leaders' part is Penstock's own (DescribeQueues, Redrive): with another broker the commands say
so. What cannot be asked is an error, never left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple, TypeVar

from penstock.base.errors import ErrorCode
from penstock.cli.access import Access
from penstock.cli.cluster.asking import ASKED_AT_ONCE_MAX, Brokers, reason
from penstock.cli.cluster.configs import GROUP as GROUP_SETTINGS
from penstock.cli.cluster.configs import describe_request
from penstock.cli.cluster.state import read_nodes, read_partitions
from penstock.cli.errors import CliError, did_you_mean
from penstock.cli.group.listing import Listed, Listing, list_all
from penstock.cli.group.others import SHARE, Described, describe_other
from penstock.kafka.brokers import Patience
from penstock.kafka.client import Address, unreachable, why
from penstock.kafka.offsets import PASSING, Partition
from penstock.wire.messages.describe_configs import DescribeConfigsResponse
from penstock.wire.messages.describe_queues import (
    ALL_TOLD,
    DescribedQueuePartition,
    DescribedRun,
    DescribeQueuesRequest,
    DescribeQueuesResponse,
    QueuePartition,
    QueueTopic,
)
from penstock.wire.messages.redrive import (
    OffsetRange,
    RedrivenRange,
    RedrivePartition,
    RedriveRequest,
    RedriveResponse,
    RedriveTopic,
)
from penstock.wire.schema import Message

RUNS_AT_ONCE: Final = 1_000
DLQ_SETTING: Final = "errors.deadletterqueue.topic.name"
_R = TypeVar("_R", DescribeQueuesResponse, RedriveResponse)
_P = TypeVar("_P")


class Limits(NamedTuple):
    record_locks: int
    deliveries: int
    lock_ms: int
    read_committed: bool


class Queue(NamedTuple):
    """One share group in its partitions."""

    limits: Limits | None
    """None where the group has no partition yet."""
    partitions: dict[Partition, DescribedQueuePartition]


class Queues:
    """Asks one cluster about its share groups."""

    def __init__(self, access: Access) -> None:
        self.brokers = Brokers(access)
        self.cluster = self.brokers.cluster
        self._listing: Listing | None = None
        self._is_ours = False
        self._leaders: dict[Partition, Address | None] | None = None

    # -- the groups ----------------------------------------------------------------------------

    def listing(self) -> Listing:
        if self._listing is None:
            self._listing = list_all(self.brokers)
        return self._listing

    def groups(self) -> list[Listed]:
        return [group for group in self.listing().groups.values() if group.type == SHARE]

    def require(self, name: str) -> Listed:
        """The share group of that name."""
        listing = self.listing()
        found = listing.groups.get(name)
        if found is None:
            if incomplete := listing.incomplete:
                raise CliError(f"cannot tell whether group {name!r} exists: {incomplete.sentence}")
            raise CliError(
                f"group {name!r} does not exist on {self.cluster.bootstrap}"
                f"{did_you_mean(name, listing.groups)}: see `penstock queue list`"
            )
        if found.type != SHARE:
            raise CliError(
                f"group {name!r} is no queue, its type is {found.type}: see"
                f" `penstock group describe {name}`"
            )
        return found

    def members(self, group: Listed) -> Described:
        """Members, and where the group stands in which partitions."""
        return describe_other(self.cluster, group, f"describe group {group.group!r}")

    def dead_letter_topic(self, group: str) -> str | None:
        """Where the group's dead letters go."""
        return self.dead_letter_topics([group]).get(group)

    def dead_letter_topics(self, groups: Iterable[str]) -> dict[str, str]:
        """Of those groups that have one."""
        request = describe_request(GROUP_SETTINGS, groups, [DLQ_SETTING])
        if not request.resources:
            return {}
        doing = "read where dead letters go"
        answer = self.brokers.ask(request, DescribeConfigsResponse, doing)
        found: dict[str, str] = {}
        for result in answer.results:
            name = result.resource_name
            _check(result.error_code, result.error_message, f"{doing} of {name!r}")
            for one in result.configs:
                if one.value:
                    found[name] = one.value
        return found

    # -- what the leaders know -----------------------------------------------------------------

    def describe(self, group: str, places: Iterable[Partition], *, runs: bool = False) -> Queue:
        """The group in these partitions, with all their runs of records if wanted."""
        limits: list[Limits] = []
        found: dict[Partition, DescribedQueuePartition] = {}
        begins = dict.fromkeys(places, 0)
        doing = f"describe queue {group!r}"

        def request(wanted: Mapping[Partition, int]) -> DescribeQueuesRequest:
            topics = _by_topic(
                wanted, lambda p: QueuePartition(partition_index=p[1], from_offset=wanted[p])
            )
            return DescribeQueuesRequest(
                group_id=group,
                topics=[QueueTopic(name=name, partitions=parts) for name, parts in topics],
                runs_max=RUNS_AT_ONCE if runs else 0,
            )

        def taken(answer: DescribeQueuesResponse) -> Iterator[tuple[Partition, int, str | None]]:
            limits[:] = [
                Limits(
                    answer.record_locks_max,
                    answer.delivery_count_limit,
                    answer.lock_duration_ms,
                    answer.read_committed,
                )
            ]
            for topic in answer.topics:
                for one in topic.partitions:
                    place = topic.name, one.partition_index
                    if not one.error_code:
                        before = found.get(place)
                        found[place] = one
                        if before is not None:
                            one.runs = [*before.runs, *one.runs]
                    yield place, one.error_code, one.error_message

        while begins:
            self._ask_leaders(begins, request, DescribeQueuesResponse, taken, doing)
            begins = {p: found[p].next_offset for p in begins if found[p].next_offset != ALL_TOLD}
        return Queue(limits[0] if limits else None, found)

    def revive(
        self, group: str, offsets: Mapping[Partition, Sequence[int]], *, dry_run: bool
    ) -> dict[Partition, list[RedrivenRange]]:
        """What became of records that the group has given up."""
        found: dict[Partition, list[RedrivenRange]] = {}
        doing = f"redrive messages of {group!r}"

        def request(wanted: Mapping[Partition, Sequence[int]]) -> RedriveRequest:
            topics = _by_topic(
                wanted,
                lambda p: RedrivePartition(
                    partition_index=p[1],
                    ranges=[
                        OffsetRange(first_offset=first, last_offset=last)
                        for first, last in ranges_of(wanted[p])
                    ],
                ),
            )
            return RedriveRequest(
                group_id=group,
                topics=[RedriveTopic(name=name, partitions=parts) for name, parts in topics],
                validate_only=dry_run,
            )

        def taken(answer: RedriveResponse) -> Iterator[tuple[Partition, int, str | None]]:
            for topic in answer.topics:
                for one in topic.partitions:
                    if not one.error_code:
                        found[topic.name, one.partition_index] = one.ranges
                    yield (topic.name, one.partition_index), one.error_code, one.error_message

        if offsets:
            self._ask_leaders(offsets, request, RedriveResponse, taken, doing)
        return found

    def _ask_leaders(
        self,
        wanted: Mapping[Partition, _P],
        request: Callable[[Mapping[Partition, _P]], Message],
        response: type[_R],
        taken: Callable[[_R], Iterator[tuple[Partition, int, str | None]]],
        doing: str,
    ) -> None:
        """Ask the leader of each partition, again where leaders move, until all have answered.

        `taken` takes an answer, and yields what is said of each partition.
        """
        left, patience = dict(wanted), Patience(self.cluster.timeout_s)
        while True:
            said: dict[Partition, str] = {}
            leaders = self._divided(left, said)
            with ThreadPoolExecutor(ASKED_AT_ONCE_MAX) as pool:
                begun = [
                    pool.submit(self._ask_at, address, request(mine), response, doing)
                    for address, mine in leaders.items()
                ]
            answers = [one.result() for one in begun]
            for (address, mine), answer in zip(leaders.items(), answers, strict=True):
                if isinstance(answer, OSError):
                    said |= dict.fromkeys(mine, unreachable("its leader", address, why(answer)))
                    continue
                _check(answer.error_code, answer.error_message, doing)
                for place, code, message in taken(answer):
                    if code and not _passes(code):
                        at = f"{place[0]}-{place[1]}"
                        raise CliError(f"cannot {doing} in {at}: {_reason(code, message)}")
                    if code:
                        said[place] = reason(code, message)
                    else:
                        left.pop(place, None)
            if not left:
                return
            self._leaders = None
            if not patience.wait():
                (topic, number), clause = next(iter(said.items()))
                raise CliError(
                    f"cannot {doing} in {topic}-{number}: {clause}; see `penstock cluster status`"
                )

    def leaders(self) -> Mapping[Partition, Address | None]:
        """All partitions that may be seen, as they were a moment ago; None for no leader."""
        if self._leaders is None:
            nodes = read_nodes(self.brokers).nodes
            self._leaders = {
                place: nodes[known.leader].address
                if known.leader is not None and known.leader in nodes
                else None
                for place, known in read_partitions(self.brokers).items()
            }
        return self._leaders

    def _divided(
        self, places: Mapping[Partition, _P], said: dict[Partition, str]
    ) -> dict[Address, dict[Partition, _P]]:
        """What to ask whom; what cannot be asked is `said`."""
        leaders = self.leaders()
        found: dict[Address, dict[Partition, _P]] = {}
        for place, wanted in places.items():
            if (address := leaders.get(place)) is None:
                said[place] = (
                    "it has no leader"
                    if place in leaders
                    else "there is no such partition, or you may not see it"
                )
                continue
            found.setdefault(address, {})[place] = wanted
        return found

    def _ask_at(
        self,
        address: Address,
        request: Message,
        response: type[_R],
        doing: str,
    ) -> _R | OSError:
        try:
            if not self._is_ours:
                self._require_penstock(address, response, doing)
            return self.brokers.ask_at(address, request, response, doing)
        except OSError as e:
            return e

    def _require_penstock(self, address: Address, response: type[_R], doing: str) -> None:
        served = {api.api_key for api in self.brokers.greet_at(address).api_keys}
        if response.API_KEY not in served:
            raise CliError(
                f"cannot {doing}: the broker does not serve {_name(response)}, which is"
                " Penstock's own; with other brokers, and older releases of Penstock, use"
                " `penstock group describe`"
            )
        self._is_ours = True


def ranges_of(offsets: Iterable[int]) -> list[tuple[int, int]]:
    """Offsets as ranges, ascending."""
    ranges: list[tuple[int, int]] = []
    for offset in sorted(set(offsets)):
        if ranges and ranges[-1][1] == offset - 1:
            ranges[-1] = ranges[-1][0], offset
        else:
            ranges.append((offset, offset))
    return ranges


def runs_of(queue: Queue) -> Iterator[tuple[Partition, DescribedRun]]:
    for place, partition in sorted(queue.partitions.items()):
        for run in partition.runs:
            yield place, run


def numbers(partitions: Iterable[DescribedQueuePartition]) -> dict[str, int]:
    """What of these is available, held, waits; the lag is what is not done."""
    found = dict.fromkeys(("available", "locked", "parked", "archiving", "revived"), 0)
    for partition in partitions:
        for name in found:
            found[name] += getattr(partition, name)
    return found | {"lag": sum(found.values()) - found["revived"]}


def _by_topic(
    places: Iterable[Partition], part: Callable[[Partition], _P]
) -> Iterable[tuple[str, list[_P]]]:
    topics: dict[str, list[_P]] = {}
    for place in sorted(places):
        topics.setdefault(place[0], []).append(part(place))
    return topics.items()


def _name(response: type[Message]) -> str:
    return response.__name__.removesuffix("Response")


_PASSING: Final = PASSING | {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}


def _passes(code: int) -> bool:
    return any(code == one for one in _PASSING)


def _check(code: int, message: str | None, doing: str) -> None:
    if code:
        raise CliError(f"cannot {doing}: {_reason(code, message)}")


_ADVICE: Final = {
    ErrorCode.INVALID_REQUEST: "let workers do what was revived before, and run it again",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "ask for access to the group",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "ask for access to the topic",
    ErrorCode.UNSUPPORTED_VERSION: "share groups are switched off: `penstock cluster features`"
    " shows share.version",
}


def _reason(code: int, message: str | None) -> str:
    advice = next((text for known, text in _ADVICE.items() if known == code), "")
    return reason(code, message) + (f"; {advice}" if advice else "")
