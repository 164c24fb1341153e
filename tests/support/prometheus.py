"""A Prometheus server for one test, and promtool: own folder, own port, nothing left behind.

Without them, `missing()` says why.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .process import free_port
from .waiting import eventually

JOB = "penstock"
SCRAPE_INTERVAL = "500ms"
STOP_SECONDS_MAX = 30


def missing() -> str | None:
    """Why rules cannot be checked and loaded here, or None when they can."""
    if shutil.which("prometheus") is None or shutil.which("promtool") is None:
        return "there is no Prometheus here (Debian's package: prometheus)"
    return None


def promtool(*arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    """Runs it with `given` as its input."""
    return subprocess.run(
        ["promtool", *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


class Prometheus:
    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._url}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def get(self, path: str, **parameters: str) -> Any:
        """The data of an answer of its API; AssertionError with its sentence if it is an error."""
        url = f"{self._url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as e:
            raise AssertionError(f"{parameters}: {e.read().decode()}") from None

    def query(self, expression: str) -> list[Any]:
        """The series that an expression has now."""
        return list(self.get("query", query=expression)["result"])

    def rules(self) -> dict[str, Any]:
        """The alerting rules by name, with their health and state."""
        return {
            rule["name"]: rule for group in self.get("rules")["groups"] for rule in group["rules"]
        }


@contextmanager
def prometheus(
    folder: Path, target: str, rules: Path, way: Mapping[str, Any] | None = None
) -> Iterator[Prometheus]:
    """A server that scrapes `target` and evaluates `rules` meanwhile; `way` has what its
    configuration says of the scrape besides.
    """
    scrape = {"job_name": JOB, "static_configs": [{"targets": [target]}], **(way or {})}
    config = {
        "global": {"scrape_interval": SCRAPE_INTERVAL, "evaluation_interval": SCRAPE_INTERVAL},
        "rule_files": [str(rules)],
        "scrape_configs": [scrape],
    }
    path = folder / "prometheus.yml"
    path.write_text(json.dumps(config))  # which is YAML, too
    port = free_port()
    command = [
        "prometheus",
        f"--config.file={path}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        server = Prometheus(port)
        eventually(server.is_ready)
        yield server
    finally:
        process.terminate()
        process.wait(STOP_SECONDS_MAX)
