"""`penstock topic create`: make one topic."""

from __future__ import annotations

from typing import Annotated

import typer
from confluent_kafka import KafkaException

from penstock.cli.access import Access
from penstock.cli.kafka import AdminClient, Cluster, NewTopic
from penstock.cli.options import (
    Configs,
    Format,
    OutputFormat,
    TopicName,
)
from penstock.cli.output import print_json
from penstock.cli.values import parse_pairs

BROKER_DEFAULT = -1


def create(
    access: Access,
    name: TopicName,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            "-p",
            min=1,
            help="Number of partitions; the broker's default if left out.",
        ),
    ] = None,
    replicas: Annotated[
        int | None,
        typer.Option(
            "--replicas",
            "-r",
            min=1,
            help="Replicas per partition; the broker's default if left out.",
        ),
    ] = None,
    config: Configs = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Succeed when the topic is already there.")
    ] = False,
    output_format: OutputFormat = Format.TEXT,
) -> None:
    """Create the topic NAME."""
    configs = parse_pairs(config or (), "topic setting")
    cluster = Cluster(access)
    admin = cluster.admin()
    created = create_topic(
        cluster, admin, name, partitions, replicas, configs, may_exist=if_not_exists
    )
    if output_format is Format.JSON:
        print_json({"topic": name, "created": created})
    else:
        print(f"created topic {name}" if created else f"topic {name} exists already")


def create_topic(
    cluster: Cluster,
    admin: AdminClient,
    name: str,
    partitions: int | None,
    replicas: int | None,
    configs: dict[str, str],
    *,
    may_exist: bool,
) -> bool:
    """Create a topic; False when it was there before and that is allowed."""
    new = NewTopic(
        name,
        num_partitions=partitions or BROKER_DEFAULT,
        replication_factor=replicas or BROKER_DEFAULT,
        config=configs,
    )
    future = admin.create_topics(
        [new], operation_timeout=cluster.timeout_s, request_timeout=cluster.timeout_s
    )
    if may_exist:
        try:
            future[name].result(cluster.timeout_s + 1)
        except KafkaException as e:
            if e.args[0].name() == "TOPIC_ALREADY_EXISTS":
                return False
        except TimeoutError:
            pass  # told below, where the same future is asked again
    cluster.wait(future[name], f"create topic {name!r}")
    return True
