"""Secrets of a locked cluster, and every place where they could be read by somebody else.

Commands of every noun run by one profile, a pipeline among them with its Spark; meanwhile the
arguments of all processes are looked at, and then what commands and nodes have written, what is
described, the metrics, and the pipeline's files.
"""

from __future__ import annotations

import re
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from support.process import free_ports

from .conftest import Ended, run_with
from .dev_cluster import running
from .test_dev_secure import client_settings, passwords

pytestmark = [pytest.mark.penstock_only, pytest.mark.xdist_group("security")]

CANARY = "canary-of-ann-6b1f"
TOKEN_KEY = "canary-of-tokens-9d0c"
PROFILE = {"PENSTOCK_PROFILE": "canary"}
SPARK_S_MAX = 150.0
"""Spark has to start, beside other tests."""
BENCH = ("--seconds", "0.3", "--json")
COMMANDS = (
    ("topic", "create", "t", "-p", "2"),
    ("topic", "produce", "t"),
    ("topic", "consume", "t"),
    ("group", "seek", "g", "--topic", "t", "--to", "latest"),
    ("group", "list"),
    ("config", "describe", "broker:1", "--all"),
    ("cluster", "status"),
    ("txn", "list"),
    ("acl", "create", "--principal", "User:ann", "--allow", "--operation", "read", "--topic", "t"),
    ("acl", "list"),
    ("role", "create", "readers", "--member", "User:ann"),
    ("user", "create", "ann"),
    ("user", "list"),
    ("doctor",),
    ("bench", "produce", "--client", "raw", *BENCH),
    ("bench", "produce", "--client", "confluent", *BENCH),
)


@contextmanager
def arguments() -> Iterator[list[str]]:
    """The command lines of all processes of this machine, for as long as it lasts."""
    seen: set[str] = set()
    found: list[str] = []
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with suppress(OSError):
                    seen.add(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
            time.sleep(0.02)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        done.set()
        thread.join()
        found += seen


def pipeline(folder: Path) -> tuple[str, ...]:
    """A command that archives what was published before."""
    to = ("--to", str(folder / "table"), "--checkpoint", str(folder / "checkpoint"))
    return ("pipeline", "archive", "--topic", "t", *to, "--once", "--master", "local[1]")


def outputs(environment: dict[str, str], spark: Path) -> list[Ended]:
    ended = []
    for args in (*COMMANDS, pipeline(spark)):
        more = {"PENSTOCK_USER_PASSWORD": CANARY} if args[:2] == ("user", "create") else {}
        ended.append(run_with(environment | more, *args, stdin="a\nb\n", seconds_max=SPARK_S_MAX))
        assert ended[-1].code == 0, (args, ended[-1])
    wrong = {"PENSTOCK_X_SASL_USERNAME": "ann", "PENSTOCK_X_SASL_PASSWORD": CANARY + "-wrong"}
    ended.append(run_with(environment | wrong, "topic", "list"))
    assert ended[-1].code == 1
    return ended


@pytest.mark.timeout(240)
def test_a_secret_is_nowhere_to_be_read(tmp_path: Path) -> None:
    root = tmp_path / "dev"
    port = free_ports(1)
    with running(root, "--nodes", "1", "--secure", "--base-port", str(port)) as dev:
        dev.wait_ready()
        assert dev.stop() == 0
    file = root / "node-1" / "penstock.toml"
    file.write_text(f'"delegation.token.secret.key" = "{TOKEN_KEY}"\n' + file.read_text())
    with running(root) as dev, arguments() as seen:
        dev.wait_ready()
        spark = tmp_path / "spark"
        environment = {
            "XDG_CONFIG_HOME": str(tmp_path / "config"),
            "XDG_STATE_HOME": str(spark / "state"),
        }
        made = run_with(environment, "profile", "set", "canary", "--config", dev.config)
        assert made.code == 0, made
        ended = [made, *outputs(environment | PROFILE, spark)]
        ended.append(run_with(environment | PROFILE, "profile", "show", "canary"))
        text = file.read_text()
        http = re.search(r'"?penstock\.http\.listen"? *= *"([^"]+)"', text)
        assert http is not None
        metrics = urllib.request.urlopen(f"http://{http[1]}/metrics", timeout=10).read().decode()
        secrets = {*passwords(root), client_settings(Path(dev.config))["sasl.password"]}
        assert dev.stop() == 0
    secrets |= {CANARY, TOKEN_KEY}
    assert len(secrets) == 4
    places = {
        "arguments": "\n".join(seen),
        "commands": "\n".join(one.out + one.err for one in ended),
        "dev": dev.out() + dev.err(),
        "logs": "".join(log.read_text() for log in root.glob("node-*/penstock.log")),
        "metrics": metrics,
        "pipeline": b"".join(p.read_bytes() for p in spark.rglob("*") if p.is_file()).decode(
            errors="replace"
        ),
    }
    assert all(places.values())
    assert list((spark / "table").rglob("*.parquet")), "the pipeline has archived something"
    leaks = {(place, s[:6]) for place, text in places.items() for s in secrets if s in text}
    assert leaks == set()
    kept = [p for p in (root / "node-1").rglob("*.log") if CANARY.encode() in p.read_bytes()]
    assert kept == [], "the metadata has credentials, not passwords"
