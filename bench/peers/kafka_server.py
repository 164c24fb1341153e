"""Apache Kafka as its own scripts start it: one process that is broker and controller.

Heap, collector and settings are those of `bin/kafka-server-start.sh` and `config/server.properties`
as they are shipped. What differs: ports and folders; files of deleted topics, which go at once, as
with every server here (`kafka_wire.py`); and the log, which is at WARN instead of INFO since only
slf4j's simple logger is among the jars (less work for Kafka, never more).

With `fsync` its topics have `flush.messages=1`.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import ClassVar

from tests.support import reference
from tests.support.process import free_port

from .kafka_wire import FILE_DELETE_DELAY_MS, KafkaWire, answers_metadata, durability
from .queue_wire import QueueWire
from .server import Server
from .share_queue import ShareQueue
from .wire import PeerError, Wire

HEAP_MB = 1024
FORMAT_S_MAX = 60.0
HISTOGRAM_S_MAX = 60.0
JVM_OPTIONS = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
SHIPPED_SETTINGS = {
    "num.network.threads": "3",
    "num.io.threads": "8",
    "socket.send.buffer.bytes": "102400",
    "socket.receive.buffer.bytes": "102400",
    "socket.request.max.bytes": "104857600",
    "num.partitions": "1",
    "num.recovery.threads.per.data.dir": "2",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.retention.hours": "168",
    "log.segment.bytes": "1073741824",
    "log.retention.check.interval.ms": "300000",
}


class KafkaServer(Server):
    """`kafka.Kafka` with a formatted folder."""

    name: ClassVar[str] = "Apache Kafka"
    by_age: ClassVar[bool] = True
    compresses: ClassVar[bool] = True
    warm_up_s: ClassVar[float] = 20.0  # until its JVM has compiled what is used
    acks: ClassVar[tuple[str, ...]] = ("1", "all")
    shares: ClassVar[bool] = True
    queues: ClassVar[bool] = True

    @classmethod
    def missing(cls) -> str | None:
        return reference.missing()

    @classmethod
    def version(cls) -> str:
        jar = next(reference.libs_dir().glob("kafka-server-[0-9]*.jar"))
        return f"{jar.stem.removeprefix('kafka-server-')}, heap of 1 GB"

    @property
    def durability(self) -> str:
        return durability(self.fsync)

    def settings(self) -> dict[str, str]:
        """All that its file of settings has."""
        broker, controller = f"{self.host}:{self.port}", f"{self.host}:{free_port()}"
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{broker},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{broker}",
            "log.dirs": str(self.folder / "data"),
            # A deleted topic's files go by the broker's setting, whatever the topic's was.
            "log.segment.delete.delay.ms": FILE_DELETE_DELAY_MS,
            **SHIPPED_SETTINGS,
        }

    def command(self) -> list[str]:
        file = self.folder / "server.properties"
        file.write_text(reference.properties(self.settings()))
        self._format(file)
        return reference.java_command(
            "kafka.Kafka", str(file), heap_mb=HEAP_MB, options=JVM_OPTIONS
        )

    def _format(self, file: Path) -> None:
        """By Kafka's own tool: a folder is then in the newest version of the metadata."""
        words = ("format", "-t", reference.random_id(), "-c", str(file))
        tool = reference.java_command("kafka.tools.StorageTool", *words)
        done = subprocess.run(
            tool, capture_output=True, text=True, timeout=FORMAT_S_MAX, check=False
        )
        if done.returncode:
            raise PeerError(f"Kafka's storage tool failed: {done.stderr.strip()}")

    def answers(self) -> bool:
        return answers_metadata(self.host, self.port)

    def wire(self) -> Wire:
        return KafkaWire(self.host, self.port, fsync=self.fsync, compression=self.compression)

    def new_queue_wire(self) -> QueueWire:
        return ShareQueue(self.host, self.port)

    def kept_bytes(self) -> int:
        """The heap that is alive after a collection. Resident memory would count what nobody has
        collected yet.
        """
        words = ["jcmd", str(self.pids()[0]), "GC.class_histogram"]
        told = subprocess.run(
            words, capture_output=True, text=True, timeout=HISTOGRAM_S_MAX, check=True
        )
        total = next(line for line in told.stdout.splitlines() if line.startswith("Total"))
        return int(total.split()[2])
