"""Clients that ask for all metadata again and again and never read an answer cost others little."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from penstock.api import metadata as metadata_api
from penstock.net.answer_stream import WRITE_BUFFER_HIGH_BYTES
from penstock.net.connection import WAITING_REQUESTS_MAX
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.metadata import MetadataRequest, MetadataResponse
from unit.net.served import run, settled
from unit.serving.rig import Rig, running

VERSION = 12
TOPICS, PARTITIONS = 300, 10
CLIENTS = 8
REQUESTS = 5_000
SOCKET_BYTES = 64 * 1024
OTHERS_SECONDS_MAX = 0.5
"""Of a machine that is busy with other tests."""


@contextmanager
def deaf_clients(address: str) -> Iterator[list[socket.socket]]:
    """Connections that nobody reads from."""
    host, port = address.rsplit(":", 1)
    clients = []
    try:
        for _ in range(CLIENTS):
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BYTES)
            client.connect((host, int(port)))
            client.setblocking(False)
            clients.append(client)
        yield clients
    finally:
        for client in clients:
            client.close()


async def fill(rig: Rig) -> None:
    topics = [
        CreatableTopic(name=f"t{i}", num_partitions=PARTITIONS, replication_factor=1)
        for i in range(TOPICS)
    ]
    request = CreateTopicsRequest(topics=topics)
    await rig.broker.controller.submit(lambda c: c.create_topics(request))


def test_who_does_not_read_costs_others_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[int] = []
    respond = metadata_api._response

    def counted(*args: Any) -> MetadataResponse:
        answers.append(1)
        return respond(*args)

    monkeypatch.setattr(metadata_api, "_response", counted)

    async def test() -> None:
        settings = {"socket_send_buffer_bytes": str(SOCKET_BYTES)}
        async with running(tmp_path, **settings) as rig:
            await fill(rig)
            topic = await rig.topic()
            peer = await rig.peer()
            answer_bytes = len((await _all(rig)).encode(VERSION))
            flood = peer.frame(MetadataRequest(topics=None), VERSION) * REQUESTS
            peer._sent.clear()
            answers.clear()
            waits = []
            with deaf_clients(rig.node.kafka_address) as clients:
                for _ in range(50):
                    for client in clients:
                        with suppress(BlockingIOError):
                            client.send(flood)
                    begun = time.monotonic()
                    assert (await peer.produce(topic)).error_code == 0
                    waits.append(time.monotonic() - begun)
                served = await settled(lambda: len(answers))
                kept = [len(connection._waiting) for connection in rig.server.connections]
            # The write buffer, the kernel's buffers, and the answer that crosses the mark.
            held = WRITE_BUFFER_HIGH_BYTES + 8 * SOCKET_BYTES + answer_bytes
            assert served <= CLIENTS * (held // answer_bytes + 2)
            assert max(kept) <= WAITING_REQUESTS_MAX, "thousands were read at once, and looked at"
            assert max(waits) < OTHERS_SECONDS_MAX

    async def _all(rig: Rig) -> Any:
        peer = await rig.peer()
        return await peer.call(MetadataRequest(topics=None), VERSION)

    run(test)
