"""Dead letters become work again, one batch after the other.

A batch is revived in place where the source still has the records. The others are copied to the
retry topic, in a transaction that also commits how far the redrive has come: they are copied
exactly once. What was revived is committed a moment later, so a command that is killed between the
two revives one batch again when it is started again; one that is asked to stop finishes its batch.
The transactional id lets one redrive of a group go on at a time: a newer one ends an older one.

The position is that of the group `__redrive.GROUP` in the dead-letter topic (`positions.py`).
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from types import FrameType, TracebackType
from typing import Final

from confluent_kafka import KafkaException, Message, Producer, TopicPartition

from penstock.cli.errors import CliError
from penstock.cli.kafka import NewTopic
from penstock.cli.output import plural, progress
from penstock.cli.queue.dead_letters import (
    BATCH_MESSAGES,
    GROUP_PREFIX,
    Box,
    DeadLetter,
    Source,
    dead_letter,
)
from penstock.cli.queue.positions import TooScattered
from penstock.cli.queue.queues import Queues
from penstock.kafka.offsets import Partition
from penstock.wire.messages.redrive import Redriven

PAUSE_S: Final = 0.05
"""So often a pause looks whether it is to stop."""
NO_TOPIC: Final = "group {!r} has no dead-letter topic"
_FENCED: Final = ("_FENCED", "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED")
Chosen = Callable[[DeadLetter], bool]


@dataclass
class Counts:
    """What became of the dead letters that were chosen."""

    chosen: int = 0
    revived: int = 0
    unfinished: int = 0
    """They were the group's work already."""
    copied: int = 0
    not_copied: int = 0
    """Gone from the source, and the dead letter does not have the record."""
    not_yet: int = 0
    """Not given up for good yet, or the group was moved back to before them."""

    def facts(self) -> dict[str, int]:
        return asdict(self)


class Stop:
    """Ctrl-C asks to stop; once more, and it is an interrupt as ever."""

    def __init__(self) -> None:
        self.asked = False

    def __enter__(self) -> Stop:
        self._before = signal.signal(signal.SIGINT, self._ask)
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _ask(self, _: int, __: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


@dataclass(frozen=True)
class Order:
    """What is to be done."""

    group: str
    dead_letter_topic: str | None
    """None if the group has none: then only what the source still has can be redriven."""
    retry_topic: str
    dry_run: bool
    per_s: float | None
    """Dead letters a second; None for as fast as it goes."""


class Redriving:
    def __init__(self, queues: Queues, order: Order, stop: Stop) -> None:
        self.counts = Counts()
        self._queues = queues
        self._cluster = queues.cluster
        self._order = order
        self._stop = stop
        self._box = Box(self._cluster, order.group, order.dead_letter_topic or "")
        self._producer: Producer | None = None
        self._is_open = False
        """Whether a transaction is."""
        self._copied = 0
        """What of the copies is committed."""
        self._has_retry_topic = False
        self._began = time.monotonic()

    def close(self) -> None:
        if self._is_open and self._producer is not None:
            with suppress(KafkaException):
                self._producer.abort_transaction(self._cluster.timeout_s)
        self._box.consumer.close()

    # -- all, or what a filter chooses ---------------------------------------------------------

    def redrive(self, chosen: Chosen) -> None:
        """Go through the dead letters that wait, until there are no more or it is to stop."""
        self._begin()
        bounds = self._box.bounds()
        for messages in self._messages(bounds):
            letters = [
                letter
                for letter in map(dead_letter, messages)
                if letter is not None and self._box.waits(letter) and chosen(letter)
            ]
            self._check_room(messages, letters)
            finished = self._redrive(letters) if letters else []
            self._go_through(messages, finished)
            if finished:
                self._commit()
            if self._stop.asked:
                return
            self._keep_pace()
        for partition, (_, end) in bounds.items():
            self._box.done[partition].nothing_before(end)
        self._commit()

    def _messages(self, bounds: Mapping[int, tuple[int, int]]) -> Iterator[list[Message]]:
        """The messages, as many at once as the rate lets through in a moment."""
        per_s = self._order.per_s
        most = BATCH_MESSAGES if per_s is None else max(1, min(BATCH_MESSAGES, int(per_s / 2)))
        total = sum(max(end - begin, 0) for begin, end in bounds.values())
        topic = self._order.dead_letter_topic or ""
        with self._sentences(f"read {topic!r}"), progress("redriving", total) as seen:
            for found in self._box.batches(bounds):
                for begin in range(0, len(found), most):
                    messages = found[begin : begin + most]
                    yield messages
                    seen.advance(len(messages))
                if self._stop.asked:
                    return

    def _go_through(self, messages: Sequence[Message], finished: Iterable[DeadLetter]) -> None:
        """Note what is done with, in the order of the messages."""
        places = {(letter.partition, letter.offset) for letter in finished}
        for message in messages:
            partition, offset = message.partition() or 0, message.offset() or 0
            done = self._box.done[partition]
            letter = dead_letter(message)
            if (partition, offset) in places or offset in done:
                done.finish(offset)
            elif letter is not None and self._box.is_mine(letter):
                done.leave(offset)
            else:
                done.nothing_before(offset + 1)

    def _check_room(self, messages: Sequence[Message], letters: Iterable[DeadLetter]) -> None:
        """Refuse before anything is done what could not be remembered."""
        if self._order.dry_run:
            return
        now = self._box.done
        try:
            self._box.done = {partition: done.copy() for partition, done in now.items()}
            self._go_through(messages, letters)
            for done in self._box.done.values():
                _ = done.metadata
        except TooScattered:
            raise CliError(
                f"cannot redrive more of these: what was redriven lies too scattered in"
                f" {self._order.dead_letter_topic!r} to be remembered; redrive the first ones, or"
                f" all{self._so_far()}"
            ) from None
        finally:
            self._box.done = now

    # -- single messages -----------------------------------------------------------------------

    def redrive_sources(self, sources: Sequence[Source]) -> None:
        """These records, whether they were redriven before or not; while their topic has them it
        needs no dead letters of them. All or none of them.
        """
        order = self._order
        expected = self._outcomes(sources, dry_run=True)
        gone = {source for source in sources if expected[source] is Redriven.GONE}
        copies = self._found(gone)
        missing = sorted(gone - copies.keys())
        if missing:
            where = order.dead_letter_topic
            raise CliError(
                f"cannot redrive {', '.join(map(str, missing))}: it is gone from its topic, and "
                + (f"{where!r} has no dead letter of it" if where else NO_TOPIC.format(order.group))
                + f"; nothing was redriven, see `penstock queue peek {order.group} --dead`"
            )
        self.counts.chosen += len(sources)
        if order.dead_letter_topic is not None:
            self._begin()
        outcomes = expected if order.dry_run else self._outcomes(sources, dry_run=False)
        for source in [source for source in sources if source not in gone]:
            self._count(outcomes[source])
        kept = {source for source, letter in copies.items() if not letter.has_record}
        kept |= {source for source in sources if outcomes[source] is Redriven.NOT_YET}
        if order.dead_letter_topic is not None and not order.dry_run:
            self._note(set(sources) - kept)  # it may take longer than a transaction lasts
        self._copy(list(copies.values()))
        self._commit()

    def _found(self, sources: set[Source]) -> dict[Source, DeadLetter]:
        """The newest dead letter of each of these, wherever it is in the topic."""
        if not sources or self._order.dead_letter_topic is None:
            return {}
        found = {}
        for messages in self._messages(self._box.bounds(from_start=True)):
            for letter in map(dead_letter, messages):
                if letter is not None and self._box.is_mine(letter) and letter.source in sources:
                    found[letter.source] = letter
            self._check_stopped()
        return found

    def _note(self, sources: set[Source]) -> None:
        """Their dead letters, as far as they wait, are done with."""
        for messages in self._messages(self._box.bounds()):
            letters = [letter for letter in map(dead_letter, messages) if letter is not None]
            finished = [one for one in letters if self._box.is_mine(one) and one.source in sources]
            self._check_room(messages, finished)
            self._go_through(messages, finished)

    def _check_stopped(self) -> None:
        if self._stop.asked:
            raise KeyboardInterrupt

    # -- a batch -------------------------------------------------------------------------------

    def _redrive(self, letters: Sequence[DeadLetter]) -> list[DeadLetter]:
        """Those of the batch that are done with."""
        sources = [letter.source for letter in letters]
        outcomes = self._outcomes(sources, dry_run=self._order.dry_run)
        self.counts.chosen += len(letters)
        finished, gone = [], []
        seen: set[Source] = set()
        for letter in letters:
            outcome = outcomes[letter.source]
            if outcome is not Redriven.NOT_YET and letter.source in seen:
                outcome = Redriven.UNFINISHED  # it had died twice
            seen.add(letter.source)
            if outcome is Redriven.GONE:
                gone.append(letter)
                continue
            self._count(outcome)
            if outcome is not Redriven.NOT_YET:
                finished.append(letter)
        return finished + self._copy(gone)

    def _count(self, outcome: Redriven) -> None:
        counts = self.counts
        if outcome is Redriven.REVIVED:
            counts.revived += 1
        elif outcome is Redriven.UNFINISHED:
            counts.unfinished += 1
        else:
            counts.not_yet += 1

    def _outcomes(self, sources: Iterable[Source], *, dry_run: bool) -> dict[Source, Redriven]:
        """What became of each record; one whose topic is gone is gone."""
        known = self._queues.leaders()
        offsets: dict[Partition, list[int]] = {}
        outcomes: dict[Source, Redriven] = {}
        for source in sources:
            if source.place in known:
                offsets.setdefault(source.place, []).append(source.offset)
            else:
                outcomes[source] = Redriven.GONE
        try:
            found = self._queues.revive(self._order.group, offsets, dry_run=dry_run)
        except CliError as e:
            raise CliError(e.sentence + self._so_far()) from None
        for (topic, partition), ranges in found.items():
            for one in ranges:
                for offset in range(one.first_offset, one.last_offset + 1):
                    outcomes[Source(topic, partition, offset)] = Redriven(one.outcome)
        return outcomes

    def _copy(self, letters: Sequence[DeadLetter]) -> list[DeadLetter]:
        """Copies records to the retry topic, and returns those that could be."""
        whole = [letter for letter in letters if letter.has_record]
        self.counts.not_copied += len(letters) - len(whole)
        self.counts.copied += len(whole)
        if not whole or self._order.dry_run:
            return whole
        topic = self._order.retry_topic
        self._require_retry_topic()
        with self._sentences(f"copy to {topic!r}"):
            producer = self._transaction()
            for letter in whole:
                while True:
                    try:
                        producer.produce(
                            topic, letter.value, letter.key, headers=list(letter.headers)
                        )
                        break
                    except BufferError:
                        producer.poll(PAUSE_S)
        return whole

    def _require_retry_topic(self) -> None:
        if self._has_retry_topic:
            return
        topic, admin = self._order.retry_topic, self._cluster.admin()
        topics = self._cluster.topics(admin)
        if topic not in topics:
            like = topics[self._order.dead_letter_topic or ""]
            [made] = admin.create_topics([NewTopic(topic, len(like.partitions))]).values()
            self._cluster.wait(made, f"create the retry topic {topic!r}")
        self._has_retry_topic = True

    # -- how far it has come -------------------------------------------------------------------

    def _begin(self) -> None:
        """End what an earlier redrive has left, or one that still goes on."""
        if self._order.dry_run:
            return
        group = GROUP_PREFIX + self._order.group
        self._producer = self._cluster.producer({"transactional.id": group, "acks": "all"})
        with self._sentences("begin the redrive"):
            self._producer.init_transactions(self._cluster.timeout_s)

    def _transaction(self) -> Producer:
        producer = self._producer
        assert producer is not None
        if not self._is_open:
            producer.begin_transaction()
            self._is_open = True
        return producer

    def _commit(self) -> None:
        """Copies and the position, together."""
        topic = self._order.dead_letter_topic
        if self._order.dry_run or topic is None:
            return
        positions = [
            TopicPartition(topic, partition, done.offset, metadata=done.metadata)
            for partition, done in self._box.done.items()
        ]
        if not positions:
            return  # nothing has ever died
        with self._sentences("commit the redrive"):
            producer, timeout_s = self._transaction(), self._cluster.timeout_s
            group = self._box.consumer.consumer_group_metadata()
            producer.send_offsets_to_transaction(positions, group, timeout_s)
            producer.commit_transaction(timeout_s)
            self._is_open = False
        self._copied = self.counts.copied

    def _keep_pace(self) -> None:
        """Wait until as much time has passed as the rate asks for."""
        if self._order.per_s is None or self._order.dry_run:
            return
        due = self._began + self.counts.chosen / self._order.per_s
        while (left := due - time.monotonic()) > 0 and not self._stop.asked:
            time.sleep(min(left, PAUSE_S))

    def _so_far(self) -> str:
        done = self.counts.revived + self._copied
        return f"; {plural(done, 'message')} had been redriven before" if done else ""

    @contextmanager
    def _sentences(self, doing: str) -> Iterator[None]:
        try:
            yield
        except KafkaException as e:
            error = e.args[0]
            if error.name() in _FENCED:
                raise CliError(
                    f"cannot {doing}: another redrive of {self._order.group!r} has begun; let it"
                    f" end, or start this one again{self._so_far()}"
                ) from None
            sentence = self._cluster.sentence(error, doing).sentence
            raise CliError(sentence + self._so_far()) from None
