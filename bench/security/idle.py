"""What connections cost that have said hello and then keep quiet: memory, with TLS and without."""

from __future__ import annotations

import socket
import ssl
import time
from contextlib import ExitStack
from pathlib import Path

from bench.peers.figures import Results
from bench.peers.rounds import Kind, Progress
from bench.peers.server import Server
from bench.peers.tls import context
from bench.peers.workloads import Metric, Workload

from penstock.cli.bench.requests import frame
from penstock.node.descriptors import divided
from penstock.wire.apis import ApiKey
from penstock.wire.messages.api_versions import ApiVersionsRequest

from .servers import PenstockPlain, PenstockTls, authority

COUNTS = (2_000, 7_000)
LISTENERS = 2
"""Of the node: each may have an equal part of its descriptors."""
SETTLE_S = 2.0
CONNECT_S_MAX = 30.0
RECEIVE_BYTES = 64 * 1024
SPARE_FILES = 200
EACH = Metric("kb_each", "memory of each", "KB", False)
WHOLE = Metric("mb", "memory of the node", "MB", False)
KINDS: tuple[Kind, ...] = (PenstockTls, PenstockPlain)
SECTION = "idle connections, TLS beside none"
HELLO = bytes(frame(ApiKey.API_VERSIONS, ApiVersionsRequest(), 0))


def workload(count: int) -> Workload:
    return Workload(SECTION, f"{count:,} idle connections", (EACH, WHOLE), copies_in_title=True)


STEPS = len(KINDS) * len(COUNTS)


def measure(folder: Path, files: int, results: Results, progress: Progress) -> None:
    """Each kind with rising counts, as far as this process and the node may open `files`."""
    allowed = min(files - SPARE_FILES, divided(files).connections // LISTENERS)
    for kind in KINDS:
        server = kind(folder / f"idle-{KINDS.index(kind)}")
        try:
            server.start()
            time.sleep(SETTLE_S)
            empty = server.rss_bytes()
            with ExitStack() as open_ones:
                held = 0
                for count in COUNTS:
                    progress.step(f"{count:,} idle connections, {kind.name}")
                    if count > allowed:
                        why = f"a process may open {files:,} files here: {allowed:,} connections"
                        results.add(workload(count).name, kind.name, 1, cannot=why)
                        continue
                    for _ in range(count - held):
                        open_ones.enter_context(_greeted(server))
                    held = count
                    time.sleep(SETTLE_S)
                    used = server.rss_bytes()
                    figures = {"kb_each": (used - empty) / count / 1e3, "mb": used / 1e6}
                    results.add(workload(count).name, kind.name, 1, figures=figures)
        finally:
            server.stop()


def _greeted(server: Server) -> socket.socket:
    """A connection that was answered once. Encrypted by OpenSSL itself: a socket of the load would
    have buffers for each.
    """
    sock = socket.create_connection((server.host, server.load_port), CONNECT_S_MAX)
    if server.load_port != server.port:
        sock = _context().wrap_socket(sock, server_hostname=server.host)
    sock.sendall(HELLO)
    sock.recv(RECEIVE_BYTES)
    return sock


def _context() -> ssl.SSLContext:
    return context(authority().pem)
