"""The table of broker settings: those that have an effect, and those of Kafka that have none."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from penstock.config.kafka_settings import OF_LISTENER, KafkaSettings
from penstock.config.table import Setting, Table

PER_LISTENER = ("max.connections", "max.connection.creation.rate")
"""Settings with an effect that can be those of one listener."""


class BrokerTable(Table):
    """Iterating gives the settings with an effect; the others are found by name, and in `kafka`."""

    __slots__ = ("kafka",)

    def __init__(self, declared_by: type, absent: Mapping[str, str], kafka: KafkaSettings) -> None:
        super().__init__("broker", declared_by, absent)
        self.kafka = kafka

    def find(self, name: str) -> Setting | None:
        row = super().find(name) or self.kafka.find(name)
        of_listener = None if row is not None else OF_LISTENER.fullmatch(name)
        if of_listener is not None and of_listener[2] in PER_LISTENER:
            row = dataclasses.replace(self.rows[of_listener[2]], name=name)
        return row

    def of_listeners(self, texts: Mapping[str, str]) -> tuple[tuple[str, str, int], ...]:
        """The settings of single listeners that have an effect: listener, setting, value."""
        found = []
        for name, text in texts.items():
            match = OF_LISTENER.fullmatch(name)
            if match is not None and match[2] in PER_LISTENER:
                value = self[name].parse(text)
                assert isinstance(value, int)
                found.append((match[1].upper(), match[2], value))
        return tuple(sorted(found))

    def known(self) -> Iterable[str]:
        return [*self.rows, *self.kafka.rows]

    def without_effect(self, texts: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
        """Those of `texts` that are taken without effect, by name."""
        return tuple(
            sorted((n, text) for n, text in texts.items() if self.kafka.find(n) is not None)
        )
