"""How many dead letters of groups wait, counted in their topics.

Groups that share a topic are counted in one pass. At most COUNTED_MAX messages of a topic are
looked at.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Final, NamedTuple

from penstock.cli.errors import CliError
from penstock.cli.kafka import Cluster
from penstock.cli.queue.dead_letters import Box, dead_letter
from penstock.cli.queue.queues import Queues

COUNTED_MAX: Final = 100_000


class Waiting(NamedTuple):
    topic: str
    letters: int
    is_more: bool
    """Whether there may be more: not all were looked at."""

    @property
    def text(self) -> str:
        return f"{self.letters:,}+" if self.is_more else f"{self.letters}"


def count_waiting(queues: Queues, groups: list[str]) -> tuple[dict[str, Waiting], str]:
    """Dead letters that were not redriven, for each group that has a topic for them; or why they
    cannot be counted.
    """
    try:
        return _counted(queues.cluster, queues.dead_letter_topics(groups)), ""
    except CliError as e:
        return {}, e.sentence


def _counted(cluster: Cluster, topics: dict[str, str]) -> dict[str, Waiting]:
    by_topic: dict[str, list[str]] = {}
    known = cluster.topics(cluster.admin()) if topics else {}
    counted = {}
    for group, topic in topics.items():
        if topic in known:
            by_topic.setdefault(topic, []).append(group)
        else:
            counted[group] = Waiting(topic, 0, False)  # made with the first dead letter
    for topic, groups in by_topic.items():
        counted |= _count(cluster, topic, groups)
    return counted


def _count(cluster: Cluster, topic: str, groups: list[str]) -> dict[str, Waiting]:
    letters = dict.fromkeys(groups, 0)
    looked_at = 0
    with ExitStack() as stack:
        boxes = {group: stack.enter_context(Box(cluster, group, topic)) for group in groups}
        all_bounds = [box.bounds() for box in boxes.values()]
        bounds = {
            partition: (min(one[partition][0] for one in all_bounds), end)
            for partition, (_, end) in all_bounds[-1].items()
        }
        for messages in boxes[groups[-1]].batches(bounds):
            for letter in map(dead_letter, messages):
                box = boxes.get(letter.group) if letter is not None else None
                if letter is not None and box is not None and box.waits(letter):
                    letters[letter.group] += 1
            looked_at += len(messages)
            if looked_at >= COUNTED_MAX:
                break
    is_more = looked_at >= COUNTED_MAX
    return {group: Waiting(topic, count, is_more) for group, count in letters.items()}


def dead_facts(waiting: Waiting | None) -> dict[str, int | bool | None]:
    """For programs; the number is null where the group has no dead-letter topic."""
    if waiting is None:
        return {"dead": None, "dead_is_more": False}
    return {"dead": waiting.letters, "dead_is_more": waiting.is_more}
