"""A few bytes that ask for very much memory; compressed ones are in `chaos/test_bad_peers.py`."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.wire.apis import ApiKey
from penstock.wire.messages.api_versions import ApiVersionsRequest
from support.growth import growth_below
from support.neighbour import Neighbour
from support.node import NodeProcess
from support.raw import Closed, RawClient

pytestmark = [pytest.mark.penstock_only, pytest.mark.xdist_group("security")]

INT_MAX = 2**31 - 1
MILLION = 1_000_000
VARINT_MAX = b"\xff\xff\xff\xff\x0f"
SECONDS_MAX = 60
WIDE, CLIENTS = 400_000, 8


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("open") / "node") as made:
        yield made


def array(count: int, element: bytes = b"", times: int = 0) -> bytes:
    return struct.pack(">i", count) + element * times


def compact(count: int) -> bytes:
    """The length of an array in a flexible version, which is one more than its elements."""
    value, out = count + 1, b""
    while value > 0x7F:
        out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
    return out + bytes([value])


TOPIC = b"\0\1a"
CASES: dict[str, tuple[int, int, Callable[[], bytes]]] = {
    "an array": (ApiKey.METADATA, 5, lambda: array(INT_MAX)),
    "as many as bytes": (ApiKey.METADATA, 5, lambda: array(MILLION * 10, b"\0", 10 * MILLION)),
    "below zero": (ApiKey.METADATA, 5, lambda: array(-2)),
    "of integers": (ApiKey.DELETE_RECORDS, 1, lambda: array(1) + TOPIC + array(INT_MAX)),
    "inside another": (
        ApiKey.LIST_OFFSETS, 1, lambda: b"\xff" * 4 + array(1) + TOPIC + array(INT_MAX)
    ),
    "together too many": (
        ApiKey.LIST_OFFSETS, 1,
        lambda: b"\xff" * 4 + array(1_100, TOPIC + array(1_000, bytes(12), 1_000), 1_100),
    ),
    "compact": (ApiKey.METADATA, 9, lambda: VARINT_MAX),
    "compact, inside": (
        ApiKey.OFFSET_FETCH, 8, lambda: compact(1) + b"\2g" + compact(1) + b"\2a" + VARINT_MAX
    ),
    "tagged fields": (ApiKey.METADATA, 12, lambda: compact(0) + bytes(2) + VARINT_MAX),
    "tagged fields that are there": (
        ApiKey.METADATA, 12, lambda: compact(0) + bytes(2) + compact(99_999) + b"\1\0" * 100_000
    ),
    "a tagged field beyond the end": (
        ApiKey.METADATA, 12, lambda: compact(0) + bytes(2) + b"\1\0" + VARINT_MAX
    ),
    "tagged fields in each of many": (
        ApiKey.METADATA, 12,
        lambda: compact(900) + (bytes(16) + b"\2a" + compact(1_999) + b"\1\0" * 2_000) * 900,
    ),
    "a text": (ApiKey.METADATA, 9, lambda: compact(1) + VARINT_MAX),
    "bytes": (ApiKey.SYNC_GROUP, 0, lambda: b"\0\1g" + bytes(4) + b"\0\1m" + array(1)
              + b"\0\1m" + array(INT_MAX)),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_count_is_not_believed(node: NodeProcess, case: str) -> None:
    """CVE-2026-111108, CVE-2026-111115: it is compared with what has arrived, and bounded."""
    key, version, body = CASES[case]
    with growth_below(node, 80), RawClient(node.host, node.port) as peer:
        peer.send_frame(peer.header(key, version) + body())
        with pytest.raises(Closed):
            peer.receive_frame()
    alive(node)


def test_tagged_fields_of_the_header(node: NodeProcess) -> None:
    for tags in (VARINT_MAX, compact(99_999) + b"\1\0" * 100_000, b"\1\0" + VARINT_MAX):
        with growth_below(node, 40), RawClient(node.host, node.port) as peer:
            peer.send_frame(peer.header(ApiKey.METADATA, 12)[:-1] + tags)
            with pytest.raises(Closed):
                peer.receive_frame()
    alive(node)


@pytest.mark.timeout(240)
def test_as_many_as_may_be_from_many_at_once(tmp_path: Path) -> None:
    """Each request is legal, and takes a hundred times its bytes: they are taken few at a time, and
    everyone is answered.
    """
    body = b"\xff" * 4 + array(WIDE, TOPIC + array(0), WIDE)
    sizes: list[int] = []

    def ask() -> None:
        with RawClient(node.host, node.port, seconds=200) as peer:
            peer.send_frame(peer.header(ApiKey.LIST_OFFSETS, 1) + body)
            sizes.append(len(peer.receive_frame()))

    with NodeProcess(tmp_path / "node") as node, growth_below(node, 350), Neighbour(node):
        threads = [threading.Thread(target=ask) for _ in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(200)
        assert len(sizes) == CLIENTS
        assert min(sizes) > WIDE


def alive(node: NodeProcess) -> None:
    with RawClient(node.host, node.port) as client:
        assert client.call(ApiVersionsRequest(), 0).error_code == 0
