from __future__ import annotations

from pathlib import Path

import pytest

from penstock.config.load import load_settings
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
