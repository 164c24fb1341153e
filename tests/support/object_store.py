"""A server that speaks S3, for tables on object stores: moto's, as a process of its own."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyarrow.fs import S3FileSystem

from .process import free_port
from .waiting import CALL_SECONDS_MAX, eventually

BUCKET = "lake"


@contextmanager
def s3_server() -> Iterator[dict[str, str]]:
    """The environment by which clients find the server; there is one bucket, `BUCKET`."""
    port = free_port()
    argv = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            eventually(lambda: server.poll() is not None or _answers(port), CALL_SECONDS_MAX)
            S3FileSystem(
                access_key="key",
                secret_key="secret",  # any will do
                endpoint_override=f"127.0.0.1:{port}",
                scheme="http",
                region="us-east-1",
                allow_bucket_creation=True,
            ).create_dir(BUCKET)
            yield {
                "AWS_ACCESS_KEY_ID": "key",
                "AWS_SECRET_ACCESS_KEY": "secret",
                "AWS_REGION": "us-east-1",
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            }
        finally:
            server.kill()


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def use(environment: dict[str, str], patch: pytest.MonkeyPatch) -> None:
    for name, value in environment.items():
        patch.setenv(name, value)
