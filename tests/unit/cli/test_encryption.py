"""`penstock encryption` on the folder of a node, and what it says of keys."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.base.ids import TopicPartition
from penstock.cli.app import run
from penstock.config.log_config import LogConfig
from penstock.keys.data_keys import DataKeys
from penstock.keys.local import FileKeys
from penstock.log.environment import LogEnvironment
from penstock.log.log import Batch
from penstock.log.manager import LogManager
from penstock.wire.records import Record, build_batch, parse_header
from support.encrypted import key_file
from support.keys import KEY_ID


@pytest.fixture
def options(tmp_path: Path) -> list[str]:
    """Of a stopped node with two encrypted segments."""
    settings = key_file(tmp_path / "keys")
    keys = DataKeys(FileKeys(str(tmp_path / "keys")))
    config = LogConfig(penstock_encryption_key_id=KEY_ID)
    manager = LogManager(str(tmp_path / "data"), lambda _: config, LogEnvironment(keys=keys))
    log = manager.get_or_create(TopicPartition("t", 0), b"t" * 16)
    for _ in range(2):
        data = build_batch([Record(0, 1, None, b"v")])
        log.append([Batch(parse_header(data), data)], 0, 1)
        log.roll()
    manager.close()
    path = tmp_path / "node.properties"
    lines = [f"{name}={value}" for name, value in settings.items()]
    path.write_text("\n".join([*lines, f"log.dirs={tmp_path / 'data'}"]) + "\n")
    return ["--config", str(path), "--format", "json"]


def said(capsys: pytest.CaptureFixture[str], *argv: str, code: int = 0) -> object:
    assert run(["encryption", *argv]) == code
    return json.loads(capsys.readouterr().out)


def test_a_rotation_of_a_stopped_node(
    options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"key": KEY_ID, "version": 1, "files": 2, "state": "newest"}
    assert said(capsys, "status", *options) == [row]
    assert said(capsys, "new-key", KEY_ID, *options) == {"key": KEY_ID, "version": 2}
    assert said(capsys, "status", *options) == [{**row, "state": "older"}]
    assert said(capsys, "rewrap", *options) == {"rewrapped": 2}
    assert said(capsys, "status", *options) == [{**row, "version": 2}]
    assert said(capsys, "rewrap", *options) == {"rewrapped": 0}


def test_a_lost_key_is_told(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = (tmp_path / "keys").read_text().split("=", 1)[1].strip()
    key_file(tmp_path / "keys", 2)
    [row] = said(capsys, "status", *options, code=3)  # type: ignore[misc]
    assert row["state"].startswith("cannot be had: key id 'orders', version 1 is not in")
    assert run(["encryption", "rewrap", *options]) == 1
    told = capsys.readouterr().err
    assert "version 1 is not in the key file" in told
    assert secret not in told


def test_without_a_provider_nobody_is_asked(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--data-dir", str(tmp_path / "data"), "--format", "json"]
    [row] = said(capsys, "status", *where)  # type: ignore[misc]
    assert row["state"] == "not asked"
    assert run(["encryption", "rewrap", *where]) == 2
    assert "name no provider" in capsys.readouterr().err
    assert run(["encryption", "status", "--data-dir", str(tmp_path / "none")]) == 1
    assert run(["encryption", "new-key", "a/b", *options]) == 1
    assert "cannot be the id of a key" in capsys.readouterr().err


def test_a_node_that_runs_is_left_alone(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manager = LogManager(str(tmp_path / "data"), lambda _: LogConfig())
    assert run(["encryption", "rewrap", *options]) == 1
    assert "in use by another process" in capsys.readouterr().err
    manager.close()
