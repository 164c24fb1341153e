"""The server's machine of PLAIN (RFC 4616), which HTTP's Basic can use as well.

Duty: a name and a password against the SCRAM credential of the user, of either mechanism, or
against the passwords in the node's own settings.

Invariants: a message has exactly three parts, and the authorization id is empty or the user's name
(CVE-2017-12610). Hashing takes milliseconds, so it is handed out as work. It is done for every
login that is not in the cache, also for users that do not exist and for those in the settings, with
as many rounds, so that the time tells nothing about users. Nothing keeps a password: the cache and
the settings keep digests by a key of the node.

Limits: `MESSAGE_BYTES_MAX` for a message; the cache has `ENTRIES_MAX` users for `LIFETIME_MS` each.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from penstock.auth import scram
from penstock.auth.mechanism import Credentials, Done, Failed, Outcome, Work
from penstock.auth.scram import ScramCredential
from penstock.auth.scram_server import OTHER_AUTHORIZATION_ID, MadeUpCredentials

PLAIN: Final = "PLAIN"
MESSAGE_BYTES_MAX: Final = 16_384
LIFETIME_MS: Final = 300_000
ENTRIES_MAX: Final = 10_000
KEY_BYTES_MIN: Final = 16
WRONG: Final = "Authentication failed: the user name or the password is wrong"
_DIGEST: Final = "sha256"


class PlainError(Exception):
    """A message that is not one of PLAIN's, with a sentence for the client."""


class PlainLogin(NamedTuple):
    user: str
    password: bytes

    def __repr__(self) -> str:
        return f"PlainLogin({self.user!r}, ...)"


def parse_plain(message: bytes) -> PlainLogin:
    if len(message) > MESSAGE_BYTES_MAX:
        raise PlainError(f"the message of PLAIN has more than {MESSAGE_BYTES_MAX} bytes")
    parts = message.split(b"\0", 3)
    if len(parts) != 3:
        raise PlainError("the message of PLAIN must have 3 parts, separated by NUL")
    authorization_id, name, password = parts
    try:
        user = name.decode()
        password.decode()
    except UnicodeDecodeError:
        raise PlainError("the message of PLAIN is not in UTF-8") from None
    if not user:
        raise PlainError("Authentication failed: no user name was given")
    if not password:
        raise PlainError("Authentication failed: no password was given")
    if authorization_id not in (b"", name):
        raise PlainError(OTHER_AUTHORIZATION_ID)
    return PlainLogin(user, password)


class _Keyed:
    """Digests of names with passwords, by a key without which nobody can try passwords on them."""

    def __init__(self, key: bytes) -> None:
        if len(key) < KEY_BYTES_MIN:
            raise ValueError(f"the key has fewer than {KEY_BYTES_MIN} bytes")
        self._key = key

    def digest(self, *parts: bytes) -> bytes:
        """No two lists of parts are the same message."""
        sized = b"".join(len(part).to_bytes(4) + part for part in parts)
        return hmac.digest(self._key, sized, _DIGEST)


class ConfiguredPasswords:
    """The passwords in the node's own settings (`jaas.plain_users`); they need no metadata, so that
    nodes can reach each other before it is loaded.
    """

    def __init__(self, key: bytes, passwords: Mapping[str, str]) -> None:
        self._keyed = _Keyed(key)
        self._digests = {
            user: self._keyed.digest(user.encode(), password.encode())
            for user, password in passwords.items()
        }

    def verdict(self, login: PlainLogin) -> bool | None:
        """Whether the password is the user's; None for a user who is not in the settings."""
        given = self._keyed.digest(login.user.encode(), login.password)
        kept = self._digests.get(login.user)
        return None if kept is None else hmac.compare_digest(given, kept)


@dataclass(slots=True)
class _Entry:
    digest: bytes = field(repr=False)
    expires_at_ms: int


class PasswordCache:
    """Passwords that were right a short while ago. An entry holds for one credential: when that
    changes or is deleted it is worth nothing, whether or not somebody tells the cache.
    """

    def __init__(
        self, key: bytes, lifetime_ms: int = LIFETIME_MS, entries_max: int = ENTRIES_MAX
    ) -> None:
        self._keyed = _Keyed(key)
        self._lifetime_ms = lifetime_ms
        self._entries_max = entries_max
        self._entries: dict[str, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def knows(self, login: PlainLogin, credential: ScramCredential, now_ms: int) -> bool:
        entry = self._entries.get(login.user)
        if entry is None:
            return False
        if not 0 <= entry.expires_at_ms - now_ms <= self._lifetime_ms:
            del self._entries[login.user]
            return False
        return hmac.compare_digest(self._digest(login, credential), entry.digest)

    def add(self, login: PlainLogin, credential: ScramCredential, now_ms: int) -> None:
        """The oldest goes if there are too many. A new entry does not lengthen the life of another
        user's.
        """
        self._entries.pop(login.user, None)
        if len(self._entries) >= self._entries_max:
            del self._entries[next(iter(self._entries))]
        digest = self._digest(login, credential)
        self._entries[login.user] = _Entry(digest, now_ms + self._lifetime_ms)

    def drop(self, user: str) -> None:
        self._entries.pop(user, None)

    def _digest(self, login: PlainLogin, credential: ScramCredential) -> bytes:
        return self._keyed.digest(login.user.encode(), login.password, credential.stored_key)


class _Candidate(NamedTuple):
    """What a password is checked against; `known` is None where the credential decides, else it is
    what the settings say, or False for a user that does not exist.
    """

    hash_name: str
    credential: ScramCredential
    known: bool | None

    def __repr__(self) -> str:
        return f"_Candidate({self.hash_name!r}, ...)"


def is_right(hash_name: str, credential: ScramCredential, password: bytes) -> bool:
    """Milliseconds of hashing."""
    salted = scram.salted_password(hash_name, password, credential.salt, credential.iterations)
    return hmac.compare_digest(scram.keys(hash_name, salted).stored_key, credential.stored_key)


def _check(candidate: _Candidate, password: bytes) -> bool:
    right = is_right(candidate.hash_name, candidate.credential, password)
    return right if candidate.known is None else candidate.known


@dataclass(frozen=True, slots=True)
class PasswordCheck:
    """A check under way. Without work the password was right a short while ago."""

    checker: PasswordChecker = field(repr=False)
    login: PlainLogin
    candidate: _Candidate
    work: Work | None

    def end(self, result: object, now_ms: int) -> bool:
        """`result`: what the work has returned."""
        return self.checker.end(self, result, now_ms)


class PasswordChecker:
    """Names and passwords, for every door that is given them."""

    def __init__(
        self,
        credentials: Credentials,
        made_up: MadeUpCredentials,
        cache: PasswordCache,
        configured: ConfiguredPasswords | None = None,
    ) -> None:
        self._credentials = credentials
        self._made_up = made_up
        self._cache = cache
        self._configured = configured

    def begin(self, login: PlainLogin, now_ms: int) -> PasswordCheck:
        candidate = self._candidate(login)
        cached = candidate.known is None and self._cache.knows(login, candidate.credential, now_ms)
        work = None if cached else Work(partial(_check, candidate, login.password))
        return PasswordCheck(self, login, candidate, work)

    def end(self, check: PasswordCheck, result: object, now_ms: int) -> bool:
        """Whether the password is right. It is not if the credential was changed meanwhile: what
        the work has found out is then true of the old one.
        """
        if result is not True or self._candidate(check.login) != check.candidate:
            return False
        if check.candidate.known is None:
            self._cache.add(check.login, check.candidate.credential, now_ms)
        return True

    def _candidate(self, login: PlainLogin) -> _Candidate:
        """Settings go first: they are there before the metadata is."""
        verdict = None if self._configured is None else self._configured.verdict(login)
        made_up = self._for_unknown(login.user)
        if verdict is not None:
            return made_up._replace(known=verdict)
        for mechanism, hash_name in scram.HASHES.items():
            if (found := self._credentials.scram(mechanism, login.user)) is not None:
                return _Candidate(hash_name, found, None)
        return made_up

    def _for_unknown(self, user: str) -> _Candidate:
        for mechanism, hash_name in scram.HASHES.items():
            if (pattern := self._credentials.pattern(mechanism)) is not None:
                credential = self._made_up.credential(hash_name, user, pattern)
                return _Candidate(hash_name, credential, False)
        hash_name = next(iter(scram.HASHES.values()))
        return _Candidate(hash_name, self._made_up.credential(hash_name, user, None), False)


class PlainServer:
    """One login."""

    def __init__(self, checker: PasswordChecker) -> None:
        self._checker = checker
        self._check: PasswordCheck | None = None

    @property
    def claimed(self) -> str:
        return "" if self._check is None else self._check.login.user

    def step(self, message: bytes, now_ms: int) -> Outcome | Work:
        if self._check is not None:
            return Failed("the login is over")
        try:
            login = parse_plain(message)
        except PlainError as e:
            return Failed("the client sent no login by PLAIN", str(e))
        self._check = self._checker.begin(login, now_ms)
        return self._check.work or Done(login.user)

    def resume(self, result: object, now_ms: int) -> Outcome:
        check = self._check
        if check is None or not check.end(result, now_ms):
            return Failed("the user is unknown or the password is wrong", WRONG)
        return Done(check.login.user)
