"""Profiles: sets of settings that a person gave a name, in the person's own folder.

`$XDG_CONFIG_HOME/penstock` (`~/.config/penstock`) holds `profiles/NAME.properties`, one file per
profile, and `profile`, which names the one in use. Folders have mode 0700, files 0600.

Invariants: a name cannot leave the folder. A file is replaced as a whole. Where the environment
names no home there are no profiles. Values are stored as they are given: `given.py` checks them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from penstock.base.private_files import make_private_folder, write_private
from penstock.config.load import read_properties
from penstock.config.properties import property_line
from penstock.config.table import ConfigError
from penstock.kafka.errors import SettingError

NAME_CHARS_MAX: Final = 64
_NAME: Final = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{NAME_CHARS_MAX - 1}}}")
_END: Final = ".properties"


class Profiles:
    """Those of one person."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "profiles"
        self._used_path = folder / "profile"

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Profiles | None:
        """Those of the person whose environment it is, None where it names no home."""
        config, home = environment.get("XDG_CONFIG_HOME", ""), environment.get("HOME")
        if Path(config).is_absolute():  # as that standard wants it; any other is passed over
            return cls(Path(config) / "penstock")
        return cls(Path(home) / ".config" / "penstock") if home else None

    def names(self) -> list[str]:
        found = (path.name.removesuffix(_END) for path in self._folder.glob(f"*{_END}"))
        return sorted(name for name in found if _NAME.fullmatch(name))

    def path(self, name: str) -> Path:
        """The file of a profile, which need not be there."""
        if not _NAME.fullmatch(name):
            raise SettingError(
                f"{name!r} cannot be the name of a profile: use up to {NAME_CHARS_MAX} letters,"
                " digits and . _ -, a letter or digit first"
            )
        return self._folder / f"{name}{_END}"

    def existing(self, name: str) -> Path:
        """The file of a profile that is there."""
        path = self.path(name)
        if not path.is_file():
            known = ", ".join(self.names()) or "none"
            raise SettingError(
                f"there is no profile {name} (known: {known}): make it with `penstock profile set"
                f" {name}`"
            )
        return path

    def used(self) -> str | None:
        """The name of the one in use; None also where the home cannot be read, as in a container
        that runs as somebody else.
        """
        try:
            return self._used_path.read_text(encoding="utf-8").strip() or None
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return None

    def read(self, name: str) -> dict[str, str]:
        try:
            return read_properties(self.existing(name)).texts
        except ConfigError as e:
            raise SettingError(f"profile {name}: {e}") from None

    def write(self, name: str, settings: Mapping[str, str]) -> None:
        path = self.path(name)
        make_private_folder(self._folder.parent)
        make_private_folder(self._folder)
        lines = [property_line(key, value) for key, value in sorted(settings.items())]
        write_private(path, "".join(lines))

    def use(self, name: str | None) -> None:
        """Has `name` count where no other is named; None: none does."""
        if name is None:
            self._used_path.unlink(missing_ok=True)
            return
        self.existing(name)
        write_private(self._used_path, f"{name}\n")

    def delete(self, name: str) -> None:
        self.existing(name).unlink()
        if self.used() == name:
            self.use(None)
