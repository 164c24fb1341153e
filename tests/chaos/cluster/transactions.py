"""The transactional part of a run: workers, readers of committed data, and what to wait for in the
end.

The chain has to come to the end of its input, and no transaction may stay open: what a worker left
open its coordinator aborts. What does not happen in time is recorded as trouble.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from support.cluster import Cluster
from support.helpers import QUIET
from support.waiting import eventually

from .history import Partition, Recorder, Trouble
from .txn_checker import STABLE_SECONDS_MAX
from .txn_clients import CommittedReader, Workers
from .txn_worker import CHAIN
from .workload import Plan

DRAIN_SECONDS_MAX = 60.0
CALL_SECONDS_MAX = 5.0
READERS = 2


class Transactions:
    def __init__(self, cluster: Cluster, plan: Plan, recorder: Recorder, root: Path) -> None:
        folder = root / "workers"
        folder.mkdir(parents=True)
        self._cluster = cluster
        self._plan = plan
        self._recorder = recorder
        self.workers = Workers(cluster.client, plan, recorder, folder)
        self.readers = [
            CommittedReader(f"committed-{i}", cluster.client, plan.targets(), recorder)
            for i in range(READERS)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.workers.close()

    def start(self) -> None:
        for client in [self.workers, *self.readers]:
            client.start()

    def finish(self, ends: dict[Partition, int]) -> None:
        """Writing is over; `ends` is where the chain's input ends."""
        self.workers.stop_writers()
        if not self._plan.chains:
            ends = {}
        self._wait(
            "the chain is not at its input's end", DRAIN_SECONDS_MAX, lambda: self._left(ends)
        )
        self.workers.stopping.set()
        self.workers.join_in_time()
        self.workers.stop_all()
        self._wait("transactions stay open", STABLE_SECONDS_MAX, self._open)
        for reader in self.readers:
            reader.stopping.set()
        for reader in self.readers:
            reader.join_in_time()

    def _wait(self, what: str, seconds: float, left: Any) -> None:
        try:
            eventually(lambda: not left(), seconds)
        except AssertionError:
            text = f"{what} after {seconds} s: {left()}"
            self._recorder.add(Trouble(self._recorder.now(), "transactions", text))

    def _left(self, ends: dict[Partition, int]) -> dict[Partition, tuple[int, int]]:
        at = committed_offsets(self._cluster, list(ends))
        return {p: (at.get(p, 0), end) for p, end in ends.items() if at.get(p, 0) < end}

    def _open(self) -> dict[Partition, tuple[int, int]]:
        """The partitions in which something is open: last stable offset and high watermark."""
        found = {}
        for isolation in ("read_committed", "read_uncommitted"):
            client = reader(self._cluster, isolation)
            try:
                for partition in self._plan.targets():
                    place = TopicPartition(*partition)
                    end = client.get_watermark_offsets(place, timeout=CALL_SECONDS_MAX)[1]
                    found.setdefault(partition, []).append(end)
            except KafkaException as e:
                return {("?", 0): (0, int(e.args[0].code()))}
            finally:
                client.close()
        return {p: (ends[0], ends[1]) for p, ends in found.items() if ends[0] < ends[1]}


def reader(cluster: Cluster, isolation: str, group: str = "unused") -> Consumer:
    return Consumer(
        {
            **cluster.client,
            "group.id": group,
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            **QUIET,
        }
    )


def committed_offsets(cluster: Cluster, partitions: list[Partition]) -> dict[Partition, int]:
    """How far the chain's group has committed; nothing while nobody says."""
    client = reader(cluster, "read_committed", CHAIN)
    try:
        places = [TopicPartition(*partition) for partition in partitions]
        found = client.committed(places, timeout=CALL_SECONDS_MAX)
    except KafkaException:
        return {}
    finally:
        client.close()
    return {(p.topic, p.partition): p.offset for p in found if p.error is None and p.offset >= 0}


def read_committed(cluster: Cluster, partition: Partition) -> list[tuple[int, str]]:
    """All that is committed in a partition."""
    client = reader(cluster, "read_committed")
    found: list[tuple[int, str]] = []
    client.assign([TopicPartition(*partition, 0)])

    def complete() -> bool:
        for message in client.consume(1000, timeout=0.2):
            error = message.error()
            if error is None:
                found.append((message.offset() or 0, (message.value() or b"").decode()))
            elif error.code() == KafkaError._PARTITION_EOF:
                return True
            else:
                assert error.code() != KafkaError._FATAL, error
        return False

    eventually(complete, DRAIN_SECONDS_MAX, every=0)
    client.close()
    return found
