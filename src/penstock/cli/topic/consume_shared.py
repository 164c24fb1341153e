"""`penstock topic consume --share GROUP`: work through a topic as a member of a share group.

Each message is acknowledged by itself, after it was printed and the output was flushed: `auto`
accepts it, `ask` asks a person. What was fetched and not printed is released, so that another
member gets it at once. The broker lends a message for a time (the group's
`share.record.lock.duration.ms`): an acknowledgement that comes later is refused, and the message is
delivered again, which the command says.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from confluent_kafka import AcknowledgeType, KafkaException, Message, ShareConsumer

from penstock.cli.errors import CliError

if TYPE_CHECKING:
    from penstock.cli.kafka import Cluster
    from penstock.cli.topic.render import Renderer

POLL_S: Final = 0.5
JOIN_S: Final = 10.0
"""A new group needs so long at most for its first message: it has to be made, its partitions
initialised and assigned, each at a heartbeat.
"""
QUESTION: Final = "accept, release, reject or quit? [a/r/j/q] "
ANSWERS: Final = {
    "a": AcknowledgeType.ACCEPT,
    "r": AcknowledgeType.RELEASE,
    "j": AcknowledgeType.REJECT,
}


class Ack(StrEnum):
    AUTO = "auto"
    ASK = "ask"


def consume_shared(
    cluster: Cluster,
    topic: str,
    group: str,
    ack: Ack,
    renderer: Renderer,
    count: int | None,
    *,
    following: bool,
) -> None:
    """Print and acknowledge, until interrupted, `count` messages are done, or, unless following,
    nothing has come for as long as the cluster's time-out.
    """
    consumer = cluster.share_consumer({"group.id": group, "share.acknowledgement.mode": "explicit"})
    work = _Work(consumer, renderer, _ask if ack is Ack.ASK else _accept, count)
    try:
        consumer.subscribe([topic])
        work.go_on(None if following else max(cluster.timeout_s, JOIN_S))
    except KeyboardInterrupt:
        if not following:
            raise
    except KafkaException as e:
        raise cluster.sentence(e.args[0], f"read {topic!r} as a member of {group!r}") from None
    finally:
        sys.stdout.flush()
        work.release_rest()
        consumer.close()
    if work.refused:
        raise CliError(
            f"{work.refused} acknowledgements were refused ({work.why}): these messages are"
            " delivered again; take less time for each, or raise share.record.lock.duration.ms"
            f" with `penstock config set group:{group}`"
        )


class _Work:
    """The messages at hand, and what became of those before."""

    def __init__(
        self,
        consumer: ShareConsumer,
        renderer: Renderer,
        decide: Callable[[Message], AcknowledgeType | None],
        count: int | None,
    ) -> None:
        self.refused = 0
        self.why = ""
        self._consumer = consumer
        self._renderer = renderer
        self._decide = decide
        self._left = count
        self._rest: list[Message] = []
        """Fetched, and not yet acknowledged."""

    def go_on(self, quiet_max_s: float | None) -> None:
        quiet_since = time.monotonic()
        while quiet_max_s is None or time.monotonic() - quiet_since < quiet_max_s:
            self._rest = _messages(self._consumer.poll(POLL_S))
            if not self._rest:
                continue
            if not self._work_through():
                return
            quiet_since = time.monotonic()

    def _work_through(self) -> bool:
        """Print and acknowledge what was fetched; whether to go on."""
        out = sys.stdout.buffer
        self._rest.reverse()
        while self._rest:
            message = self._rest[-1]
            out.write(self._renderer.render(message))
            out.flush()
            decided = self._decide(message)
            if decided is None:
                return False
            self._consumer.acknowledge(self._rest.pop(), decided)
            if self._left is not None:
                self._left -= 1
                if not self._left:
                    return False
        self._commit()
        return True

    def release_rest(self) -> None:
        """Give back what is at hand, and tell the broker what was decided."""
        for message in self._rest:
            self._consumer.acknowledge(message, AcknowledgeType.RELEASE)
        self._rest.clear()
        self._commit()

    def _commit(self) -> None:
        for error in self._consumer.commit_sync().values():
            if error is not None:
                self.refused += 1
                self.why = error.args[0].str().rstrip(".")


def _messages(polled: Iterable[Message]) -> list[Message]:
    """Those that are messages; an error raises."""
    found = []
    for message in polled:
        error = message.error()
        if error is None:
            found.append(message)
        elif not error.retriable():
            raise KafkaException(error)
    return found


def _accept(_: Message) -> AcknowledgeType:
    return AcknowledgeType.ACCEPT


def _ask(message: Message) -> AcknowledgeType | None:
    """What the person says; None to quit, as at the end of the input."""
    times = message.delivery_count() or 1
    again = f" (delivery {times})" if times > 1 else ""
    while True:
        sys.stderr.write(f"{QUESTION.rstrip()}{again} ")
        sys.stderr.flush()
        answer = sys.stdin.readline()
        word = answer.strip().lower()[:1]
        if word in ANSWERS:
            return ANSWERS[word]
        if not answer or word == "q":
            return None
