"""The table of broker settings: those that have an effect, and those of Kafka that have none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.config.kafka_settings import KafkaSettings
from penstock.config.table import Setting, Table


class BrokerTable(Table):
    """Iterating gives the settings with an effect; the others are found by name, and in `kafka`."""

    __slots__ = ("kafka",)

    def __init__(self, declared_by: type, absent: Mapping[str, str], kafka: KafkaSettings) -> None:
        super().__init__("broker", declared_by, absent)
        self.kafka = kafka

    def find(self, name: str) -> Setting | None:
        return super().find(name) or self.kafka.find(name)

    def known(self) -> Iterable[str]:
        return [*self.rows, *self.kafka.rows]

    def without_effect(self, texts: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
        """Those of `texts` that are taken without effect, by name."""
        return tuple(sorted(item for item in texts.items() if item[0] not in self.rows))
