"""Nodes whose data is encrypted, and a look at what their files hold."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.keys.local import key_entry

from .keys import KEY_ID


def key_file(path: Path, *versions: int) -> dict[str, str]:
    """Write a file with these versions of the key; the settings of a node that has it and
    encrypts everything.
    """
    entries = [key_entry(KEY_ID, version, os.urandom(32)) for version in versions or (1,)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(0o600)
    path.write_text("\n".join(entries) + "\n")
    return {
        "penstock.encryption.provider": "file",
        "penstock.encryption.file": str(path),
        "penstock.encryption.key.id": KEY_ID,
    }


def files_with(folder: Path, text: bytes) -> list[str]:
    """The files below `folder` that hold `text`."""
    return [
        str(path.relative_to(folder))
        for path in sorted(folder.rglob("*"))
        if path.is_file() and text in path.read_bytes()
    ]
