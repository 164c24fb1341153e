"""Which partitions `--topic TOPIC[:P,P...]` means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.cli.cluster.state import Key, Partition
from penstock.cli.errors import CliError, did_you_mean
from penstock.cli.group.options import parse_topics


def choose(partitions: Mapping[Key, Partition], topics: Iterable[str]) -> dict[Key, Partition]:
    """The partitions that are named, all if none is; what does not exist is refused."""
    chosen = parse_topics(topics)
    if not chosen:
        return dict(partitions)
    known = {topic for topic, _ in partitions}
    for topic, numbers in chosen.items():
        if topic not in known:
            raise CliError(
                f"topic {topic!r} does not exist{did_you_mean(topic, known)}: see"
                " `penstock topic list`"
            )
        for number in sorted(numbers or ()):
            if (topic, number) not in partitions:
                raise CliError(f"topic {topic!r} has no partition {number}")
    return {
        (topic, number): partition
        for (topic, number), partition in partitions.items()
        if topic in chosen and number in (chosen[topic] or {number})
    }
