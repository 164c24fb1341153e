"""Members of a share group: confluent-kafka's ShareConsumer, with acknowledgements of its own.

Most messages are accepted, some released or rejected. What a member says is recorded before it says
it, since an answer may be lost; what it was answered is recorded, too.
"""

from __future__ import annotations

import random
from typing import Any

from confluent_kafka import (  # type: ignore[attr-defined]
    AcknowledgeType,
    KafkaException,
    ShareConsumer,
)

from support.helpers import QUIET

from .history import Given, Partition, Recorder, Settled
from .share_checker import ACCEPT, REJECT, RELEASE
from .workload import DENIED, Client, Servers

SHARE_GROUP = "share"
POLL_SECONDS = 0.2
COMMIT_SECONDS_MAX = 10.0
KINDS = {
    ACCEPT: AcknowledgeType.ACCEPT,
    RELEASE: AcknowledgeType.RELEASE,
    REJECT: AcknowledgeType.REJECT,
}
WEIGHTS = (0.85, 0.1, 0.05)
MESSAGES_MAX = 50
"""Of one poll: few enough that both members have work."""
IMPATIENT = {
    "socket.timeout.ms": 6_000,
    "socket.connection.setup.timeout.ms": 2_000,
    "reconnect.backoff.ms": 30,
    "reconnect.backoff.max.ms": 300,
    "topic.metadata.refresh.interval.ms": 1_000,
}


class ShareClient(Client):
    def __init__(self, name: str, servers: Servers, topic: str, recorder: Recorder) -> None:
        super().__init__(name, recorder)
        self._rng = random.Random(name)
        self._client = ShareConsumer(
            {
                **servers,
                "group.id": SHARE_GROUP,
                "share.acknowledgement.mode": "explicit",
                "max.poll.records": MESSAGES_MAX,
                **IMPATIENT,
                **QUIET,
            }
        )
        self._client.subscribe([topic])

    def work(self) -> None:
        while not self.stopping.is_set():
            called = self.recorder.now()
            try:
                messages = list(self._client.poll(timeout=POLL_SECONDS))
            except KafkaException as e:
                self._refused(e.args[0])
                continue
            if taken := self._took(called, messages):
                self._settle(taken)
        self._client.close()

    def _refused(self, error: Any) -> None:
        if error.code() in DENIED or error.fatal():
            self.trouble(f"{DENIED.get(error.code(), 'a fatal error')}: {error}")

    def _took(self, called: float, messages: list[Any]) -> list[Any]:
        now, good = self.recorder.now(), []
        for message in messages:
            if message.error() is not None:
                self._refused(message.error())
                continue
            good.append(message)
            self.recorder.add(
                Given(
                    called,
                    now,
                    self.name,
                    (message.topic(), message.partition()),
                    message.offset(),
                    message.value().decode(),
                    message.delivery_count(),
                )
            )
        return good

    def _settle(self, messages: list[Any]) -> None:
        called = self.recorder.now()
        said: list[tuple[Partition, int, str]] = []
        for message in messages:
            [kind] = self._rng.choices(list(KINDS), WEIGHTS)
            said.append(((message.topic(), message.partition()), message.offset(), kind))
            self.recorder.add(Settled(called, None, self.name, *said[-1]))
            self._client.acknowledge(message, KINDS[kind])
        try:
            answers = self._client.commit_sync(timeout=COMMIT_SECONDS_MAX)
        except KafkaException as e:
            self._refused(e.args[0])
            return
        now = self.recorder.now()
        good = {(p.topic, p.partition) for p, error in answers.items() if error is None}
        for partition, offset, kind in said:
            if partition in good:
                self.recorder.add(Settled(called, now, self.name, partition, offset, kind))
