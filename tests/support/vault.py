"""A server that speaks the API of Vault's transit engine, over loopback, with real AES-GCM."""

from __future__ import annotations

import base64
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

TOKEN = "s.a-token-of-vault"


class Transit:
    """The engine: keys with versions; `down` has it answer as a sealed Vault does."""

    def __init__(self) -> None:
        self.keys: dict[str, dict[int, bytes]] = {}
        self.down = False
        self.calls: list[str] = []
        self.namespaces: set[str | None] = set()
        self.lock = threading.Lock()

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        with self.lock:
            self.calls.append(f"{method} {path}")
            if self.down:
                return 503, {"errors": ["Vault is sealed"]}
            parts = path.split("/")
            if parts[:3] != ["", "v1", "transit"] or len(parts) < 5:
                return 404, {"errors": []}
            verb, name, more = parts[3], parts[4], parts[5:]
            if verb == "keys" and method == "POST" and not more:
                self.keys.setdefault(name, {1: os.urandom(32)})
                return 204, None
            versions = self.keys.get(name)
            if versions is None:
                return 404 if verb == "keys" else 400, {"errors": ["encryption key not found"]}
            if verb == "keys" and more == ["rotate"]:
                versions[max(versions) + 1] = os.urandom(32)
                return 204, None
            if verb == "keys":
                return 200, {"data": {"latest_version": max(versions)}}
            work = {"encrypt": self._encrypt, "decrypt": self._decrypt}[verb]
            results = [work(versions, item) for item in body["batch_input"]]
            failed = any("error" in result for result in results)
            return 400 if failed else 200, {"data": {"batch_results": results}}

    @staticmethod
    def _encrypt(versions: dict[int, bytes], item: dict[str, str]) -> dict[str, str]:
        version, nonce = max(versions), os.urandom(12)
        plain = base64.b64decode(item["plaintext"])
        sealed = nonce + AESGCM(versions[version]).encrypt(nonce, plain, None)
        return {"ciphertext": f"vault:v{version}:{base64.b64encode(sealed).decode()}"}

    @staticmethod
    def _decrypt(versions: dict[int, bytes], item: dict[str, str]) -> dict[str, str]:
        _, version, text = item["ciphertext"].split(":")
        sealed = base64.b64decode(text)
        try:
            plain = AESGCM(versions[int(version[1:])]).decrypt(sealed[:12], sealed[12:], None)
        except (KeyError, InvalidTag):
            return {"error": "cipher: message authentication failed"}
        return {"plaintext": base64.b64encode(plain).decode()}


@contextmanager
def vault() -> Iterator[tuple[str, Transit]]:
    """Its URL and its engine."""
    transit = Transit()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer({})

        def do_POST(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            self._answer(json.loads(self.rfile.read(size) or b"{}"))

        def _answer(self, body: dict[str, Any]) -> None:
            transit.namespaces.add(self.headers.get("X-Vault-Namespace"))
            if self.headers.get("X-Vault-Token") != TOKEN:
                status, answer = 403, {"errors": ["permission denied"]}
            else:
                status, answer = transit.answer(self.command, self.path, body)
            data = b"" if answer is None else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", transit
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
