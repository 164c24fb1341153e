"""A consumed message as bytes for stdout: a line of text, a line of JSON, or the raw value."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Self, cast

import msgspec
import typer
from confluent_kafka import Message

from penstock.cli.options import Format, OptionGroup, OutputFormat
from penstock.cli.topic.lines import display_text, json_fields, json_headers
from penstock.cli.values import time_text


class Output(StrEnum):
    TEXT = "text"
    JSON = "json"
    RAW = "raw"


class Renderer:
    """Renders messages in one form; the columns of a text line are separated by tabs, the value
    comes last.
    """

    def __init__(
        self,
        form: str,
        key: bool,
        headers: bool,
        timestamp: bool,
        offset: bool,
        partition_numbers: bool,
    ) -> None:
        self.render = {"text": self._text, "json": self._json, "raw": self._raw}[form]
        self._key = key
        self._headers = headers
        self._timestamp = timestamp
        self._offset = offset
        self._partition_numbers = partition_numbers
        self._terminal = sys.stdout.isatty()
        self._plain = not (
            key or headers or timestamp or offset or partition_numbers or self._terminal
        )

    def _raw(self, message: Message) -> bytes:
        return message.value() or b""

    def _text(self, message: Message) -> bytes:
        value = message.value()
        if self._plain:
            return b"null\n" if value is None else value + b"\n"
        columns = []
        if self._timestamp:
            kind, at = message.timestamp()
            columns.append(time_text(at) if kind else "-")
        if self._partition_numbers:
            columns.append(str(message.partition()))
        if self._offset:
            columns.append(str(message.offset()))
        if self._headers:
            pairs = _headers(message)
            columns.append(
                ",".join(f"{k}={display_text(v, for_terminal=True)}" for k, v in pairs) or "-"
            )
        if self._key:
            columns.append(display_text(message.key(), for_terminal=self._terminal))
        columns.append(display_text(value, for_terminal=self._terminal))
        return "\t".join(columns).encode("utf-8", "surrogateescape") + b"\n"

    def _json(self, message: Message) -> bytes:
        kind, at = message.timestamp()
        fields: dict[str, Any] = {
            "topic": message.topic(),
            "partition": message.partition(),
            "offset": message.offset(),
            "timestamp": at if kind else None,
            **json_fields("key", message.key()),
            **json_fields("value", message.value()),
            "headers": json_headers(_headers(message)),
        }
        return msgspec.json.encode(fields) + b"\n"


@dataclass(frozen=True)
class Look(OptionGroup):
    """How messages are printed."""

    renderer: Renderer

    OPTIONS: ClassVar[Mapping[str, tuple[Any, Any]]] = {
        "key": (Annotated[bool, typer.Option("--key", help="Print keys.")], False),
        "headers": (Annotated[bool, typer.Option("--headers", help="Print headers.")], False),
        "timestamp": (
            Annotated[bool, typer.Option("--timestamp", help="Print timestamps.")],
            False,
        ),
        "offset": (Annotated[bool, typer.Option("--offset", help="Print offsets.")], False),
        "partition_numbers": (
            Annotated[bool, typer.Option("--partition-numbers", help="Print partition numbers.")],
            False,
        ),
        "output": (
            Annotated[
                Output | None,
                typer.Option(
                    "--output",
                    help="text: a line each; json: an object per line; raw: the values' bytes"
                    " alone.",
                ),
            ],
            None,
        ),
        "output_format": (OutputFormat, Format.TEXT),
    }

    @classmethod
    def of_options(cls, options: Mapping[str, Any]) -> Self:
        columns = dict(options)
        form = columns.pop("output")
        in_general = columns.pop("output_format")
        if form is None:
            form = Output.JSON if in_general is Format.JSON else Output.TEXT
        return cls(Renderer(form.value, **columns))


def _headers(message: Message) -> list[tuple[str, bytes | None]]:
    """The headers as they arrived; the client's own type is wider than what it returns."""
    return cast("list[tuple[str, bytes | None]]", message.headers() or [])
