"""A PostgreSQL server for one test: its own folder, its own port, nothing left behind.

The server refuses to run as root, so a test that is root runs it as the user `postgres`, whom the
package of the server has made. Without a server, `missing()` says why.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from .process import free_port
from .waiting import eventually

USER = "postgres"
STOP_SECONDS_MAX = 30


def _program(name: str) -> str | None:
    """Debian keeps the server's programs off the PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(found[-1]) if found else shutil.which(name)


def missing() -> str | None:
    """Why no PostgreSQL server can be started here, or None when one can."""
    if _program("initdb") is None or _program("postgres") is None:
        return "there is no PostgreSQL server here (Debian's package: postgresql)"
    return None


@contextmanager
def postgresql() -> Iterator[str]:
    """A server that runs meanwhile; its URL."""
    initdb, server = _program("initdb"), _program("postgres")
    assert initdb is not None
    assert server is not None
    user = USER if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="penstock-postgresql-"))
    if user is not None:
        shutil.chown(folder, user)
    data, port = folder / "data", free_port()
    process = None
    try:
        prepare = [initdb, "-D", str(data), "-U", USER, "-A", "trust", "-N"]
        subprocess.run(prepare, user=user, cwd=folder, check=True, capture_output=True)
        settings = ["-p", str(port), "-c", "listen_addresses=127.0.0.1", "-k", str(folder)]
        with (folder / "log").open("wb") as log:
            command = [server, "-D", str(data), *settings]
            process = subprocess.Popen(command, user=user, cwd=folder, stdout=log, stderr=log)
        url = f"postgresql://{USER}@127.0.0.1:{port}/{USER}"
        eventually(lambda: _answers(url))
        yield url
    finally:
        if process is not None:
            process.send_signal(signal.SIGINT)  # at SIGTERM it would wait for its clients to go
            process.wait(STOP_SECONDS_MAX)
        shutil.rmtree(folder)


def _answers(url: str) -> bool:
    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError:
        return False
    return True
