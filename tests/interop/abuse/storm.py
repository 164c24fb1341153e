"""Wrong logins at a rate, as a process of its own: `python -m tests.interop.abuse.storm HOST PORT
MECHANISM PER_SECOND SECONDS`. It prints how many it began and how many were answered.

One thread and one loop. Half of the names are of a user who exists. Who is not answered within
`GIVE_UP_S` is counted as begun alone.
"""

from __future__ import annotations

import asyncio
import base64
import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from penstock.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from penstock.wire.messages.sasl_handshake import SaslHandshakeRequest

GIVE_UP_S = 5.0
KNOWN = "carl"
_PROOF = base64.b64encode(bytes(32)).decode()


def framed(key: int, version: int, flexible: bool, body: bytes) -> bytes:
    whole = struct.pack(">hhih", key, version, 1, -1) + (b"\0" if flexible else b"") + body
    return struct.pack(">i", len(whole)) + whole


def authenticate(message: bytes) -> bytes:
    return framed(36, 1, False, SaslAuthenticateRequest(auth_bytes=message).encode(1))


class Storm:
    def __init__(self, host: str, port: int, mechanism: str) -> None:
        self.host, self.port, self.mechanism = host, port, mechanism
        self.begun = self.answered = 0

    async def run(self, per_second: int, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        tasks: set[asyncio.Task[None]] = set()
        while (since := loop.time() - began) < seconds:
            while self.begun < since * per_second:
                task = loop.create_task(self.attempt(self.begun))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                self.begun += 1
            await asyncio.sleep(0.005)
        await asyncio.gather(*tasks)

    async def attempt(self, number: int) -> None:
        user = KNOWN if number % 2 else f"nobody-{number}"
        try:
            async with asyncio.timeout(GIVE_UP_S):
                reader, writer = await asyncio.open_connection(self.host, self.port)
                try:
                    await self.log_in(reader, writer, user)
                finally:
                    writer.transport.abort()
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            return
        self.answered += 1

    async def log_in(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, user: str
    ) -> None:
        handshake = SaslHandshakeRequest(mechanism=self.mechanism).encode(1)
        writer.write(framed(17, 1, False, handshake))
        await answer(reader)
        if self.mechanism == "PLAIN":
            writer.write(authenticate(f"\0{user}\0wrong".encode()))
        else:
            writer.write(authenticate(f"n,,n={user},r=abcdef".encode()))
            nonce = (await answer(reader)).partition(b"r=")[2].partition(b",")[0].decode()
            writer.write(authenticate(f"c=biws,r={nonce},p={_PROOF}".encode()))
        await answer(reader)


async def answer(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


def main() -> None:
    host, port, mechanism, per_second, seconds = sys.argv[1:]
    storm = Storm(host, int(port), mechanism)
    asyncio.run(storm.run(int(per_second), float(seconds)))
    sys.stdout.write(f"{storm.begun} {storm.answered}\n")


if __name__ == "__main__":
    main()
