"""`penstock group delete-offsets`: forget how far a group has read in a topic.

confluent-kafka has no call for it, so the request goes to the group's coordinator by itself.
"""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.base.errors import ErrorCode
from penstock.cli.access import Access
from penstock.cli.errors import CliError
from penstock.cli.group.groups import Groups, stop_members
from penstock.cli.group.options import GroupName, parse_topics
from penstock.cli.kafka import Cluster
from penstock.cli.options import (
    Format,
    OutputFormat,
)
from penstock.cli.output import plural, print_json
from penstock.kafka.brokers import GROUP
from penstock.kafka.connection import Connection
from penstock.kafka.offsets import Partition
from penstock.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)

OFFSET_DELETE_VERSION = 0


def delete_offsets(
    access: Access,
    name: GroupName,
    topics: Annotated[
        list[str],
        typer.Option(
            "--topic",
            metavar="TOPIC[:P,P...]",
            help="A topic, or some partitions of it; may be repeated.",
        ),
    ],
    output_format: OutputFormat = Format.TEXT,
) -> None:
    """Delete the offsets that GROUP has committed in a topic that no member of it reads."""
    chosen = parse_topics(topics)
    groups = Groups(Cluster(access))
    groups.require([name])
    committed = groups.committed(name)
    wanted = [p for p in sorted(committed) if p[0] in chosen and p[1] in (chosen[p[0]] or {p[1]})]
    for topic in chosen:
        if not any(t == topic for t, _ in wanted):
            raise CliError(
                f"group {name!r} has committed no offset there in topic {topic!r}:"
                f" see `penstock group describe {name}`"
            )
    _delete(groups, name, wanted)
    if output_format is Format.JSON:
        print_json([{"topic": t, "partition": p, "was": committed[t, p]} for t, p in wanted])
    else:
        print(f"deleted {plural(len(wanted), 'offset')} of group {name}")


def _delete(groups: Groups, name: str, partitions: list[Partition]) -> None:
    doing = f"delete offsets of group {name!r}"
    answer = _ask_coordinator(groups.cluster, name, partitions, doing)
    errors = [(None, answer.error_code)] + [
        (f"{topic.name}-{partition.partition_index}", partition.error_code)
        for topic in answer.topics
        for partition in topic.partitions
    ]
    for where, code in errors:
        if code:
            at = f" in {where}" if where else ""
            why = _reason(ErrorCode(code).name, name)
            raise CliError(f"cannot {doing}{at}: {why}")


def _reason(error: str, name: str) -> str:
    if error == "GROUP_SUBSCRIBED_TO_TOPIC":
        return f"active members read the topic; {stop_members(name)}"
    if error == "NON_EMPTY_GROUP":
        return f"it has active members; {stop_members(name)}"
    return f"the broker refused with {error}; look at the broker's log"


def _ask_coordinator(
    cluster: Cluster, name: str, partitions: list[Partition], doing: str
) -> OffsetDeleteResponse:
    by_topic: dict[str, list[OffsetDeleteRequestPartition]] = {}
    for topic, partition in partitions:
        index = OffsetDeleteRequestPartition(partition_index=partition)
        by_topic.setdefault(topic, []).append(index)
    request = OffsetDeleteRequest(
        group_id=name,
        topics=[OffsetDeleteRequestTopic(name=t, partitions=ps) for t, ps in by_topic.items()],
    )
    address = cluster.coordinator(GROUP, name, doing)
    try:
        with Connection(address, cluster.access.client) as connection:
            return connection.call(request, OffsetDeleteResponse, OFFSET_DELETE_VERSION)
    except OSError as e:
        raise CliError(f"cannot {doing}: {e}; look at the broker's log") from None
