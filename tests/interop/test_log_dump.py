"""A data directory read by Apache's own log-dump tool: records, indexes and metadata agree."""

from __future__ import annotations

import random
import re
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from support.helpers import admin, make_topic, produce_all, producer
from support.process import BrokerProcess
from support.reference import java_command

pytestmark = pytest.mark.java

T0 = 1_700_000_000_000
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
MESSAGES_EACH = 400
DUMP_SECONDS_MAX = 60

_RECORD = re.compile(
    r"^\| offset: (?P<offset>\d+) (?:CreateTime|LogAppendTime): (?P<timestamp>-?\d+)"
    r" keySize: (?P<key_size>-?\d+) valueSize: (?P<value_size>-?\d+)"
    r" sequence: (?P<sequence>-?\d+) headerKeys: \[(?P<headers>[^\]]*)\]"
    r"(?: key: (?P<key>.*?))?(?: payload: (?P<value>.*))?$",
    re.MULTILINE,
)
_BATCH = re.compile(
    r"^baseOffset: (?P<base>\d+) lastOffset: (?P<last>\d+) count: (?P<count>\d+).*?"
    r"producerId: (?P<producer>-?\d+).*?partitionLeaderEpoch: (?P<epoch>-?\d+).*?"
    r"compresscodec: (?P<codec>\w+) crc: \d+ isvalid: (?P<valid>\w+)",
    re.MULTILINE,
)


class Written(NamedTuple):
    """What the test has published, and where the broker left it."""

    node: BrokerProcess
    topic: str
    sent: list[dict[str, Any]]


def dump(*files: Path, options: tuple[str, ...] = ()) -> str:
    """What the tool prints about the files; it must not fail."""
    names = ",".join(str(file) for file in files)
    command = java_command("org.apache.kafka.tools.DumpLogSegments", "--files", names, *options)
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=DUMP_SECONDS_MAX, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Exception" not in done.stderr, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Written:
    """A node that was filled and stopped cleanly: several segments, every compression."""
    make = request.getfixturevalue("broker_maker")
    node: BrokerProcess = make(tmp_path_factory.mktemp("dumped"))
    node.start()
    try:
        topic = make_topic(node, "dumped", 2, {"segment.bytes": "1048576"})
        sent: list[dict[str, Any]] = []
        for codec in COMPRESSIONS:
            client = producer(
                node, compression_codec=codec, enable_idempotence=True, batch_num_messages=20
            )
            messages = [_message(len(sent) + i) for i in range(MESSAGES_EACH)]
            produce_all(client, topic, messages)
            sent += messages
        entry = ConfigEntry("retention.ms", "-1", incremental_operation=AlterConfigOpType.SET)
        change = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        [altered] = admin(node).incremental_alter_configs([change]).values()
        altered.result(20)
        node.stop()
    except BaseException:
        node.kill()
        raise
    return Written(node, topic, sent)


def _message(i: int) -> dict[str, Any]:
    return {
        "key": None if i % 5 == 0 else f"key-{i}",
        "value": f"value-{i}-" + random.Random(i).randbytes(i * 37 % 1500).hex(),
        "timestamp": T0 + i,
        "headers": [("first", b"1"), ("second", None)] if i % 3 == 0 else None,
    }


def segments(written: Written, suffix: str) -> list[Path]:
    return sorted(written.node.partition_dir(written.topic).glob(f"*{suffix}"))


def test_the_records_agree(written: Written) -> None:
    logs = segments(written, ".log")
    assert len(logs) > 1, "the log was to be rolled"
    text = "".join(dump(log, options=("--print-data-log",)) for log in logs)
    found = [match.groupdict() for match in _RECORD.finditer(text)]
    assert len(found) == len(written.sent)
    for i, (record, sent) in enumerate(zip(found, written.sent, strict=True)):
        assert int(record["offset"]) == i
        assert int(record["timestamp"]) == sent["timestamp"]
        assert record["key"] == sent["key"]
        assert record["value"] == sent["value"]
        assert record["headers"] == ("first,second" if sent["headers"] else "")
        assert int(record["sequence"]) == i % MESSAGES_EACH


def test_the_batches_are_valid(written: Written) -> None:
    text = "".join(dump(log) for log in segments(written, ".log"))
    batches = [match.groupdict() for match in _BATCH.finditer(text)]
    assert {batch["valid"] for batch in batches} == {"true"}
    assert {batch["codec"] for batch in batches} == set(COMPRESSIONS)
    assert {batch["epoch"] for batch in batches} == {"0"}
    assert len({batch["producer"] for batch in batches}) == len(COMPRESSIONS)
    ends = [-1] + [int(batch["last"]) for batch in batches]
    assert [int(batch["base"]) for batch in batches] == [end + 1 for end in ends[:-1]]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_the_indexes_pass(written: Written, suffix: str) -> None:
    files = segments(written, suffix)
    assert any(file.stat().st_size for file in files), f"no {suffix} has an entry"
    for file in files:
        sanity = dump(file, options=("--index-sanity-check",))
        assert "passed sanity check" in sanity
        verified = dump(file, options=("--verify-index-only",))
        for complaint in ("Mismatches", "mismatch", "out of order", "not found", "Non-"):
            assert complaint not in verified, verified[-2000:]


def test_the_producer_snapshots_are_read(written: Written) -> None:
    files = segments(written, ".snapshot")
    assert files
    text = dump(files[-1])
    producers = re.findall(r"producerId: (\d+) producerEpoch: (\d+)", text)
    assert len({producer for producer, _ in producers}) == len(COMPRESSIONS)
    assert {epoch for _, epoch in producers} == {"0"}


def test_the_cluster_metadata_is_read(written: Written) -> None:
    logs = sorted((written.node.data_dir / "__cluster_metadata-0").glob("*.log"))
    text = "".join(dump(log, options=("--cluster-metadata-decoder",)) for log in logs)
    types = set(re.findall(r'"type":"(\w+)"', text))
    assert {
        "TOPIC_RECORD",
        "PARTITION_RECORD",
        "CONFIG_RECORD",
        "REGISTER_BROKER_RECORD",
        "PRODUCER_IDS_RECORD",
        "FEATURE_LEVEL_RECORD",
    } <= types
    assert f'"name":"{written.topic}"' in text
    assert "Error" not in text, text[-2000:]
    assert {match["valid"] for match in _BATCH.finditer(text)} == {"true"}
