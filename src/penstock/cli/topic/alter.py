"""`penstock topic alter`: change the settings of a topic."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.access import Access
from penstock.cli.errors import usage_error
from penstock.cli.kafka import AlterConfigOpType, Cluster, ConfigEntry, ConfigResource, ResourceType
from penstock.cli.options import (
    Configs,
    Format,
    OutputFormat,
    TopicName,
)
from penstock.cli.output import plural, print_json
from penstock.cli.values import parse_pairs


def alter(
    access: Access,
    name: TopicName,
    config: Configs = None,
    unset: Annotated[
        list[str] | None,
        typer.Option(
            "--unset",
            metavar="KEY",
            help="A topic setting to give back to the default; may be repeated.",
        ),
    ] = None,
    output_format: OutputFormat = Format.TEXT,
) -> None:
    """Change settings of the topic NAME; what is not named stays as it is."""
    configs = parse_pairs(config or (), "topic setting")
    removed = list(dict.fromkeys(unset or ()))
    if not configs and not removed:
        raise usage_error("nothing to change: give -c KEY=VALUE or --unset KEY")
    if both := configs.keys() & set(removed):
        raise usage_error(f"setting {min(both)!r} is both set and unset: keep one of them")
    cluster = Cluster(access)
    admin = cluster.admin()
    cluster.topic(admin, name)
    entries = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for key, value in configs.items()
    ] + [ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE) for key in removed]
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
    future = admin.incremental_alter_configs([resource], request_timeout=cluster.timeout_s)[
        resource
    ]
    cluster.wait(future, f"alter topic {name!r}")
    if output_format is Format.JSON:
        print_json({"topic": name, "set": configs, "unset": removed})
    else:
        print(f"altered {plural(len(entries), 'setting')} of topic {name}")
