"""Apache Kafka itself, as the referee: one KRaft process that is broker and controller at once.

The jars come from `build/kafka-libs` (filled by `python tools/fetch_java.py`) or from the directory
that `PENSTOCK_KAFKA_LIBS` names. Without Java or the jars, `missing()` says why and the tests that
need them are skipped with that reason.
"""

from __future__ import annotations

import base64
import os
import shutil
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from .process import BrokerProcess, free_port

ROOT = Path(__file__).resolve().parents[2]
# Short runs: the quick compiler and the small collector start sooner and leave cores to the tests.
JVM_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


def libs_dir() -> Path:
    """Where the jars of Apache Kafka lie."""
    return Path(os.environ.get("PENSTOCK_KAFKA_LIBS", ROOT / "build" / "kafka-libs"))


def missing() -> str | None:
    """Why nothing of Java's can run here, or None when it can."""
    if shutil.which("java") is None:
        return "no `java` on the PATH: run `python tools/fetch_java.py`"
    if not any(libs_dir().glob("kafka-clients-*.jar")):
        return f"no jars of Apache Kafka in {libs_dir()}: run `python tools/fetch_java.py`"
    return None


def java_command(
    main: str,
    *args: str,
    heap_mb: int = 512,
    classes: Path | None = None,
    options: Sequence[str] = JVM_OPTIONS,
) -> list[str]:
    """The command line that runs a Java class with Apache Kafka's jars."""
    path = f"{libs_dir()}/*" if classes is None else f"{classes}{os.pathsep}{libs_dir()}/*"
    log_level = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    return ["java", f"-Xmx{heap_mb}m", *options, log_level, "-cp", path, main, *args]


def random_id() -> str:
    return base64.urlsafe_b64encode(b"\x41" + os.urandom(15)).decode().rstrip("=")


RETENTION_DELAY_MS = 3_600_000


class KafkaProcess(BrokerProcess):
    """`kafka.Kafka` with its data below `root`."""

    KIND = "kafka"
    CLEAN_EXIT_CODES = (0, 143)  # the JVM reports the SIGTERM that it handled

    def __init__(self, root: Path, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(root, settings)
        self.controller_port = free_port()
        self._formatted = False

    def _format(self) -> None:
        """What Kafka's storage tool would write for a first start."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        lines = {
            "version": "1",
            "cluster.id": random_id(),
            "node.id": "1",
            "directory.id": random_id(),
        }
        (self.data_dir / "meta.properties").write_text(properties(lines))
        self._formatted = True

    def command(self) -> list[str]:
        if not self._formatted:
            self._format()
        controller = f"{self.host}:{self.controller_port}"
        lines = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "log.dirs": str(self.data_dir),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            # Retention would take the records with old timestamps away, in the middle of a test.
            "log.initial.task.delay.ms": str(RETENTION_DELAY_MS),
            **self.settings,
        }
        path = self.root / "server.properties"
        path.write_text(properties(lines))
        return java_command("kafka.Kafka", str(path))

    def is_ready(self) -> bool:
        if not self.running:
            return False
        try:
            with socket.create_connection((self.host, self.port), timeout=1):
                return True
        except OSError:
            time.sleep(0.05)
            return False


def properties(lines: Mapping[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in lines.items())
