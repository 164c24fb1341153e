"""Apache Kafka's command-line tools, run one after the other in one JVM (`java/Tools.java`)."""

from __future__ import annotations

import json
import selectors
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from .reference import java_command

SOURCE = Path(__file__).resolve().parents[1] / "interop" / "java" / "Tools.java"
CALL_SECONDS_MAX = 90.0
STOP_SECONDS_MAX = 10.0

NAMES = {
    "acls": "org.apache.kafka.tools.AclCommand",
    "client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "cluster": "org.apache.kafka.tools.ClusterTool",
    "configs": "kafka.admin.ConfigCommand",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "console-share-consumer": "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
    "consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "features": "org.apache.kafka.tools.FeatureCommand",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "groups": "org.apache.kafka.tools.GroupsCommand",
    "leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "share-consumer-perf-test": "org.apache.kafka.tools.ShareConsumerPerformance",
    "share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "streams-groups": "org.apache.kafka.tools.streams.StreamsGroupCommand",
    "topics": "org.apache.kafka.tools.TopicCommand",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
    "transactional-message-copier": "org.apache.kafka.tools.TransactionalMessageCopier",
    "verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
    "verifiable-share-consumer": "org.apache.kafka.tools.VerifiableShareConsumer",
}


class Done(NamedTuple):
    """How a tool ended, and what it wrote."""

    code: int
    out: str
    err: str


class Tools:
    """One JVM; `run` takes the name of a tool without `kafka-` and `.sh`."""

    def __init__(self) -> None:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as the JVM)
        self._process = subprocess.Popen(
            java_command(str(SOURCE)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
        )

    def run(self, tool: str, *args: str) -> Done:
        """Runs a tool to its end."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps([NAMES[tool], *args]).encode() + b"\n")
        stdin.flush()
        with selectors.DefaultSelector() as waiting:
            waiting.register(stdout, selectors.EVENT_READ)
            assert waiting.select(CALL_SECONDS_MAX), f"{tool} does not end: {args}"
        line = stdout.readline()
        if not line:
            self._said.seek(0)
            raise AssertionError(f"the JVM ended: {self._said.read()[-2000:]!r}")
        return Done(**json.loads(line))

    def output(self, tool: str, *args: str) -> str:
        """What a tool wrote that has to succeed."""
        done = self.run(tool, *args)
        assert done.code == 0, f"{tool} {' '.join(args)} ended with {done}"
        return done.out

    @staticmethod
    def output_alone(tool: str, *args: str) -> str:
        """The same in a JVM of its own, for a tool that finishes its work while the JVM ends."""
        command = java_command(NAMES[tool], *args)
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=CALL_SECONDS_MAX, check=False
        )
        assert done.returncode == 0, f"{tool} {' '.join(args)} ended with {done}"
        return done.stdout

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_SECONDS_MAX)
        self._said.close()
