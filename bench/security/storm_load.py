"""A storm of logins with wrong passwords: `python -m bench.security.storm_load`, a process.

It opens connections at an even rate, says what a client says, with a password that is wrong, waits
for the refusal and hangs up. It hashes nothing itself. One line of JSON comes in, one goes out. One
thread, one epoll; a connection that is late is counted as such, and given up after `ANSWER_S_MAX`.
"""

from __future__ import annotations

import json
import os
import select
import socket
import ssl
import struct
import sys
import time
from typing import Any

from penstock.auth import scram
from penstock.cli.bench.requests import frame
from penstock.kafka.sasl import PLAIN
from penstock.wire.apis import ApiKey
from penstock.wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from penstock.wire.messages.sasl_handshake import SaslHandshakeRequest

ANSWER_S_MAX = 10.0
STEP_S = 0.001
RECEIVE_BYTES = 64 * 1024
HANDSHAKE_VERSION = AUTHENTICATE_VERSION = 1
ANSWER_HEAD_BYTES = 4
NONCE = "a-nonce-of-the-bench"
_LENGTH = struct.Struct(">i")
_NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Login:
    """One connection: what has arrived, what is to be sent, and how far it is."""

    __slots__ = ("_mechanism", "_user", "answers", "arrived", "began_s", "ready", "sock", "to_send")

    def __init__(self, sock: socket.socket, user: str, mechanism: str, began_s: float) -> None:
        self.sock = sock
        self.began_s = began_s
        self.arrived = b""
        self.answers = 0
        self.ready = not isinstance(sock, ssl.SSLSocket)
        self._user, self._mechanism = user, mechanism
        self.to_send = _handshake(mechanism) + _token(self._first())

    def _first(self) -> bytes:
        if self._mechanism == PLAIN:
            return b"\0" + self._user.encode() + b"\0" + os.urandom(8).hex().encode()
        return f"n,,n={self._user},r={NONCE}".encode()

    def go_on(self) -> bool:
        """What can be done now; whether it is over: refused, or hung up on."""
        try:
            if not self.ready:
                assert isinstance(self.sock, ssl.SSLSocket)
                self.sock.do_handshake()
                self.ready = True
            if self.to_send:
                self.to_send = self.to_send[self.sock.send(self.to_send) :]
            data = self.sock.recv(RECEIVE_BYTES)
        except _NOT_NOW:
            return False
        except OSError:
            return True
        self.arrived += data
        refused = [self._answered(answer) for answer in self._frames()]
        return not data or any(refused)

    def _frames(self) -> list[bytes]:
        found = []
        while len(self.arrived) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self.arrived)[0]
            if end > len(self.arrived):
                break
            found.append(self.arrived[_LENGTH.size : end])
            self.arrived = self.arrived[end:]
        return found

    def _answered(self, answer: bytes) -> bool:
        """Whether that was the refusal."""
        self.answers += 1
        if self.answers == 1:
            return False
        told = SaslAuthenticateResponse.decode(answer[ANSWER_HEAD_BYTES:], AUTHENTICATE_VERSION)
        if told.error_code:
            return True
        if self._mechanism == PLAIN:
            raise SystemExit("a wrong password was right")
        nonce = dict(scram.pairs(told.auth_bytes.decode()))["r"]
        proof = scram.encoded(os.urandom(64))
        self.to_send = _token(f"c=biws,r={nonce},p={proof}".encode())
        self.sock.send(self.to_send)
        self.to_send = b""
        return False


def _handshake(mechanism: str) -> bytes:
    request = SaslHandshakeRequest(mechanism=mechanism)
    return bytes(frame(ApiKey.SASL_HANDSHAKE, request, HANDSHAKE_VERSION))


def _token(token: bytes) -> bytes:
    request = SaslAuthenticateRequest(auth_bytes=token)
    return bytes(frame(ApiKey.SASL_AUTHENTICATE, request, AUTHENTICATE_VERSION))


class Storm:
    def __init__(self, order: dict[str, Any]) -> None:
        self._order = order
        self._epoll = select.epoll()
        self._under_way: dict[int, Login] = {}
        self._context = None
        if "trusted" in order:
            self._context = ssl.create_default_context(cadata=order["trusted"])
        self.refused = self.late = 0

    def run(self) -> dict[str, float]:
        rate, seconds = self._order["rate"], self._order["seconds"]
        began = time.perf_counter()
        begun = 0
        while (now := time.perf_counter()) < began + seconds:
            due = int((now - began) * rate)
            if begun < due:
                self._begin(now)
                begun += 1
            self._turn(0 if begun < due else STEP_S)
        refused, took = self.refused, time.perf_counter() - began
        deadline = time.perf_counter() + ANSWER_S_MAX
        while self._under_way and time.perf_counter() < deadline:
            self._turn(STEP_S)
        return {
            "begun_per_s": begun / took,
            "refused_per_s": refused / took,
            "unanswered": float(self.late + len(self._under_way)),
        }

    def _begin(self, now: float) -> None:
        sock = socket.create_connection((self._order["host"], self._order["port"]), ANSWER_S_MAX)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setblocking(False)
        if self._context is not None:
            sock = self._context.wrap_socket(
                sock, server_hostname=self._order["host"], do_handshake_on_connect=False
            )
        login = Login(sock, self._order["user"], self._order["mechanism"], now)
        self._under_way[sock.fileno()] = login
        self._epoll.register(sock.fileno(), select.EPOLLIN)
        self._go_on(login)

    def _turn(self, wait_s: float) -> None:
        for fd, _ in self._epoll.poll(wait_s):
            self._go_on(self._under_way[fd])
        now = time.perf_counter()
        while self._under_way:
            oldest = next(iter(self._under_way.values()))
            if now - oldest.began_s < ANSWER_S_MAX:
                break
            self.late += 1
            self._end(oldest)

    def _go_on(self, login: Login) -> None:
        if login.go_on():
            self.refused += 1
            self._end(login)

    def _end(self, login: Login) -> None:
        fd = login.sock.fileno()
        self._epoll.unregister(fd)
        del self._under_way[fd]
        login.sock.close()


def main() -> None:
    print(json.dumps(Storm(json.loads(sys.stdin.readline())).run()), flush=True)


if __name__ == "__main__":
    main()
