"""KEKs that the node itself is given, by a file or by its environment.

Both are the same text: `ID:VERSION=KEY` entries between blanks or in lines, KEY being 32 bytes in
base64; what follows a `#` is a comment. A data key is wrapped by AES-256-GCM, id and version being
authenticated with it.

A file is read again when it has changed, so that a new version needs no restart. One that everybody
on the machine may read is refused. Nothing of a text is shown in an error but ids and versions.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Final

from penstock.config.log_config import KEY_ID_PATTERN
from penstock.keys.cipher import aes_gcm, not_authentic
from penstock.keys.provider import (
    SECRET_BYTES,
    KeyUnavailable,
    Unwrapped,
    WrappedKey,
    check_key_id,
)

VARIABLE: Final = "PENSTOCK_ENCRYPTION_KEYS"
NONCE_BYTES: Final = 12
FILE_BYTES_MAX: Final = 1024 * 1024
_ENTRY: Final = re.compile(rf"({KEY_ID_PATTERN}):([1-9][0-9]{{0,8}})=([A-Za-z0-9+/]{{43}}=)")
_OTHERS_MAY_READ: Final = 0o007


def parse_keys(text: str, where: str) -> dict[str, dict[int, bytes]]:
    """The keys of a text, by id and version."""
    keys: dict[str, dict[int, bytes]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        for entry in line.partition("#")[0].split():
            found = _ENTRY.fullmatch(entry)
            if found is None:
                raise KeyUnavailable(
                    f"{where} has no key in line {number}: write ID:VERSION=KEY, KEY being 32 "
                    "bytes in base64 (`penstock encryption new-key` does)"
                )
            versions = keys.setdefault(found[1], {})
            if int(found[2]) in versions:
                raise KeyUnavailable(f"{where} has version {found[2]} of {found[1]!r} twice")
            versions[int(found[2])] = _decoded(found[3], where, number)
    return keys


def _decoded(text: str, where: str, number: int) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise KeyUnavailable(f"{where} has no base64 in line {number}") from None


def key_entry(key_id: str, version: int, secret: bytes) -> str:
    return f"{key_id}:{version}={base64.b64encode(secret).decode()}"


class LocalKeys:
    """KEKs in memory. `read` gives them; called anew before each use."""

    is_local = True

    def __init__(
        self, name: str, where: str, read: Callable[[], Mapping[str, Mapping[int, bytes]]]
    ) -> None:
        self.name = name
        self.where = where
        self._read = read

    def latest_version(self, key_id: str) -> int:
        versions = self._read().get(check_key_id(key_id))
        if not versions:
            raise KeyUnavailable(
                f"there is no key {key_id!r} in {self.where}: add one, on every node"
            )
        return max(versions)

    def wrap(self, key_id: str, secrets: Sequence[bytes]) -> list[WrappedKey]:
        version = self.latest_version(key_id)
        cipher = aes_gcm(self._read()[key_id][version])
        context = _context(key_id, version)
        wrapped = []
        for secret in secrets:
            nonce = os.urandom(NONCE_BYTES)
            sealed = nonce + cipher.encrypt(nonce, secret, context)
            wrapped.append(WrappedKey(key_id, version, sealed))
        return wrapped

    def unwrap(self, keys: Sequence[WrappedKey]) -> list[Unwrapped]:
        return [self._unwrap(key) for key in keys]

    def _unwrap(self, key: WrappedKey) -> Unwrapped:
        try:
            kek = self._read().get(key.key_id, {}).get(key.version)
        except KeyUnavailable as e:
            return e
        if kek is None:
            return KeyUnavailable(
                f"{key} is not in {self.where}: put it back; nothing was changed or removed"
            )
        nonce, sealed = key.wrapped[:NONCE_BYTES], key.wrapped[NONCE_BYTES:]
        try:
            secret: bytes = aes_gcm(kek).decrypt(nonce, sealed, _context(key.key_id, key.version))
        except (not_authentic(), ValueError):
            return KeyUnavailable(
                f"{key} in {self.where} is not the key that this was encrypted with: put the right "
                "one back; nothing was changed or removed"
            )
        return secret

    def new_version(self, key_id: str) -> int:
        raise KeyUnavailable(
            f"{self.where} cannot be changed from here: add an entry `{key_id}:VERSION=KEY`, KEY "
            "from `openssl rand -base64 32`, where it is set, and start the node again"
        )


def _context(key_id: str, version: int) -> bytes:
    return f"penstock data key of {key_id}:{version}".encode()


class EnvironmentKeys(LocalKeys):
    """KEKs in the environment of the process."""

    def __init__(self, variable: str = VARIABLE) -> None:
        keys = parse_keys(os.environ.get(variable, ""), f"the environment variable {variable}")
        super().__init__("environment", f"the environment variable {variable}", lambda: keys)


class FileKeys(LocalKeys):
    """KEKs in a file."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = Lock()
        self._stamp: tuple[int, int, int] | None = None
        self._keys: dict[str, dict[int, bytes]] = {}
        super().__init__("file", f"the key file {path}", self._current)

    def _current(self) -> dict[str, dict[int, bytes]]:
        """The keys of the file as it is now."""
        try:
            stat = os.stat(self._path)
            with self._lock:
                stamp = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
                if stamp != self._stamp:
                    self._keys, self._stamp = self._load(stat), stamp
                return self._keys
        except (OSError, UnicodeDecodeError) as e:
            why = e.strerror if isinstance(e, OSError) else "it is no text"
            raise KeyUnavailable(f"{self.where} cannot be read: {why}") from None

    def _load(self, stat: os.stat_result) -> dict[str, dict[int, bytes]]:
        if stat.st_mode & _OTHERS_MAY_READ:
            raise KeyUnavailable(f"{self.where} is open to everybody on this machine: chmod 600")
        if stat.st_size > FILE_BYTES_MAX:
            raise KeyUnavailable(f"{self.where} has more than {FILE_BYTES_MAX} bytes")
        with open(self._path, encoding="utf-8") as file:
            return parse_keys(file.read(), self.where)

    def new_version(self, key_id: str) -> int:
        """Append it; a crash leaves the file as it was or as it is to be."""
        keys = self._current() if os.path.exists(self._path) else {}
        version = max(keys.get(check_key_id(key_id), {0: b""})) + 1
        text = ""
        if keys:
            with open(self._path, encoding="utf-8") as file:
                text = file.read()
        if text and not text.endswith("\n"):
            text += "\n"
        text += key_entry(key_id, version, os.urandom(SECRET_BYTES)) + "\n"
        try:
            _replace_private(self._path, text.encode())
        except OSError as e:
            raise KeyUnavailable(f"{self.where} cannot be written: {e.strerror}") from None
        return version


def _replace_private(path: str, data: bytes) -> None:
    """Replace a file that only its owner may read."""
    new = path + ".new"
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(fd, 0o600)
        os.write(fd, data)
        os.fsync(fd)
    finally:
        os.close(fd)
    os.replace(new, path)
    directory = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
