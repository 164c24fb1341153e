"""Writes docs/settings.md: `python -m penstock.config.settings_doc > docs/settings.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from penstock.config.broker_config import BROKER_SETTINGS
from penstock.config.group_config import GROUP_SETTINGS
from penstock.config.log_config import TOPIC_SETTINGS
from penstock.config.table import Only, Setting, Table, value_text

_HEAD = """\
# Settings

This page is generated from the table in `src/penstock/config`; do not edit it
(`python -m penstock.config.settings_doc > docs/settings.md` writes it anew).

A node takes its settings from the defaults below, then from its file
(`penstock serve --config FILE`), then from `--set KEY=VALUE` arguments, then from the dynamic
settings of the cluster, then from the dynamic settings of this broker; the last one counts. A
file whose name ends with `.properties` is read as Kafka reads its `server.properties`, but in
UTF-8. Any other is TOML: keys are the names below, and nested tables flatten to them:

```toml
"node.id" = 1
listeners = "PLAINTEXT://:9092"
"advertised.listeners" = "PLAINTEXT://alpha.example:9092"

[log]
dir = "/var/lib/penstock"
retention.hours = 48
```

Names, types, defaults and bounds are Kafka's, except where a text says otherwise and for names
that begin with `penstock.`, for which Kafka has nothing. An unknown name or a value that is not
allowed is refused with a sentence. Where only one value is allowed, the setting is there because
tools send it. Settings of Kafka that a node has no use for are [taken without
effect](#settings-of-kafka-without-effect), so that a file written for Kafka starts a node.
"""


def settings_page() -> str:
    """The whole page."""
    sections = (
        _topic_section(),
        _group_section(),
        _broker_section(),
        _idle_section(),
        _absent_section(),
    )
    return "\n".join([_HEAD, *(line for section in sections for line in section)])


def _topic_section() -> Iterator[str]:
    yield "## Topic settings\n"
    yield "Set when a topic is created or later (`penstock topic alter`). Where a topic does not"
    yield "set one, the broker settings named beside it count, the first that has a value.\n"
    yield from _rows(TOPIC_SETTINGS)


def _group_section() -> Iterator[str]:
    yield "## Group settings\n"
    yield "Set for a consumer group (`consumer.*`) or a share group (`share.*`), be there one of"
    yield "this name yet or not (`kafka-configs --alter --entity-type groups`). Where a group does"
    yield "not set one, the broker setting beside it counts, if there is one.\n"
    yield from _rows(GROUP_SETTINGS)


def _rows(table: Table) -> Iterator[str]:
    for row in table:
        yield from _row(row)
        if row.synonyms:
            names = ", ".join(f"`{synonym.name}`" for synonym in row.synonyms)
            yield f"- broker setting: {names}"
        yield ""


def _broker_section() -> Iterator[str]:
    yield "## Broker settings\n"
    for row in BROKER_SETTINGS:
        yield from _row(row)
        yield f"- changes: {row.update.value}"
        yield ""


def _row(row: Setting) -> Iterator[str]:
    kind, default = row.type.name.lower(), _default(row)
    yield f"### `{row.name}`\n"
    yield f"{row.doc}\n"
    yield f"- type: {kind}; default: {default}; importance: {row.importance.value}"
    yield f"- allowed: {row.allowed}"


def _default(row: Setting) -> str:
    default = value_text(row.default)
    return "none" if default is None else f"`{default}`" if default else "empty"


def _idle_section() -> Iterator[str]:
    yield "## Settings of Kafka without effect\n"
    yield "Broker settings of Kafka 4.3 that a node has no use for. They are taken from wherever"
    yield "settings come, checked by type and bounds, stored, and described by DescribeConfigs with"
    yield "a documentation that says so; the node logs once which are set. Also as those of one"
    yield "listener, behind `listener.name.NAME.`.\n"
    rows = [*BROKER_SETTINGS.kafka.rows.values(), *BROKER_SETTINGS.kafka.older.values()]
    yield from _idle_rows([row for row in rows if not isinstance(row.rule, Only)])
    yield "### Refused unless they ask for their default\n"
    yield "To take these without effect would promise what is not there, security above all.\n"
    yield from _idle_rows([row for row in rows if isinstance(row.rule, Only)])


def _idle_rows(rows: list[Setting]) -> Iterator[str]:
    yield "| setting | type | default | changes | why |"
    yield "|---|---|---|---|---|"
    for row in rows:
        why = row.doc.partition(": ")[2].rstrip(".")
        kind = row.type.name.lower()
        yield f"| `{row.name}` | {kind} | {_default(row)} | {row.update.value} | {why} |"
    yield ""


def _absent_section() -> Iterator[str]:
    yield "## Settings of Kafka that are not here\n"
    yield "They are refused with the reason; a name ending in `.*` stands for all that begin so.\n"
    yield "| setting | why |"
    yield "|---|---|"
    for table in (TOPIC_SETTINGS, GROUP_SETTINGS, BROKER_SETTINGS):
        yield from _absent_rows(table)
    yield ""


def _absent_rows(table: Table) -> Iterator[str]:
    for name, why in table.absent.items():
        shown = f"{name}*" if name.endswith(".") else name
        yield f"| `{shown}` ({table.kind}) | {why} |"


if __name__ == "__main__":
    sys.stdout.write(settings_page())
