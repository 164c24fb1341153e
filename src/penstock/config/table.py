"""What a setting is: its name, type, default, allowed values and documentation, and how a text is
parsed.

The table itself is written as the fields of classes, `LogConfig` (topic settings), `BrokerConfig`
(broker settings), `ConsumerGroupConfig` and `ShareGroupConfig` (group settings): each field is
declared with `setting(...)`, its name with `_` for `.` is the setting's name, and `Table` reads the
rows back. So a row, its type for the checker and its attribute are one place, and everything else
(validation, DescribeConfigs, docs/settings.md) is derived from it.

Texts are parsed as Kafka parses them: surrounding blanks do not count, booleans are `true` and
`false` in any case, lists are separated by commas. A text that is refused raises `ConfigError`
with one sentence that names the setting, the value and what is allowed.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, TypeAlias

from penstock.base.errors import PenstockError

Value: TypeAlias = "bool | int | float | str | tuple[str, ...] | frozenset[str] | None"


class ConfigError(PenstockError):
    """A setting that does not exist or a value that is not allowed, as one sentence."""


class SettingType(IntEnum):
    """The types of settings, numbered as DescribeConfigs sends them."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class UpdateMode(Enum):
    """How a broker setting changes: by a restart, for one broker, or for the cluster."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class Importance(Enum):
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


@dataclass(frozen=True, slots=True)
class Between:
    """A number within bounds, or `also`."""

    low: float | None = None
    high: float | None = None
    also: int | None = None

    def allows(self, value: Value) -> bool:
        if not isinstance(value, int | float):
            return False
        if self.also is not None and value == self.also:
            return True
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)

    def __str__(self) -> str:
        if self.high is None:
            text = f"of at least {self.low}"
        else:
            text = f"between {self.low} and {self.high}"
        return text if self.also is None else f"{text}, or {self.also}"


def at_least(low: int, *, also: int | None = None) -> Between:
    return Between(low=low, also=also)


@dataclass(frozen=True, slots=True)
class OneOf:
    """A text out of a few; for a list, every element is one of them."""

    choices: tuple[str, ...]

    def allows(self, value: Value) -> bool:
        if isinstance(value, tuple):
            return all(item in self.choices for item in value)
        return value in self.choices

    def __str__(self) -> str:
        return "one of " + ", ".join(self.choices)


@dataclass(frozen=True, slots=True)
class Only:
    """A setting of Kafka of which Penstock can do one value only; `why` says the reason."""

    value: Value
    why: str

    def allows(self, value: Value) -> bool:
        return value == self.value or (self.value is None and not value)

    def __str__(self) -> str:
        return f"{value_text(self.value) or 'empty'}, since {self.why}"


@dataclass(frozen=True, slots=True)
class Each:
    """A list of which every element has a form; `says` describes it."""

    pattern: str
    says: str

    def allows(self, value: Value) -> bool:
        return isinstance(value, tuple) and all(re.fullmatch(self.pattern, v) for v in value)

    def __str__(self) -> str:
        return self.says


@dataclass(frozen=True, slots=True)
class Text:
    """A text that has a form; `says` describes it."""

    pattern: str
    says: str

    def allows(self, value: Value) -> bool:
        return isinstance(value, str) and re.fullmatch(self.pattern, value) is not None

    def __str__(self) -> str:
        return self.says


@dataclass(frozen=True, slots=True)
class Checked:
    """A text that a function takes; `says` describes it."""

    check: Callable[[str], bool]
    says: str

    def allows(self, value: Value) -> bool:
        return isinstance(value, str) and self.check(value)

    def __str__(self) -> str:
        return self.says


Rule: TypeAlias = Between | OneOf | Only | Each | Text | Checked
"""A bound on a parsed value; its text completes the sentence "... must be"."""


@dataclass(frozen=True, slots=True)
class Synonym:
    """A broker setting that supplies a topic setting's default, times `factor` (hours to ms)."""

    name: str
    factor: int = 1


_SHOWN_MAX = 100
"""How many characters of a refused value its sentence shows."""

_DIGITS_MAX = 100
"""More is no number of ours, and Python refuses to convert thousands of digits."""

_WHOLE_NUMBERS = {
    SettingType.SHORT: 15,
    SettingType.INT: 31,
    SettingType.LONG: 63,
}


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table."""

    name: str
    type: SettingType
    default: Value
    doc: str
    rule: Rule | None = None
    synonyms: tuple[Synonym, ...] = ()
    update: UpdateMode = UpdateMode.READ_ONLY
    importance: Importance = Importance.MEDIUM

    @property
    def field(self) -> str:
        return self.name.replace(".", "_")

    @property
    def sensitive(self) -> bool:
        return self.type is SettingType.PASSWORD

    def parse(self, text: str) -> Value:
        """The typed value of `text`, or `ConfigError`."""
        value = self._typed(text)
        if self.rule is not None and not self.rule.allows(value):
            raise self.refusal(text)
        return value

    def refusal(self, text: str) -> ConfigError:
        if len(text) > _SHOWN_MAX:
            text = text[:_SHOWN_MAX] + "..."
        shown = "a hidden value" if self.sensitive else repr(text)
        return ConfigError(f"{self.name} cannot be {shown}: it must be {self.allowed}")

    @property
    def allowed(self) -> str:
        """What is allowed, as the end of a sentence."""
        kind = _KINDS[self.type]
        if self.rule is None:
            return kind
        if isinstance(self.rule, Only | Text | Checked):
            return str(self.rule)
        if isinstance(self.rule, OneOf):
            of = "a comma-separated list, each element " if self.type is SettingType.LIST else ""
            return f"{of}{self.rule}"
        return f"{kind} {self.rule}"

    def _typed(self, text: str) -> Value:
        text = text.strip()
        if self.type is SettingType.BOOLEAN:
            if text.lower() not in ("true", "false"):
                raise self.refusal(text)
            return text.lower() == "true"
        if self.type in _WHOLE_NUMBERS:
            return self._whole_number(text, _WHOLE_NUMBERS[self.type])
        if self.type is SettingType.DOUBLE:
            return self._double(text)
        if self.type is SettingType.LIST:
            items = (item.strip() for item in text.split(","))
            return tuple(dict.fromkeys(items)) if text else ()
        return text

    def _whole_number(self, text: str, bits: int) -> int:
        digits = text[1:] if text[:1] in ("-", "+") else text
        if not (digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX):
            raise self.refusal(text)
        value = int(text)
        if not -(1 << bits) <= value < 1 << bits:
            raise self.refusal(text)
        return value

    def _double(self, text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise self.refusal(text) from None
        if value != value or value in (float("inf"), float("-inf")):
            raise self.refusal(text)
        return value


_KINDS = {
    SettingType.BOOLEAN: "true or false",
    SettingType.STRING: "a text",
    SettingType.CLASS: "the name of a class",
    SettingType.PASSWORD: "a text",
    SettingType.LIST: "a comma-separated list",
    SettingType.SHORT: "a 16-bit whole number",
    SettingType.INT: "a 32-bit whole number",
    SettingType.LONG: "a 64-bit whole number",
    SettingType.DOUBLE: "a number",
}


def value_text(value: Value) -> str | None:
    """A typed value as Kafka writes it; None where there is no value."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, frozenset):
        return ",".join(sorted(value))
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float):
        return repr(value).replace("e+", "E").replace("e-", "E-")
    return str(value)


def setting(
    kind: SettingType,
    default: Value,
    doc: str,
    *,
    rule: Rule | None = None,
    synonyms: tuple[Synonym, ...] = (),
    update: UpdateMode = UpdateMode.READ_ONLY,
    importance: Importance = Importance.MEDIUM,
) -> Any:
    """A field that is a row of the table."""
    row = Setting("", kind, default, doc, rule, synonyms, update, importance)
    return dataclasses.field(default=default, repr=not row.sensitive, metadata={"setting": row})


class Table:
    """The rows declared by classes, by name, with the way from texts to typed values."""

    __slots__ = ("absent", "kind", "rows")

    def __init__(
        self, kind: str, declared_by: type | tuple[type, ...], absent: Mapping[str, str]
    ) -> None:
        """`absent`: names (or prefixes ending in `.`) of Kafka's that are not here, each with the
        reason.
        """
        self.kind = kind
        self.absent = absent
        self.rows: dict[str, Setting] = {}
        classes = declared_by if isinstance(declared_by, tuple) else (declared_by,)
        for field in (field for found in classes for field in dataclasses.fields(found)):
            row = field.metadata.get("setting")
            if row is not None:
                name = field.name.replace("_", ".")
                self.rows[name] = dataclasses.replace(row, name=name)

    def __iter__(self) -> Iterator[Setting]:
        return iter(self.rows.values())

    def __contains__(self, name: str) -> bool:
        return name in self.rows

    def __getitem__(self, name: str) -> Setting:
        row = self.find(name)
        if row is None:
            raise self._unknown(name)
        return row

    def find(self, name: str) -> Setting | None:
        return self.rows.get(name)

    def known(self) -> Iterable[str]:
        """The names that a wrong one may have meant."""
        return self.rows

    def parse(self, texts: Mapping[str, str]) -> dict[str, Value]:
        """Typed values by field name, ready for the declaring class's constructor."""
        values: dict[str, Value] = {}
        for name, text in texts.items():
            row = self[name]
            value = row.parse(text)
            if name in self.rows:
                values[row.field] = value
        return values

    def usable(self, texts: Mapping[str, str]) -> dict[str, Value]:
        """As `parse`, without those that it would refuse."""
        values: dict[str, Value] = {}
        for name, text in texts.items():
            try:
                values |= self.parse({name: text})
            except ConfigError:
                continue
        return values

    def _unknown(self, name: str) -> ConfigError:
        for known, why in self.absent.items():
            if name == known or (known.endswith(".") and name.startswith(known)):
                return ConfigError(
                    f"{name} is a {self.kind} setting of Kafka that Penstock does not have: {why}"
                )
        close = difflib.get_close_matches(name, self.known(), n=1, cutoff=0.6)
        hint = f"did you mean {close[0]}?" if close else "docs/settings.md lists those that exist"
        return ConfigError(f"there is no {self.kind} setting {name!r}; {hint}")
