"""PLAIN: names and passwords against SCRAM credentials and against the node's settings."""

from __future__ import annotations

import hashlib
from collections import Counter

import pytest

from penstock.auth import plain, scram
from penstock.auth.mechanism import Done, Failed, Outcome, Work
from penstock.auth.plain import (
    ConfiguredPasswords,
    PasswordCache,
    PasswordChecker,
    PlainError,
    PlainLogin,
    PlainServer,
    parse_plain,
)
from penstock.auth.scram_server import OTHER_AUTHORIZATION_ID, MadeUpCredentials
from support.credentials import SECRET, Store, credential

KEY = b"a key of this process"
NOW_MS = 1_700_000_000_000
SHA_256, SHA_512 = scram.HASHES


def checker(
    store: Store, cache: PasswordCache | None = None, configured: dict[str, str] | None = None
) -> PasswordChecker:
    return PasswordChecker(
        store,
        MadeUpCredentials(SECRET),
        PasswordCache(KEY) if cache is None else cache,
        None if configured is None else ConfiguredPasswords(KEY, configured),
    )


def login(checks: PasswordChecker, message: bytes, now_ms: int = NOW_MS) -> Outcome:
    machine = PlainServer(checks)
    outcome = machine.step(message, now_ms)
    return machine.resume(outcome.run(), now_ms) if isinstance(outcome, Work) else outcome


def is_cached(checks: PasswordChecker, message: bytes, now_ms: int) -> bool:
    return not isinstance(PlainServer(checks).step(message, now_ms), Work)


@pytest.mark.parametrize("message", [b"\0ann\0pencil", b"ann\0ann\0pencil"])
def test_a_right_password(message: bytes) -> None:
    assert login(checker(Store(ann="pencil")), message) == Done("ann")


def test_bytes_of_utf_8() -> None:
    assert login(checker(Store(änn="pä")), "\0änn\0pä".encode()) == Done("änn")


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
def test_a_credential_of_either_mechanism_will_do(mechanism: str) -> None:
    store = Store()
    store.users[mechanism, "ann"] = credential(mechanism, "pencil")
    assert login(checker(store), b"\0ann\0pencil") == Done("ann")
    assert login(checker(store), b"\0ann\0pencils") != Done("ann")


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"", "3 parts"),
        (b"ann", "3 parts"),
        (b"ann\0pencil", "3 parts"),
        (b"\0ann\0pencil\0", "3 parts"),
        (b"\0ann\0pencil\0more", "3 parts"),
        (b"\0\0pencil", "no user name"),
        (b"\0ann\0", "no password"),
        (b"\0\xff\0pencil", "UTF-8"),
        (b"\0ann\0\xff", "UTF-8"),
        (b"\0ann\0" + b"p" * plain.MESSAGE_BYTES_MAX, "more than"),
    ],
)
def test_what_is_no_message_of_plain(message: bytes, why: str) -> None:
    with pytest.raises(PlainError, match=why):
        parse_plain(message)
    failed = login(checker(Store(ann="pencil")), message)
    assert isinstance(failed, Failed)
    assert failed.text is not None
    assert why in failed.text


@pytest.mark.parametrize("password", ["pencil", "wrong"])
@pytest.mark.parametrize("user", ["ann", "nobody"])
def test_nobody_poses_as_another(user: str, password: str) -> None:
    """CVE-2017-12610; and whether the user exists, or the password is right, is not told."""
    failed = login(checker(Store(ann="pencil", admin="x")), f"admin\0{user}\0{password}".encode())
    assert isinstance(failed, Failed)
    assert failed.text == OTHER_AUTHORIZATION_ID


def test_the_passwords_of_the_settings() -> None:
    checks = checker(Store(ann="of the store", bob="b"), configured={"ann": "of the settings"})
    assert login(checks, b"\0ann\0of the settings") == Done("ann")
    assert isinstance(login(checks, b"\0ann\0of the store"), Failed)
    assert login(checks, b"\0bob\0b") == Done("bob")


def test_all_failures_are_told_alike_and_cost_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = checker(Store(ann="pencil"), configured={"node": "secret"})
    rounds: Counter[str] = Counter()
    real = hashlib.pbkdf2_hmac

    def counted(name: str, password: bytes, salt: bytes, iterations: int) -> bytes:
        rounds[current] += iterations
        hashes[current].append(name)
        return real(name, password, salt, iterations)

    monkeypatch.setattr(hashlib, "pbkdf2_hmac", counted)
    hashes: dict[str, list[str]] = {"ann": [], "nobody": [], "node": []}
    failures = []
    for current in hashes:
        failures.append(login(checks, f"\0{current}\0wrong".encode()))
    assert set(rounds.values()) == {scram.ITERATIONS_MIN}
    assert list(hashes.values()) == [["sha256"]] * 3
    assert len({repr(failed) for failed in failures}) == 1
    assert isinstance(failures[0], Failed)
    assert failures[0].text == plain.WRONG


def test_unknown_users_cost_what_those_of_the_other_mechanism_cost() -> None:
    store = Store()
    store.look = credential(SHA_512, "x", iterations=5000)
    found = checker(store).begin(PlainLogin("nobody", b"x"), NOW_MS)
    assert (found.candidate.hash_name, found.candidate.credential.iterations) == ("sha256", 5000)
    store.pattern = lambda mechanism: store.look if mechanism == SHA_512 else None  # type: ignore[method-assign]
    found = checker(store).begin(PlainLogin("nobody", b"x"), NOW_MS)
    assert found.candidate.hash_name == "sha512"


def test_a_right_password_is_remembered_for_a_while() -> None:
    checks = checker(Store(ann="pencil"), PasswordCache(KEY, lifetime_ms=1000))
    message = b"\0ann\0pencil"
    assert not is_cached(checks, message, NOW_MS)
    assert login(checks, message) == Done("ann")
    assert is_cached(checks, message, NOW_MS)
    assert is_cached(checks, message, NOW_MS + 1000)
    assert not is_cached(checks, b"\0ann\0pencils", NOW_MS)
    assert not is_cached(checks, message, NOW_MS + 1001)
    assert not is_cached(checks, message, NOW_MS), "what has expired is gone"


def test_a_clock_that_goes_back_ends_it() -> None:
    checks = checker(Store(ann="pencil"), PasswordCache(KEY, lifetime_ms=1000))
    login(checks, b"\0ann\0pencil")
    assert not is_cached(checks, b"\0ann\0pencil", NOW_MS - 1)


def test_a_wrong_password_is_not_remembered() -> None:
    cache = PasswordCache(KEY)
    checks = checker(Store(ann="pencil"), cache, {"node": "secret"})
    for message in (b"\0ann\0wrong", b"\0nobody\0x", b"\0node\0secret", b"\0node\0wrong"):
        login(checks, message)
    assert len(cache) == 0


def test_a_changed_or_deleted_credential_ends_it() -> None:
    store = Store(ann="pencil")
    checks = checker(store)
    login(checks, b"\0ann\0pencil")
    store.users[SHA_256, "ann"] = credential(SHA_256, "pen")
    assert isinstance(login(checks, b"\0ann\0pencil"), Failed)
    assert login(checks, b"\0ann\0pen") == Done("ann")
    store.users.clear()
    assert isinstance(login(checks, b"\0ann\0pen"), Failed)


@pytest.mark.parametrize("after", ["changed", "deleted"])
def test_a_credential_that_changes_while_it_is_checked(after: str) -> None:
    """Else an old password would be remembered as that of the new credential."""
    store = Store(ann="pencil")
    cache = PasswordCache(KEY)
    machine = PlainServer(checker(store, cache))
    work = machine.step(b"\0ann\0pencil", NOW_MS)
    assert isinstance(work, Work)
    result = work.run()
    assert result is True
    store.users.clear()
    if after == "changed":
        store.users[SHA_256, "ann"] = credential(SHA_256, "pen")
    assert isinstance(machine.resume(result, NOW_MS), Failed)
    assert len(cache) == 0


def test_the_cache_is_bounded() -> None:
    cache = PasswordCache(KEY, entries_max=3)
    made = credential(SHA_256, "p")
    logins = [PlainLogin(f"user{i}", b"p") for i in range(10)]
    for one in logins:
        cache.add(one, made, NOW_MS)
        cache.add(one, made, NOW_MS)
    assert len(cache) == 3
    assert [cache.knows(one, made, NOW_MS) for one in logins] == [False] * 7 + [True] * 3
    cache.drop("user9")
    assert not cache.knows(logins[9], made, NOW_MS)


def test_a_name_and_a_password_do_not_run_into_each_other() -> None:
    cache = PasswordCache(KEY)
    made = credential(SHA_256, "p")
    cache.add(PlainLogin("ab", b"c"), made, NOW_MS)
    cache._entries["a"] = cache._entries["ab"]
    assert not cache.knows(PlainLogin("a", b"bc"), made, NOW_MS)


@pytest.mark.parametrize("result", [None, 1, "yes", False, ValueError("x"), [True]])
def test_only_true_is_true(result: object) -> None:
    machine = PlainServer(checker(Store(ann="pencil")))
    machine.step(b"\0ann\0pencil", NOW_MS)
    assert isinstance(machine.resume(result, NOW_MS), Failed)


def test_a_machine_is_for_one_login() -> None:
    machine = PlainServer(checker(Store(ann="pencil")))
    assert isinstance(machine.resume(True, NOW_MS), Failed)
    machine.step(b"\0nobody\0pencil", NOW_MS)
    assert isinstance(machine.step(b"\0ann\0pencil", NOW_MS), Failed)


def test_a_key_that_is_too_short_to_be_one() -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        PasswordCache(b"short")
