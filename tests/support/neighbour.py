"""A well-behaved client whose traffic goes on while others misbehave, and how long it waits."""

from __future__ import annotations

import threading
import time
from types import TracebackType

from .batches import batch, heads
from .calls import fetch, find_topic, produce
from .helpers import make_topic
from .process import BrokerProcess
from .raw import RawClient

WAIT_SECONDS_MAX = 3.0
PAUSE_SECONDS = 0.005


class Neighbour:
    """Publishes a message and reads it back, again and again, in a thread of its own."""

    def __init__(self, node: BrokerProcess, topic: str = "neighbour") -> None:
        self._client = RawClient(node.host, node.port)
        self._topic = find_topic(self._client, make_topic(node, topic))
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.waits: list[float] = []
        self.error: BaseException | None = None

    def _run(self) -> None:
        offset = 0
        try:
            while not self._stop.is_set():
                started = time.monotonic()
                answer = produce(self._client, self._topic, batch([str(offset).encode()]))
                assert (answer.error_code, answer.base_offset) == (0, offset)
                [head] = heads(fetch(self._client, self._topic, offset).records)
                assert head.base_offset == offset
                self.waits.append(time.monotonic() - started)
                offset += 1
                time.sleep(PAUSE_SECONDS)
        except BaseException as error:
            self.error = error

    def __enter__(self) -> Neighbour:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stops, and says whether the traffic went on undisturbed."""
        self._stop.set()
        self._thread.join(2 * WAIT_SECONDS_MAX)
        self._client.close()
        if error is None:
            self.check()

    def check(self) -> None:
        assert not self._thread.is_alive(), "a well-behaved client waits without end"
        assert self.error is None, f"a well-behaved client failed: {self.error!r}"
        assert self.waits, "a well-behaved client got nowhere"
        assert max(self.waits) < WAIT_SECONDS_MAX, f"it waited {max(self.waits):.2f} s"
