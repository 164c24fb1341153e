"""`penstock topic VERB`: one module per verb."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from penstock.cli.lazy import LazyGroup, Verb


class TopicGroup(LazyGroup):
    """The topic commands."""

    verbs: ClassVar[Mapping[str, Verb]] = {
        "create": Verb(
            "penstock.cli.topic.create:create",
            "Create the topic NAME.",
        ),
        "list": Verb(
            "penstock.cli.topic.list_topics:list_topics",
            "List topics with their numbers of partitions and replicas.",
        ),
        "describe": Verb(
            "penstock.cli.topic.describe:describe",
            "Show the id, the changed settings and the partitions of each topic NAME.",
        ),
        "alter": Verb(
            "penstock.cli.topic.alter:alter",
            "Change settings of the topic NAME; what is not named stays as it is.",
        ),
        "add-partitions": Verb(
            "penstock.cli.topic.add_partitions:add_partitions",
            "Grow the topic NAME to TOTAL partitions; keys may move to other partitions from"
            " then on.",
        ),
        "trim": Verb(
            "penstock.cli.topic.trim:trim",
            "Drop the oldest messages of the topic NAME; give exactly one of --before-offset,"
            " --before and --keep.",
        ),
        "delete": Verb(
            "penstock.cli.topic.delete:delete",
            "Delete each topic NAME with all of its messages.",
        ),
        "produce": Verb(
            "penstock.cli.topic.produce:produce",
            "Publish each line of stdin or of a file as a message to the topic NAME.",
        ),
        "consume": Verb(
            "penstock.cli.topic.consume:consume",
            "Print the messages of the topic NAME, up to its present end unless following, "
            "or work through them as a member of a share group.",
        ),
    }
