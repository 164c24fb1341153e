"""Every codec in every framing that a client may send, and what is refused."""

from __future__ import annotations

import gzip
import random
import struct
import subprocess
import sys
import zlib
from contextlib import suppress
from pathlib import Path

import lz4.frame
import pytest
import snappy
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.errors import CorruptRecord
from penstock.wire.compression import LEVELS, Compression, compress, decompress

CODECS = [kind for kind in Compression if kind is not Compression.NONE]
MIB = 1024 * 1024
TEXT = b"".join(b'{"id":%d,"name":"user %d"}' % (i, i * i % 97) for i in range(5_000))
NOISE = random.Random(7).randbytes(200_000)


def foreign(kind: Compression, data: bytes) -> list[bytes]:
    """`data` packed by other libraries, in the variants that clients write."""
    if kind is Compression.GZIP:
        half = len(data) // 2
        raw = zlib.compressobj(9, zlib.DEFLATED, 31)
        return [
            gzip.compress(data, 1),
            gzip.compress(data[:half]) + gzip.compress(data[half:]),
            raw.compress(data) + raw.flush(),
        ]
    if kind is Compression.SNAPPY:
        xerial = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
        for start in range(0, len(data), 7_000):
            block = snappy.compress(data[start : start + 7_000])
            xerial += struct.pack(">i", len(block)) + block
        return [snappy.compress(data), xerial, xerial + xerial[:16]]
    if kind is Compression.LZ4:
        return [
            lz4.frame.compress(
                data,
                block_size=block_size,
                block_linked=False,
                content_checksum=checksum,
                block_checksum=not checksum,
                store_size=checksum,
            )
            for block_size in (
                lz4.frame.BLOCKSIZE_MAX64KB,
                lz4.frame.BLOCKSIZE_MAX256KB,
                lz4.frame.BLOCKSIZE_MAX1MB,
                lz4.frame.BLOCKSIZE_MAX4MB,
            )
            for checksum in (True, False)
        ]
    stream = zstandard.ZstdCompressor(level=3).compressobj()
    return [
        zstandard.ZstdCompressor(level=1, write_content_size=True).compress(data),
        zstandard.ZstdCompressor(level=9, write_content_size=False).compress(data),
        zstandard.ZstdCompressor(level=3, write_checksum=True).compress(data),
        stream.compress(data) + stream.flush(),
    ]


def unpack_foreign(kind: Compression, packed: bytes) -> bytes:
    """What another library reads from our output."""
    if kind is Compression.GZIP:
        return gzip.decompress(packed)
    if kind is Compression.LZ4:
        return lz4.frame.decompress(packed)
    if kind is Compression.ZSTD:
        return zstandard.ZstdDecompressor().decompressobj().decompress(packed)
    assert packed[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    out, pos = b"", 16
    while pos < len(packed):
        (size,) = struct.unpack_from(">i", packed, pos)
        out += snappy.decompress(packed[pos + 4 : pos + 4 + size])
        pos += 4 + size
    return out


@pytest.mark.parametrize("kind", CODECS)
@pytest.mark.parametrize("data", [b"", b"x", TEXT, NOISE], ids=["empty", "byte", "text", "noise"])
def test_round_trip_and_other_libraries_agree(kind: Compression, data: bytes) -> None:
    packed = compress(kind, data)
    assert decompress(kind, packed, max_bytes=len(data)) == data
    assert unpack_foreign(kind, packed) == data
    for variant in foreign(kind, data):
        if variant:
            assert decompress(kind, memoryview(variant), max_bytes=len(data)) == data


@pytest.mark.parametrize("kind", list(LEVELS))
def test_levels_are_the_codecs_own_and_checked(kind: Compression) -> None:
    low, high, default = LEVELS[kind]
    for level in (low, high, default, None):
        assert unpack_foreign(kind, compress(kind, TEXT, level)) == TEXT
    assert len(compress(kind, TEXT, high)) < len(compress(kind, TEXT, low))
    for level in (low - 1, high + 1):
        if (kind, level) != (Compression.GZIP, 0):
            with pytest.raises(ValueError, match="outside"):
                compress(kind, TEXT, level)
    with pytest.raises(ValueError, match="outside"):
        compress(Compression.GZIP, TEXT, 0)
    assert compress(Compression.GZIP, TEXT, -1) == compress(Compression.GZIP, TEXT)


def test_lz4_blocks_are_independent_as_the_java_client_demands() -> None:
    flags = compress(Compression.LZ4, TEXT)[4]
    assert flags & 0x20


@pytest.mark.parametrize("kind", list(Compression))
def test_one_byte_too_many_is_refused(kind: Compression) -> None:
    packed = compress(kind, TEXT)
    with pytest.raises(CorruptRecord, match="unpack to more than"):
        decompress(kind, packed, max_bytes=len(TEXT) - 1)


@pytest.mark.parametrize("kind", CODECS)
def test_truncation_and_trailing_bytes_are_refused(kind: Compression) -> None:
    for packed in foreign(kind, TEXT)[:2]:
        for damaged in (packed[:-1], packed[: len(packed) // 2], packed + b"\x55\x66\x77"):
            with pytest.raises(CorruptRecord):
                decompress(kind, damaged, max_bytes=16 * MIB)


@pytest.mark.parametrize("kind", CODECS)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_garbage_never_escapes_as_another_error(kind: Compression, data: st.DataObject) -> None:
    packed = bytearray(compress(kind, TEXT[:400]))
    for _ in range(data.draw(st.integers(1, 4))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    junk = data.draw(st.binary(max_size=60))
    for garbage in (bytes(packed), junk, bytes(packed[:16]) + junk):
        with suppress(CorruptRecord):
            assert len(decompress(kind, garbage, max_bytes=100_000)) <= 100_000


def bomb(kind: Compression) -> bytes:
    """What unpacks to 100 MB; a few KB where the codec can pack that tightly."""
    zeros = bytes(100 * MIB)
    if kind is Compression.GZIP:
        return gzip.compress(zeros, 9)
    if kind is Compression.SNAPPY:
        return compress(kind, zeros)
    if kind is Compression.LZ4:
        return lz4.frame.compress(zeros, block_linked=False)
    return zstandard.compress(zeros)


@pytest.mark.parametrize("kind", CODECS)
def test_a_bomb_costs_no_more_than_the_limit(kind: Compression, tmp_path: Path) -> None:
    path = tmp_path / "bomb"
    path.write_bytes(bomb(kind))
    script = f"""
import resource
from penstock.base.errors import CorruptRecord
from penstock.wire.compression import Compression, decompress
data = open({str(path)!r}, "rb").read()
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
before = peak()
for claimed in (data, data[:-4] + bytes(4)):
    try:
        decompress(Compression({int(kind)}), claimed, max_bytes=8 << 20)
    except CorruptRecord:
        continue
    raise SystemExit("accepted")
print(peak() - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert int(done.stdout) < 14 * 1024, "KiB of memory beyond the 8 MiB allowed"


def test_a_size_claim_is_not_believed_beyond_what_the_codec_can_pack() -> None:
    claim_only = b"\xff\xff\xff\x7f" + b"\x00" * 8
    with pytest.raises(CorruptRecord, match="claims"):
        decompress(Compression.SNAPPY, claim_only, max_bytes=1 << 30)
    huge_window = b"\x28\xb5\x2f\xfd\x00\xf8" + b"\x01\x00\x00"
    with pytest.raises(CorruptRecord, match="window"):
        decompress(Compression.ZSTD, huge_window, max_bytes=MIB)
