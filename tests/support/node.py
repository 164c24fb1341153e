"""A Penstock node as a child process, started as a user starts it."""

from __future__ import annotations

import re
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from .process import BrokerProcess, free_port

_READY = re.compile(
    r"^ready: kafka=(?P<kafka>\S+) http=(?P<http>\S+) build=\w+ data=(?P<data>.+)$", re.MULTILINE
)
_SAMPLE = re.compile(
    r"^(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)", re.MULTILINE
)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class NodeProcess(BrokerProcess):
    """`penstock serve` with its data below `root`."""

    KIND = "penstock"

    def __init__(self, root: Path, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(root, settings)
        self.http_host, self.http_port = self.host, free_port()

    def command(self) -> list[str]:
        argv = [sys.executable, "-m", "penstock.cli", "serve", "--data-dir", str(self.data_dir)]
        argv += ["--listen", self.bootstrap, "--http", f"{self.http_host}:{self.http_port}"]
        for name, value in self.settings.items():
            argv += ["--set", f"{name}={value}"]
        return argv

    def is_ready(self) -> bool:
        return _READY.search(self.out_text()) is not None

    def ready_line(self) -> dict[str, str]:
        """The fields of the line that the node printed when it was ready."""
        found = _READY.search(self.out_text())
        assert found is not None, "no ready line"
        return found.groupdict()

    def http_get(self, path: str) -> tuple[int, str]:
        """Status and body of one GET."""
        url = f"http://{self.http_host}:{self.http_port}{path}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metrics(self) -> list[tuple[str, dict[str, str], float]]:
        """Every sample of `/metrics` as (name, labels, value)."""
        status, text = self.http_get("/metrics")
        assert status == 200, f"/metrics answered {status}"
        return [
            (m["name"], dict(_LABEL.findall(m["labels"] or "")), float(m["value"]))
            for m in _SAMPLE.finditer(text)
        ]

    def metric(self, name: str, **labels: str) -> float:
        """The sum of the samples of `name` that carry `labels`."""
        return sum(
            value
            for sample, has, value in self.metrics()
            if sample == name and labels.items() <= has.items()
        )
