"""Looks whether a pipeline can work before Spark is started for it, which takes many times as long.

Duty: asks the brokers for the topics that the settings name, by their roles
(`penstock.spark.pipeline.roles`): that they are there, and that the user may read or write them.
With `create`, topics to write that are missing are made. Formats, schemas, times and tables are
looked at as well. Whatever is refused is one sentence that names the setting.

What is found here may change until the pipeline runs: it checks for itself, too. SQL in settings is
for Spark alone to read.

Limits: brokers that do not answer are asked for `ASK_S_MAX`. Runs in the parent process; PySpark is
imported only for its types, and starts no Java.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.base.errors import ErrorCode
from penstock.kafka.brokers import METADATA_VERSION, Brokers, Patience
from penstock.kafka.client import parse_addresses
from penstock.kafka.errors import ClusterError
from penstock.kafka.settings import BOOTSTRAP, Settings
from penstock.kafka.topics import BROKER_DEFAULT, create_topic
from penstock.spark.client_settings import checked, spark_client
from penstock.spark.errors import OptionError
from penstock.spark.pipeline.errors import PipelineError
from penstock.spark.pipeline.roles import Role
from penstock.spark.pipeline.settings import CATALOG, KAFKA, address_of
from penstock.spark.pipeline.signature import Setting, Signature, Value
from penstock.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

if TYPE_CHECKING:
    from penstock.spark.lake.table import Table

ASK_S_MAX: Final = 5.0
NOT_TOLD: Final = -(2**31)
"""What a broker answers for operations that it does not tell."""
READ, WRITE = 3, 4
"""Bits of a topic's authorized operations; the numbers are the protocol's."""


@dataclass
class Found:
    """What was learned on the way."""

    cluster: str | None = None
    partitions: dict[str, int] = field(default_factory=dict)
    made: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Preflight:
    """The checks of one run; `values` are the arguments of the pipeline's function."""

    signature: Signature
    values: Mapping[str, Value]
    create: bool = False

    def run(self) -> Found:
        """Raises a `PipelineError`, an `OptionError` or a `ClusterError` for what cannot work."""
        self._check_times()
        self._check_formats()
        tables = self._check_places()
        found = Found()
        if self.signature.takes_kafka:
            settings = checked(self._kafka)
            addresses = parse_addresses(settings.get(BOOTSTRAP))
            with Brokers(addresses, ASK_S_MAX, spark_client(settings)) as brokers:
                self._check_topics(_Topics(brokers, settings, found), tables)
        return found

    @property
    def _kafka(self) -> dict[str, str]:
        given = ((name, value) for name, value in self.values.items() if name.startswith(KAFKA))
        return {name.removeprefix(KAFKA): str(value) for name, value in given}

    def _given(self, *roles: Role) -> list[tuple[Setting, str]]:
        """Settings of these roles that have a value, as text."""
        found = [(s, self.values.get(s.name, s.default)) for s in self.signature.of_role(*roles)]
        return [
            (s, ",".join(value) if isinstance(value, list) else str(value))
            for s, value in found
            if value not in (None, "", [])
        ]

    def _check_times(self) -> None:
        given = self._given(Role.TIME)
        if given:
            from penstock.spark.lake.rows import parse_time

            for setting, text in given:
                parse_time(setting.option, text)

    def _check_formats(self) -> None:
        given = self._given(Role.FORMAT, Role.INFERRED_FORMAT)
        if not given:
            return
        from penstock.spark.formats.columns import format_of

        for setting, text in given:
            schema = self.values.get(setting.name.replace("_format", "_schema"))
            if schema is None and setting.role is Role.INFERRED_FORMAT and text == "json":
                continue
            try:
                format_of(text, None if schema is None else str(schema))
            except OptionError as e:
                raise PipelineError(f"setting {setting.option}: {e}") from None

    def _check_places(self) -> list[Table]:
        """The archives that are read."""
        for setting, text in self._given(Role.SOURCE_FOLDER):
            place = address_of(text)
            if "://" not in place and not Path(place).exists():
                raise PipelineError(f"setting {setting.option}: there is no folder {place}")
        tables = self._given(Role.SOURCE_TABLE, Role.TARGET_TABLE)
        if not tables:
            return []
        from penstock.spark.lake.table import open_table

        found = []
        catalog = self.values.get(CATALOG)
        for setting, text in tables:
            is_source = setting.role is Role.SOURCE_TABLE
            wanted = None if is_source else str(self._value("table_format"))
            table = open_table(text, wanted, None if catalog is None else str(catalog))
            if is_source:
                found.append(table)
            else:
                table.check_writable()
        return found

    def _value(self, name: str) -> Value:
        default = next(s.default for s in self.signature.settings if s.name == name)
        return self.values.get(name, default)

    def _check_topics(self, topics: _Topics, tables: list[Table]) -> None:
        sources = _named(self._given(Role.SOURCE_TOPIC))
        targets = _named(self._given(Role.TARGET_TOPIC))
        topics.ask([*sources, *targets])
        for name, setting in sources.items():
            topics.check_source(name, setting)
        count = max((topics.found.partitions[name] for name in sources), default=BROKER_DEFAULT)
        held = [int(p) for t in tables for of in t.load().state.spans.values() for p in of]
        count = max(count, max(held, default=-1) + 1) if held else count
        for name, setting in targets.items():
            topics.check_target(name, setting, count if self.create else None)
        if held and self.values.get("keep_partitions", True):
            for name in targets:
                _check_enough(name, topics.found.partitions[name], max(held) + 1)


def _named(given: list[tuple[Setting, str]]) -> dict[str, Setting]:
    """The topics, each with the setting that names it."""
    return {
        name.strip(): setting for setting, text in given for name in text.split(",") if name.strip()
    }


def _check_enough(topic: str, there: int, wanted: int) -> None:
    if there < wanted:
        raise PipelineError(
            f"topic {topic} has {there} partitions, the archive's records are of {wanted}: give"
            " --no-keep-partitions, or a topic with as many"
        )


class _Topics:
    """What brokers say of topics."""

    def __init__(self, brokers: Brokers, settings: Settings, found: Found) -> None:
        self.found = found
        self._brokers, self._bootstrap = brokers, settings.get(BOOTSTRAP)
        self._known: dict[str, MetadataResponseTopic] = {}

    def ask(self, names: list[str]) -> MetadataResponse:
        """Looks the topics up, and which cluster this is."""
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in dict.fromkeys(names)],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=True,
        )
        answer = self._brokers.ask_anyone(request, MetadataResponse, METADATA_VERSION)
        self.found.cluster = answer.cluster_id
        self._known |= {topic.name or "": topic for topic in answer.topics}
        self.found.partitions |= {t.name or "": len(t.partitions) for t in answer.topics}
        return answer

    def check_source(self, name: str, setting: Setting) -> None:
        if self._is_missing(name, setting):
            raise ClusterError(
                f"setting {setting.option}: topic {name} does not exist on {self._bootstrap}; make"
                f" it with `penstock topic create {name}`, or correct the name"
            )
        self._check_allowed(name, setting, READ, "read")

    def check_target(self, name: str, setting: Setting, partitions: int | None) -> None:
        """`partitions` of a topic that is to be made if it is missing; None makes none."""
        if self._is_missing(name, setting):
            if partitions is None:
                raise ClusterError(
                    f"setting {setting.option}: topic {name} does not exist on {self._bootstrap};"
                    " give --create to make it, or correct the name"
                )
            self._create(name, partitions)
        self._check_allowed(name, setting, WRITE, "write to")

    def _is_missing(self, name: str, setting: Setting) -> bool:
        code = ErrorCode(self._known[name].error_code)
        if code in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
            return False
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return True
        raise ClusterError(
            f"setting {setting.option}: topic {name} on {self._bootstrap}: {code.name}; correct the"
            " name, or let the user of this pipeline see the topic"
        )

    def _check_allowed(self, name: str, setting: Setting, bit: int, what: str) -> None:
        allowed = self._known[name].topic_authorized_operations
        if allowed != NOT_TOLD and not allowed & (1 << bit):
            raise ClusterError(
                f"setting {setting.option}: the user of this pipeline may not {what} topic {name}"
                f" on {self._bootstrap}; allow it"
            )

    def _create(self, name: str, partitions: int) -> None:
        create_topic(self._brokers, name, partitions, may_exist=True)
        self.found.made.append(name)
        patience = Patience(ASK_S_MAX)
        while not (self.ask([name]) and self._known[name].partitions) and patience.wait():
            """The broker that answers has yet to hear of it."""
