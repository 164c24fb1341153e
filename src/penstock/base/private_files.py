"""Files that hold secrets: nobody but their owner can read them, at no moment.

A file is replaced as a whole: who reads it sees the text before or the text after.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Final

FOLDER_MODE: Final = 0o700


def write_private(path: Path, text: str) -> None:
    """Puts `text` into the file, which has mode 0600 then."""
    # mkstemp gives the mode, and a name that nobody can have prepared.
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def make_private_folder(path: Path) -> None:
    """Makes the folder with mode 0700, and those above it, unless it is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=FOLDER_MODE, exist_ok=True)
