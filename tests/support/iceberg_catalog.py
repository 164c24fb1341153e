"""Apache Iceberg's own REST catalog for tests, as a process; its tables lie in a folder.

Its jars come by `python tools/fetch_java.py`, Hadoop's with PySpark.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from .process import free_port
from .reference import JVM_OPTIONS
from .waiting import eventually

LIBS = Path(__file__).resolve().parents[2] / "build" / "iceberg-catalog-libs"
SERVER = "org.apache.iceberg.rest.RESTCatalogServer"
START_SECONDS_MAX = 120.0


@contextmanager
def rest_catalog(warehouse: Path) -> Iterator[str]:
    """The address of a catalog."""
    if shutil.which("java") is None or not any(LIBS.glob("iceberg-open-api-*.jar")):
        pytest.skip(f"no Java, or no jars of Iceberg's REST catalog in {LIBS}: run `make java`")
    port = free_port()
    hadoop = sorted((Path(pyspark.__file__).parent / "jars").glob("hadoop-client-*.jar"))
    path = os.pathsep.join([f"{LIBS}/*", *map(str, hadoop)])
    place = {"CATALOG_REST_PORT": str(port), "CATALOG_WAREHOUSE": str(warehouse)}
    address = f"http://127.0.0.1:{port}"
    argv = ["java", "-Xmx256m", *JVM_OPTIONS, "-cp", path, SERVER]
    log = warehouse.with_suffix(".log")
    with (
        log.open("wb") as out,
        subprocess.Popen(argv, env=os.environ | place, stdout=out, stderr=out) as server,
    ):
        try:
            eventually(lambda: server.poll() is not None or _answers(address), START_SECONDS_MAX)
            assert server.poll() is None, log.read_text()
            yield address
        finally:
            server.kill()


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/v1/config", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
