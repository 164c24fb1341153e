"""The table of broker settings: those that have an effect, and those of Kafka that have none."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from penstock.config.kafka_settings import OF_LISTENER, OF_MECHANISM, KafkaSettings
from penstock.config.table import Setting, Table

_OF_ONE = frozenset({"max.connections", "max.connection.creation.rate"})


def can_be_of_listener(name: str) -> bool:
    """Whether a setting with an effect can be that of one listener."""
    return name in _OF_ONE or name.startswith(("ssl.", "sasl."))


class BrokerTable(Table):
    """Iterating gives the settings with an effect; the others are found by name, and in `kafka`."""

    __slots__ = ("kafka",)

    def __init__(self, declared_by: type, absent: Mapping[str, str], kafka: KafkaSettings) -> None:
        super().__init__("broker", declared_by, absent)
        self.kafka = kafka

    def find(self, name: str) -> Setting | None:
        row = super().find(name) or self.kafka.find(name)
        of_listener = None if row is not None else OF_LISTENER.fullmatch(name)
        if of_listener is not None:
            row = self._of_listener(of_listener[2])
        return row if of_listener is None or row is None else dataclasses.replace(row, name=name)

    def _of_listener(self, name: str) -> Setting | None:
        """The row of a setting that stands behind the name of a listener."""
        of_mechanism = OF_MECHANISM.fullmatch(name)
        if of_mechanism is not None:
            return self.rows.get(of_mechanism[1])
        return self.rows.get(name) if can_be_of_listener(name) else None

    def of_listeners(self, texts: Mapping[str, str]) -> tuple[tuple[str, str, str], ...]:
        """The settings of single listeners that have an effect: listener, setting, text."""
        found = []
        for name, text in texts.items():
            match = OF_LISTENER.fullmatch(name)
            if match is not None and self._of_listener(match[2]) is not None:
                found.append((match[1].upper(), match[2], text))
        return tuple(sorted(found))

    def known(self) -> Iterable[str]:
        return [*self.rows, *self.kafka.rows]

    def without_effect(self, texts: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
        """Those of `texts` that are taken without effect, by name."""
        return tuple(
            sorted((n, text) for n, text in texts.items() if self.kafka.find(n) is not None)
        )
