"""The topic of the audit log takes what a node proves to be its own, and nothing else."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from penstock.base.ids import uuid_text
from penstock.metadata.names import AUDIT_TOPIC
from penstock.serving.append import AUDIT_OF_NODE
from penstock.serving.audit_topic import PARTITIONS, proof
from penstock.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from penstock.wire.records import parse_header, read_records
from support.batches import batch

from .rig import Peer, Rig, one, running, until

ON = {"penstock.audit.enable": "true"}
EVENT = b'{"of":"another node"}'


def request(given: str, topic: str = AUDIT_TOPIC, records: bytes | None = None) -> Any:
    parts = [PartitionProduceData(index=0, records=batch([EVENT]) if records is None else records)]
    data = [TopicProduceData(name=topic, partition_data=parts)]
    return ProduceRequest(transactional_id=given, acks=-1, timeout_ms=1_000, topic_data=data)


async def code(peer: Peer, asked: Any) -> int:
    return int(one(await peer.call(asked, 12)).error_code)


def values(rig: Rig) -> list[bytes]:
    found = []
    for index in range(PARTITIONS):
        log = rig.broker.replicas.leader_of(AUDIT_TOPIC, index).log
        read = log.read(0, 1 << 20, up_to_offset=log.log_end_offset)
        data = memoryview(b"" if read is None else read.read())
        while data:
            size = parse_header(data).size
            found += [record.value or b"" for record in read_records(data[:size])]
            data = data[size:]
    return found


def own(rig: Rig) -> str:
    return proof(1, rig.broker.metadata.brokers[1].incarnation_id)


def test_only_the_proof_of_a_registered_node_is_taken(tmp_path: Path) -> None:
    async def check() -> None:
        async with running(tmp_path, **ON) as rig:
            await until(lambda: rig.broker.audit is not None and rig.broker.audit.written)
            peer = await rig.peer()
            incarnation = uuid_text(rig.broker.metadata.brokers[1].incarnation_id)
            for forged in (
                proof(1, bytes(16)),
                f"{AUDIT_OF_NODE}2:{incarnation}",
                f"{AUDIT_OF_NODE}{'9' * 5_000}:{incarnation}",
                f"{AUDIT_OF_NODE}\u0661:{incarnation}",
                AUDIT_OF_NODE,
            ):
                refused = await code(peer, request(forged))
                assert refused == ErrorCode.INVALID_TOPIC_EXCEPTION
            assert EVENT not in values(rig)
            assert await code(peer, request(own(rig))) == ErrorCode.NONE
            assert values(rig).count(EVENT) == 1

    asyncio.run(check())


def test_the_proof_opens_no_other_topic_and_no_bad_batch(tmp_path: Path) -> None:
    async def check() -> None:
        async with running(tmp_path, **ON) as rig:
            await until(lambda: rig.broker.audit is not None and rig.broker.audit.written)
            await rig.topic("t")
            peer = await rig.peer()
            assert await code(peer, request(own(rig), "t")) == ErrorCode.INVALID_TOPIC_EXCEPTION
            spoiled = batch([EVENT])[:-1] + b"x"
            assert await code(peer, request(own(rig), records=spoiled)) != ErrorCode.NONE
            assert await code(peer, request(own(rig), records=b"")) != ErrorCode.NONE
            assert EVENT not in values(rig)

    asyncio.run(check())


@pytest.mark.parametrize("settings", [{}, ON], ids=["off", "on"])
def test_there_is_a_topic_only_where_it_is_on(tmp_path: Path, settings: dict[str, str]) -> None:
    async def check() -> None:
        async with running(tmp_path, **settings) as rig:
            audit = rig.broker.audit
            assert (audit is not None) == bool(settings)
            if audit is None:
                assert AUDIT_TOPIC not in rig.broker.metadata.topics
                return
            await until(lambda: audit.written == 1)
            [first] = map(json.loads, values(rig))
            assert first["activity_name"] == "Start"
            config = rig.broker.metadata.topic_config(AUDIT_TOPIC)
            assert config["retention.ms"] == str(90 * 24 * 3_600_000)

    asyncio.run(check())
