"""Files and folders that nobody else can read."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from penstock.base.private_files import make_private_folder, write_private


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_file_is_private_whatever_it_was(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("before")
    file.chmod(0o644)
    write_private(file, "zwölf\n")
    assert file.read_text(encoding="utf-8") == "zwölf\n"
    assert mode(file) == 0o600
    assert os.listdir(tmp_path) == ["file"]


def test_what_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "file"
    write_private(file, "before")
    with pytest.raises(UnicodeEncodeError):
        write_private(file, "\ud800")
    assert file.read_text() == "before"
    assert os.listdir(tmp_path) == ["file"]


def test_a_folder_is_private(tmp_path: Path) -> None:
    make_private_folder(tmp_path / "a" / "b")
    assert mode(tmp_path / "a" / "b") == 0o700
    make_private_folder(tmp_path / "a" / "b")
