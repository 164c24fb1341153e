"""Requests leave nothing behind for the garbage collector.

Reference counting frees what is in no cycle at once. A cycle per request adds up to tens of
thousands of objects, which are then collected in one pause of many milliseconds.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support import calls
from support.batches import batch
from support.calls import RawTopic
from unit.net.served import run
from unit.serving.rig import Peer, produce_request, running, until, waiting_reads

REQUESTS = 20
LONG_MS = 60_000


@contextmanager
def left_behind() -> Iterator[Counter[str]]:
    """Counts the objects of Penstock's own classes that only the collector could free."""
    found: Counter[str] = Counter()
    gc.collect()
    gc.disable()
    try:
        yield found
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found.update(
            type(thing).__qualname__
            for thing in gc.garbage
            if type(thing).__module__.startswith("penstock.")
        )
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


async def tail_read(reader: Peer, writer: Peer, topic: RawTopic, offset: int, **how: int) -> int:
    """A fetch that waits and what it waits for; its session."""
    version = 16
    wanted = [(topic, {0: offset})]
    request = calls.fetch_request(wanted, version, max_wait_ms=LONG_MS, min_bytes=1, **how)
    reader.deliver(request, version)
    assert reader.inside.pending, "it is there too early to wait"
    writer.deliver(produce_request(topic, batch([b"v"])), 12)
    await writer.receive()
    answer = await reader.receive()
    assert answer.error_code == 0
    return int(answer.session_id)


@pytest.mark.parametrize("acks", [1, -1])
def test_produces(tmp_path: Path, acks: int) -> None:
    async def check() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic(flush_messages="1")
            peer = await rig.peer()
            await peer.produce(topic, acks=acks)
            with left_behind() as found:
                for _ in range(REQUESTS):
                    assert (await peer.produce(topic, acks=acks)).error_code == 0
            assert found == {}

    run(check)


@pytest.mark.parametrize("in_session", [False, True])
def test_fetches_that_wait(tmp_path: Path, in_session: bool) -> None:
    async def check() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic()
            reader, writer = await rig.peer(), await rig.peer()
            epoch = 0 if in_session else -1
            session = await tail_read(reader, writer, topic, 0, session_epoch=epoch)
            assert bool(session) == in_session
            with left_behind() as found:
                for offset in range(1, REQUESTS):
                    how = {"session_id": session, "session_epoch": offset} if in_session else {}
                    partition = rig.partition(topic)
                    assert partition.log.log_end_offset == offset
                    await tail_read(reader, writer, topic, offset, **how)
            assert found == {}

    run(check)


def test_fetches_whose_client_goes(tmp_path: Path) -> None:
    async def check() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic()
            await (await rig.peer()).produce(topic)
            request = calls.fetch_request([(topic, {0: 1})], 16, max_wait_ms=LONG_MS, min_bytes=1)
            with left_behind() as found:
                for _ in range(REQUESTS):
                    peer = await rig.peer()
                    peer.deliver(request, 16)
                    await until(lambda: waiting_reads(rig.partition(topic)))
                    peer.close()
                    await until(lambda: not waiting_reads(rig.partition(topic)))
            assert found["ReadInFlight"] == found["FetchSession"] == 0

    run(check)
