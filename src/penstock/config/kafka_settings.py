"""The broker settings of Kafka that a node has no use for, read from `kafka_settings.txt`.

A file that was written for Kafka must start a node, and what operators push must be taken. So each
of these names is known, its value is checked by Kafka's type and bounds, stored and described; it
has no effect, and says so. Those that ask for something which would silently not be there (security
above all) are refused, unless they ask for their default.

A setting may stand behind `listener.name.NAME.`, or `listener.name.NAME.MECHANISM.` for SASL, as
that of one listener.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path

from penstock.config.table import Between, Only, Rule, Setting, SettingType, UpdateMode, Value

_FILE = Path(__file__).with_name("kafka_settings.txt")
_LARGEST: Mapping[SettingType, int] = {
    SettingType.INT: (1 << 31) - 1,
    SettingType.LONG: (1 << 63) - 1,
}
OF_LISTENER = re.compile(r"listener\.name\.([^.]+)\.(.+)")
OF_MECHANISM = re.compile(
    r"[^.]+\.(sasl\.(?:jaas\.config|login\.class|(?:login|server)\.callback\.handler\.class)"
    r"|connections\.max\.reauth\.ms)"
)


@dataclasses.dataclass(frozen=True, slots=True)
class KafkaSettings:
    """`rows` are those of Kafka 4.3, `older` those that it has no longer."""

    rows: Mapping[str, Setting]
    older: Mapping[str, Setting]

    def find(self, name: str) -> Setting | None:
        """The row of `name`, which may be that of a listener."""
        row = self.rows.get(name) or self.older.get(name)
        if row is not None or not name.startswith("listener.name."):
            return row
        of_listener = OF_LISTENER.fullmatch(name)
        if of_listener is None:
            return None
        base = of_listener[2]
        of_mechanism = OF_MECHANISM.fullmatch(base)
        row = self.rows.get(of_mechanism[1] if of_mechanism else base)
        return None if row is None else dataclasses.replace(row, name=name)


def read_kafka_settings() -> KafkaSettings:
    found: dict[str, dict[str, Setting]] = {"taken": {}, "refused": {}, "older": {}}
    kind = why = ""
    for line in _FILE.read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        if line.startswith(" "):
            row = _row(line.split(), kind, why)
            found[kind][row.name] = row
        else:
            kind, _, why = line.partition(": ")
    return KafkaSettings({**found["taken"], **found["refused"]}, found["older"])


def _row(words: list[str], kind: str, why: str) -> Setting:
    name, type_name, text, *rest = words
    row = Setting(name, SettingType[type_name.upper()], None, _doc(kind, why))
    default = _default(row, text)
    rule: Rule | None = Only(default, why) if kind == "refused" else None
    update = UpdateMode.READ_ONLY
    for word in rest:
        if ".." in word:
            rule = _bounds(word)
        else:
            update = UpdateMode(word)
    return dataclasses.replace(row, default=default, rule=rule, update=update)


def _doc(kind: str, why: str) -> str:
    if kind == "refused":
        return f"Has no effect, and nothing but its default is taken: {why}."
    return f"Has no effect: {why}."


def _default(row: Setting, text: str) -> Value:
    if text == "-":
        return None
    if text == "max":
        return _LARGEST[row.type]
    return row.parse("" if text == "''" else text)


def _bounds(text: str) -> Between:
    low, high = (_number(bound) for bound in text.split(".."))
    return Between(low, high)


def _number(text: str) -> float | None:
    if not text:
        return None
    return float(text) if "." in text else int(text)
