from __future__ import annotations

from pathlib import Path

import pytest

from penstock.config.broker_config import broker_config
from penstock.config.load import load, load_settings
from penstock.config.table import ConfigError


def test_nested_tables_flatten_and_arguments_win(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text(
        '"node.id" = 3\n'
        'listeners = ["A://h:1", "B://h:2"]\n'
        "[log]\n"
        'dir = "data"\n'
        "retention.hours = 48\n"
        "preallocate = true\n"
        "cleaner.min.cleanable.ratio = 0.25\n"
    )
    assert load_settings(file, ["log.dir=other", "num.partitions = 4"]) == {
        "node.id": "3",
        "listeners": "A://h:1,B://h:2",
        "log.dir": "other",
        "log.retention.hours": "48",
        "log.preallocate": "true",
        "log.cleaner.min.cleanable.ratio": "0.25",
        "num.partitions": " 4",
    }


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("a = ", "is not TOML"),
        ('"log.dir" = "a"\n[log]\ndir = "b"\n', "sets log.dir twice"),
        ("day = 2020-01-01\n", "day cannot be 2020-01-01"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, content: str, sentence: str) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text(content)
    with pytest.raises(ConfigError, match=sentence):
        load_settings(file)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone.toml cannot be read: No such file"):
        load_settings(tmp_path / "gone.toml")


@pytest.mark.parametrize("argument", ["num.partitions", "=3", ""])
def test_an_argument_needs_key_and_value(argument: str) -> None:
    with pytest.raises(ConfigError, match="write KEY=VALUE"):
        load_settings(None, [argument])


def test_a_file_of_kafkas_is_read_as_kafka_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "# The id.\nnode.id=3\nlisteners=A://h:1,\\\n    B://h:2\n"
        "log.dir : \\u0064ata\nnum.partitions=2\nnum.partitions=5\n"
    )
    assert load_settings(file, ["log.dir=other"]) == {
        "node.id": "3",
        "listeners": "A://h:1,B://h:2",
        "log.dir": "other",
        "num.partitions": "5",
    }


@pytest.mark.parametrize(
    ("line", "arguments", "said"),
    [
        ("num.partitions=none", [], "{file}, line 3: num.partitions cannot be 'none': it must be"),
        ("num.partition=3", [], "{file}, line 3: there is no broker setting 'num.partition'; did"),
        ("broker.id=8", [], "{file}, line 2: node.id (7) and broker.id (8) are the same setting"),
        ("log.dirs=a,b", [], "{file}, line 3: log.dirs cannot be 'a,b': it must be one folder"),
        ("process.roles=controller", [], "{file}, line 3: process.roles cannot be 'controller'"),
        ("log.dirs=a,b", ["log.dirs=c,d"], "log.dirs cannot be 'c,d': it must be one folder"),
    ],
)
def test_a_refusal_names_the_line(
    tmp_path: Path, line: str, arguments: list[str], said: str
) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"# A node.\nnode.id=7\n{line}\n")
    loaded = load(file, arguments)
    with pytest.raises(ConfigError) as refused:
        broker_config(loaded.texts)
    assert f"{loaded.place(refused.value)}{refused.value}".startswith(said.format(file=file))


def test_a_file_of_properties_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone.properties cannot be read: No such file"):
        load_settings(tmp_path / "gone.properties")
    file = tmp_path / "server.properties"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="no text in UTF-8"):
        load_settings(file)
