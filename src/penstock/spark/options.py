"""The options of the source, named as those of Spark's own Kafka source.

One table says which there are; a name that is not in it is an error, since a misspelt option that
is silently ignored costs somebody a day. Spark hands option names over in lower case.
What begins with `kafka.` is about the connection to the cluster: `client_settings` has the tables.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from penstock.kafka.client import Client
from penstock.kafka.settings import BOOTSTRAP, Settings
from penstock.spark.client_settings import checked, spark_client
from penstock.spark.errors import OptionError
from penstock.spark.offsets import (
    Bound,
    Kind,
    Partition,
    parse_assign,
    parse_numbers,
    parse_offsets_bound,
)

KAFKA_PREFIX = "kafka."
FETCH_BYTES_MAX = 8 * 1024 * 1024
FETCH_WAIT_MS = 500
ANSWER_MS_MAX = 30_000
"""How long the driver asks again while brokers do not answer or leaders move."""

SOURCE_OPTIONS: dict[str, str] = {
    "subscribe": "topics, separated by commas",
    "subscribePattern": "a regular expression; topics in whose names it is found, as Spark has it",
    "assign": 'partitions, as {"topic": [0, 1]}',
    "startingOffsets": "earliest, latest or JSON; earliest in a batch, latest in a stream",
    "startingOffsetsByTimestamp": 'milliseconds for each partition, as {"topic": {"0": 1700}}',
    "startingTimestamp": "milliseconds for all partitions",
    "startingOffsetsByTimestampStrategy": "error or latest, where nothing is that young",
    "endingOffsets": "latest or JSON; of a batch",
    "endingOffsetsByTimestamp": "milliseconds for each partition; of a batch",
    "endingTimestamp": "milliseconds for all partitions; of a batch",
    "maxOffsetsPerTrigger": "offsets that one micro-batch takes at most",
    "minOffsetsPerTrigger": "offsets that a micro-batch waits for",
    "maxTriggerDelay": "how long it waits for them, as 15m",
    "minPartitions": "tasks to split the reading into, at least",
    "maxRecordsPerPartition": "offsets that one task reads, at most",
    "failOnDataLoss": "true or false: whether records that are gone fail the query",
    "includeHeaders": "true or false: whether rows have the column headers",
    "isolation.level": "read_committed or read_uncommitted; also as kafka.isolation.level",
    "kafkaConsumer.pollTimeoutMs": "how long a task waits without progress",
    "groupIdPrefix": "no effect: tasks join no group; kafka.group.id names one for progress",
    "fetchOffset.numRetries": "no effect: kafka.default.api.timeout.ms says how long is asked",
    "fetchOffset.retryIntervalMs": "no effect, as the one before",
}
_NAMES = {name.lower(): name for name in SOURCE_OPTIONS}
_DURATION = re.compile(r"(\d+)\s*(ms|s|m|min|h|d)?")
_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


class Options:
    """Option values by their lower-case names, each read with its rule."""

    def __init__(self, given: Mapping[str, str], known: Mapping[str, str]) -> None:
        self._values = {name.lower(): value for name, value in given.items()}
        unknown = [
            name for name in self._values if name not in known and not name.startswith(KAFKA_PREFIX)
        ]
        if unknown:
            raise OptionError(
                f"unknown option {', '.join(sorted(unknown))}"
                f"{_did_you_mean(unknown[0], known.values())}; there are"
                f" {', '.join(sorted(known.values()))}, and kafka.* for the client"
            )

    def get(self, name: str) -> str | None:
        return self._values.get(name.lower())

    def whole_number(self, name: str, *, least: int = 1) -> int | None:
        text = self.get(name)
        if text is None:
            return None
        if not re.fullmatch(r"\s*\d+\s*", text) or int(text) < least:
            raise OptionError(f"option {name} must be a whole number from {least}, not {text!r}")
        return int(text)

    def flag(self, name: str, default: bool) -> bool:
        text = (self.get(name) or str(default)).strip().lower()
        if text not in ("true", "false"):
            raise OptionError(f"option {name} must be true or false, not {text!r}")
        return text == "true"

    def seconds(self, name: str, default: float) -> float:
        text = self.get(name)
        if text is None:
            return default
        found = _DURATION.fullmatch(text.strip().lower())
        if found is None:
            raise OptionError(f"option {name} must be a time as 500ms, 30s or 15m, not {text!r}")
        return int(found[1]) * _UNIT_S[found[2] or "ms"]

    def one_of(self, name: str, allowed: Iterable[str], default: str) -> str:
        text = (self.get(name) or default).strip().lower()
        if text not in allowed:
            raise OptionError(f"option {name} must be {' or '.join(allowed)}, not {text!r}")
        return text

    @cached_property
    def kafka(self) -> Settings:
        """The settings of the Kafka client, without the prefix and by Java's names."""
        return checked(
            {
                name.removeprefix(KAFKA_PREFIX): value
                for name, value in self._values.items()
                if name.startswith(KAFKA_PREFIX)
            }
        )


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    by_lower = {k.lower(): k for k in known}
    near = difflib.get_close_matches(name, by_lower, n=1)
    return f" (did you mean {by_lower[near[0]]}?)" if near else ""


@dataclass(frozen=True)
class SourceOptions:
    """What a query over the source asks for."""

    bootstrap: str
    client: Client
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: frozenset[Partition] = frozenset()
    starting: Bound | None = None
    ending: Bound | None = None
    no_younger_is_latest: bool = False
    rows_per_trigger_max: int | None = None
    rows_per_trigger_min: int | None = None
    trigger_delay_s_max: float = 900.0
    tasks_min: int | None = None
    rows_per_task_max: int | None = None
    fail_on_data_loss: bool = True
    headers: bool = False
    committed: bool = False
    poll_timeout_s: float = 120.0
    group: str | None = None
    answer_s_max: float = ANSWER_MS_MAX / 1000
    fetch_bytes_max: int = FETCH_BYTES_MAX
    fetch_bytes_min: int = 1
    fetch_wait_ms: int = FETCH_WAIT_MS
    rack: str = ""

    def wants(self, partition: Partition) -> bool:
        """Whether the subscription covers a partition, existing or not."""
        if self.assigned:
            return partition in self.assigned
        if self.pattern is not None:
            return re.search(self.pattern, partition[0]) is not None
        return partition[0] in self.topics

    @property
    def subscription(self) -> str:
        """The subscription as the user wrote it, for messages."""
        if self.assigned:
            return f"assign {', '.join(f'{t}-{p}' for t, p in sorted(self.assigned))}"
        if self.pattern is not None:
            return f"subscribePattern {self.pattern}"
        return f"subscribe {','.join(self.topics)}"


def source_options(given: Mapping[str, str]) -> SourceOptions:
    """The options of a query that reads, checked as far as they can be without a cluster."""
    options = Options(given, _NAMES)
    kafka = options.kafka
    topics, pattern, assigned = _subscription(options)
    found = SourceOptions(
        bootstrap=kafka.get(BOOTSTRAP),
        client=spark_client(kafka),
        topics=topics,
        pattern=pattern,
        assigned=assigned,
        starting=_bound(options, "starting"),
        ending=_bound(options, "ending"),
        no_younger_is_latest=options.one_of(
            "startingOffsetsByTimestampStrategy", ("error", "latest"), "error"
        )
        == "latest",
        rows_per_trigger_max=options.whole_number("maxOffsetsPerTrigger"),
        rows_per_trigger_min=options.whole_number("minOffsetsPerTrigger"),
        trigger_delay_s_max=options.seconds("maxTriggerDelay", 900.0),
        tasks_min=options.whole_number("minPartitions"),
        rows_per_task_max=options.whole_number("maxRecordsPerPartition"),
        fail_on_data_loss=options.flag("failOnDataLoss", True),
        headers=options.flag("includeHeaders", False),
        committed=_committed(options),
        poll_timeout_s=options.seconds("kafkaConsumer.pollTimeoutMs", 120.0),
        group=kafka.values.get("group.id"),
        answer_s_max=kafka.number("default.api.timeout.ms", ANSWER_MS_MAX) / 1000,
        fetch_bytes_max=min(
            kafka.number("fetch.max.bytes", FETCH_BYTES_MAX),
            kafka.number("max.partition.fetch.bytes", FETCH_BYTES_MAX),
        ),
        fetch_bytes_min=kafka.number("fetch.min.bytes", 1, least=0),
        fetch_wait_ms=kafka.number("fetch.max.wait.ms", FETCH_WAIT_MS, least=0),
        rack=kafka.get("client.rack"),
    )
    _check_limits(found)
    return found


def _committed(options: Options) -> bool:
    level = options.get("isolation.level") or options.kafka.values.get("isolation.level")
    if level not in ("read_committed", "read_uncommitted", None):
        raise OptionError(
            f"option isolation.level must be read_committed or read_uncommitted, not {level!r}"
        )
    return level == "read_committed"


def _check_limits(found: SourceOptions) -> None:
    least, most = found.rows_per_trigger_min, found.rows_per_trigger_max
    if least is not None and most is not None and least > most:
        raise OptionError(
            f"option minOffsetsPerTrigger ({least}) is larger than maxOffsetsPerTrigger ({most})"
        )
    answer_ms = round(found.client.answer_s * 1000)
    if found.fetch_wait_ms >= answer_ms:
        raise OptionError(
            f"option kafka.fetch.max.wait.ms ({found.fetch_wait_ms}) is not less than"
            f" kafka.request.timeout.ms ({answer_ms}): no answer could come in time"
        )


def _subscription(
    options: Options,
) -> tuple[tuple[str, ...], str | None, frozenset[Partition]]:
    given = [n for n in ("subscribe", "subscribePattern", "assign") if options.get(n) is not None]
    if len(given) != 1:
        raise OptionError(
            f"give exactly one of the options subscribe, subscribePattern and assign"
            f" ({' and '.join(given) if given else 'none'} given)"
        )
    text = options.get(given[0]) or ""
    if given[0] == "assign":
        return (), None, parse_assign("assign", text)
    if not text.strip():
        raise OptionError(f"option {given[0]} is empty")
    if given[0] == "subscribe":
        topics = tuple(filter(None, (t.strip() for t in text.split(","))))
        if not topics:
            raise OptionError(f"option subscribe names no topic: {text!r}")
        return topics, None, frozenset()
    try:
        re.compile(text)
    except re.error as e:
        raise OptionError(f"option subscribePattern is no regular expression: {e}") from None
    return (), text, frozenset()


def _bound(options: Options, side: str) -> Bound | None:
    """The bound that options give; of several, the most exact one, as Spark has it."""
    timestamp = options.whole_number(f"{side}Timestamp", least=0)
    if timestamp is not None:
        return Bound(f"{side}Timestamp", Kind.TIME, time_ms=timestamp)
    name = f"{side}OffsetsByTimestamp"
    if (text := options.get(name)) is not None:
        return Bound(name, Kind.TIMES, parse_numbers(name, text, least=0))
    name = f"{side}Offsets"
    if (text := options.get(name)) is not None:
        return parse_offsets_bound(name, text)
    return None


def for_batch(found: SourceOptions) -> SourceOptions:
    """The options, checked for a batch: it starts somewhere and ends somewhere."""
    for bound, wrong, offset in (
        (found.starting, Kind.LATEST, -1),
        (found.ending, Kind.EARLIEST, -2),
    ):
        if bound is not None and (bound.kind is wrong or offset in _offsets(bound)):
            raise OptionError(
                f"option {bound.option} of a batch cannot be {wrong.value}: nothing would be read"
            )
    return found


def for_stream(found: SourceOptions) -> SourceOptions:
    """The options, checked for a stream, which has no end."""
    if found.ending is not None:
        raise OptionError(
            f"option {found.ending.option} is for batches; a stream ends when it is stopped, or"
            " use trigger(availableNow=True)"
        )
    return found


def _offsets(bound: Bound) -> Iterable[int]:
    return bound.values.values() if bound.kind is Kind.OFFSETS else ()
