"""The users that a new cluster begins with: SCRAM credentials in the first batch of its metadata.

`penstock.founding.scram.file` names a file with a user in each line, as `kafka-storage format
--add-scram` takes them: `SCRAM-SHA-512=[name=admin,password=...]`, with `iterations` where they
are not to be 4096. It is read by the node that founds a cluster, once, and never by others. What
is refused is named by its line; a line is never shown, since it has a password in it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from penstock.auth import scram
from penstock.base.clock import Rng
from penstock.base.errors import ApiError, ErrorCode
from penstock.config.table import ConfigError
from penstock.metadata.records import MetadataRecord
from penstock.metadata.scram_control import MECHANISMS
from penstock.metadata.security_records import UserScramCredentialRecord

SETTING: Final = "penstock.founding.scram.file"
_NUMBERS: Final = {name: number for number, name in MECHANISMS.items()}
_LINE: Final = re.compile(r"([A-Z0-9-]+)=\[(.*)\]")
_OPTION: Final = re.compile(r'\s*(\w+)=(?:"([^"]*)"|([^",]*))\s*(?:,|$)')
_KNOWN: Final = frozenset({"name", "password", "iterations"})


class _User(NamedTuple):
    mechanism: str
    name: str
    password: str
    iterations: int


class FoundingUsers:
    def __init__(self, path: str, rng: Rng) -> None:
        self._path = path
        self._rng = rng

    def check(self) -> None:
        """`ConfigError` where the file cannot be used."""
        self._read()

    async def records(self) -> list[MetadataRecord]:
        """Called when the cluster gets its first records."""
        try:
            return await asyncio.to_thread(self._records)
        except ConfigError as e:
            raise ApiError(ErrorCode.INVALID_CONFIG, str(e)) from e

    def _records(self) -> list[MetadataRecord]:
        """In a worker thread: each takes some milliseconds."""
        return [self._record(user) for user in self._read()]

    def _record(self, user: _User) -> UserScramCredentialRecord:
        salt = self._rng.uuid() + self._rng.uuid()
        made = scram.credential_of(
            scram.HASHES[user.mechanism], user.password.encode(), salt, user.iterations
        )
        return UserScramCredentialRecord(
            name=user.name,
            mechanism=_NUMBERS[user.mechanism],
            salt=made.salt,
            stored_key=made.stored_key,
            server_key=made.server_key,
            iterations=made.iterations,
        )

    def _read(self) -> list[_User]:
        try:
            with open(self._path, encoding="utf-8") as file:
                lines = file.read().splitlines()
        except (OSError, UnicodeDecodeError) as e:
            reason = getattr(e, "strerror", None) or e
            raise ConfigError(f"{SETTING}: {self._path} cannot be read: {reason}") from None
        found: dict[tuple[str, str], _User] = {}
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.startswith("#"):
                continue
            try:
                user = _user(line.strip())
                if (user.mechanism, user.name) in found:
                    raise ValueError("it names a user that an earlier line names")
            except ValueError as e:
                raise ConfigError(f"{SETTING}: line {number} of {self._path}: {e}") from None
            found[user.mechanism, user.name] = user
        return list(found.values())


def _user(line: str) -> _User:
    """`ValueError`, which shows nothing of the line, where that is none."""
    whole = _LINE.fullmatch(line)
    if whole is None or whole[1] not in _NUMBERS:
        raise ValueError(
            "it must be MECHANISM=[name=NAME,password=PASSWORD], the mechanism one of "
            + ", ".join(_NUMBERS)
        )
    options = dict(_options(whole[2]))
    name, password = options.get("name"), options.get("password")
    if not name or not password or not options.keys() <= _KNOWN:
        raise ValueError("it needs a name and a password, and may have iterations")
    text = options.get("iterations", str(scram.ITERATIONS_MIN))
    low, high = scram.ITERATIONS_MIN, scram.ITERATIONS_CREATED_MAX
    if not text.isdecimal() or not low <= int(text) <= high:
        raise ValueError(f"iterations must be between {low} and {high}")
    return _User(whole[1], name, password, int(text))


def _options(text: str) -> Iterator[tuple[str, str]]:
    position = 0
    while position < len(text):
        option = _OPTION.match(text, position)
        if option is None:
            raise ValueError("what is in its brackets must be NAME=VALUE, with commas in between")
        yield option[1], option[2] if option[2] is not None else option[3]
        position = option.end()
