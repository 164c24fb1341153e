"""TLS of the load: sockets that encrypt what goes through them.

Encrypted bytes go through memory, not straight between OpenSSL and the kernel: a read and a write
are then of as many records as there are, where OpenSSL itself takes two system calls for each. So
the load costs less than its server. Version and cipher are those that are asked for, or it is an
error. One thread owns a socket.
"""

from __future__ import annotations

import select
import socket
import ssl
from typing import Any

TLS_VERSION = "TLSv1.3"
CIPHER = "TLS_AES_256_GCM_SHA384"
"""The first choice of OpenSSL and of Java alike."""
RAW_BYTES = 256 * 1024
PIECE_BYTES = 256 * 1024
"""So much is encrypted before it is sent."""
RECORD_BYTES = 16 * 1024


def context(authority_pem: str) -> ssl.SSLContext:
    """Of a client that trusts one authority."""
    made = ssl.create_default_context(cadata=authority_pem)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    return made


class TlsSocket(socket.socket):
    """Has the connection of `sock`, which is given up, and shakes hands. After that it is to be
    used non-blocking: what cannot be done now is BlockingIOError, and a `send` that was not
    finished has to be repeated with the same bytes.
    """

    __slots__ = ("_encrypted", "_incoming", "_outgoing", "_raw", "_tls", "_under_way")

    def __init__(self, sock: socket.socket, trust: ssl.SSLContext, name: str) -> None:
        timeout = sock.gettimeout()
        super().__init__(sock.family, sock.type, sock.proto, sock.detach())
        self.settimeout(timeout)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = trust.wrap_bio(self._incoming, self._outgoing, server_hostname=name)
        self._encrypted: memoryview = memoryview(b"")
        self._under_way = 0  # bytes whose encrypted form is not all sent
        self._raw = memoryview(bytearray(RAW_BYTES))
        self._shake_hands()

    def _shake_hands(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                super().sendall(self._outgoing.read())
                if not (arrived := self._received(RAW_BYTES)):
                    raise ConnectionResetError("closed by the server") from None
                self._incoming.write(arrived)
        super().sendall(self._outgoing.read())
        cipher, version = self._tls.cipher(), self._tls.version()
        if cipher is None or (version, cipher[0]) != (TLS_VERSION, CIPHER):
            raise ssl.SSLError(
                f"{version} and {cipher} were agreed on, not {TLS_VERSION}, {CIPHER}"
            )

    def _received(self, bytes_max: int) -> memoryview:
        return self._raw[: super().recv_into(self._raw[:bytes_max])]

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        """What has arrived, as far as there is room for it and one more record; 0 at the end."""
        view, have = memoryview(buffer), 0
        try:
            while True:
                have += self._decrypted(view[have:])
                # What is taken from the kernel is also handed on: nothing tells of it again.
                room = len(view) - have - self._incoming.pending - RECORD_BYTES
                if room <= 0 or not (arrived := self._received(room)):
                    return have
                self._incoming.write(arrived)
        except BlockingIOError:
            if not have:
                raise
        return have

    def _decrypted(self, view: memoryview) -> int:
        read, have = self._tls.read, 0
        try:
            while self._incoming.pending:
                have += read(RECORD_BYTES, view[have:])
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            pass
        return have

    def send(self, data: Any, flags: int = 0) -> int:
        view, sent = memoryview(data), 0
        try:
            while sent < len(view):
                if not self._under_way:
                    self._under_way = self._tls.write(view[sent : sent + PIECE_BYTES])
                    self._encrypted = memoryview(self._outgoing.read())
                while self._encrypted:
                    self._encrypted = self._encrypted[super().send(self._encrypted) :]
                sent += self._under_way
                self._under_way = 0
        except BlockingIOError:
            if not sent:
                raise
        return sent

    def sendall(self, data: Any, flags: int = 0) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[self.send(view) :]
            except BlockingIOError:
                select.select([], [self], [])
