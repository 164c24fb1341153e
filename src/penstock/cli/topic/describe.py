"""`penstock topic describe`: what a topic is, how it is set, and where its partitions stand."""

from __future__ import annotations

from typing import Any, NamedTuple

from confluent_kafka import TopicCollection

from penstock.base.ids import uuid_text
from penstock.cli.access import Access
from penstock.cli.errors import CliError
from penstock.cli.kafka import (
    AdminClient,
    Cluster,
    ConfigResource,
    ConfigSource,
    ResourceType,
    TopicDescription,
)
from penstock.cli.offsets import Offsets
from penstock.cli.options import (
    Format,
    OutputFormat,
    TopicNames,
)
from penstock.cli.output import plural, print_json, print_table, title
from penstock.kafka.offsets import Partition


def describe(
    access: Access,
    names: TopicNames,
    output_format: OutputFormat = Format.TEXT,
) -> None:
    """Show the id, the changed settings and the partitions of each topic NAME."""
    cluster = Cluster(access)
    admin = cluster.admin()
    known = cluster.topics(admin)
    for name in names:
        if name not in known:
            raise cluster.missing_topic(name, known)
    names = list(dict.fromkeys(names))
    futures = admin.describe_topics(TopicCollection(names), request_timeout=cluster.timeout_s)
    described = [cluster.wait(futures[name], f"describe topic {name!r}") for name in names]
    offsets = Offsets(cluster, partial=True)
    places = [(topic.name, p.id) for topic in described for p in topic.partitions]
    logs = Logs(offsets.starts(places), offsets.ends(places))
    topics = [_facts(cluster, admin, topic, logs, offsets) for topic in described]
    if output_format is Format.JSON:
        print_json(topics)
    else:
        for i, topic in enumerate(topics):
            if i:
                print()
            _print_topic(topic)
    if offsets.missing:
        raise CliError(f"some offsets are missing above: {offsets.missing_text()}")


class Logs(NamedTuple):
    """Where the partitions begin and end, as far as their leaders told."""

    starts: dict[Partition, int]
    ends: dict[Partition, int]


def _facts(
    cluster: Cluster,
    admin: AdminClient,
    topic: TopicDescription,
    logs: Logs,
    offsets: Offsets,
) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "topic": topic.name,
        "id": _uuid_text(topic.topic_id),
        "configs": _changed_configs(cluster, admin, topic.name),
        "partitions": [_partition_facts(topic.name, p, logs) for p in topic.partitions],
    }
    if missing := offsets.missing_facts((topic.name, p.id) for p in topic.partitions):
        facts["missing"] = missing
    return facts


def _partition_facts(topic: str, partition: Any, logs: Logs) -> dict[str, Any]:
    place, leader = (topic, partition.id), partition.leader
    start, end = logs.starts.get(place), logs.ends.get(place)
    return {
        "partition": partition.id,
        "leader": leader.id if leader is not None and leader.id >= 0 else None,
        "replicas": [node.id for node in partition.replicas],
        "isr": [node.id for node in partition.isr],
        "start_offset": start,
        "end_offset": end,
        "messages": None if start is None or end is None else end - start,
    }


def _uuid_text(topic_id: Any) -> str:
    """Kafka's own form of a topic id."""
    halves = (topic_id.get_most_significant_bits(), topic_id.get_least_significant_bits())
    return uuid_text(b"".join(half.to_bytes(8, "big", signed=half < 0) for half in halves))


def _changed_configs(cluster: Cluster, admin: AdminClient, name: str) -> list[dict[str, Any]]:
    """Settings whose value does not come from the built-in default, with the place it comes
    from.
    """
    resource = ConfigResource(ResourceType.TOPIC, name)
    future = admin.describe_configs([resource], request_timeout=cluster.timeout_s)[resource]
    entries = cluster.wait(future, f"read the settings of {name!r}")
    changed = []
    for key, entry in sorted(entries.items()):
        source = ConfigSource(entry.source)
        if source not in (ConfigSource.DEFAULT_CONFIG, ConfigSource.UNKNOWN_CONFIG):
            source_text = source.name.lower().removesuffix("_config").replace("_", " ")
            changed.append({"name": key, "value": entry.value, "source": source_text})
    return changed


def _print_topic(topic: dict[str, Any]) -> None:
    partitions = topic["partitions"]
    messages = plural(sum(p["messages"] or 0 for p in partitions), "message")
    at_least = "at least " if "missing" in topic else ""
    title(f"topic {topic['topic']}")
    print(f"id: {topic['id']}")
    print(f"{plural(len(partitions), 'partition')}, {at_least}{messages}")
    if topic["configs"]:
        print_table(("setting", "value", "source"), [tuple(c.values()) for c in topic["configs"]])
    columns = ("partition", "leader", "replicas", "isr", "start", "end", "messages")
    print_table(columns, [[_cell(value) for value in p.values()] for p in partitions])


def _cell(value: Any) -> object:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return "-" if value is None else value
