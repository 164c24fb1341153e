"""The server's machine of SCRAM against our client, against whoever changes a message, and against
those who want to know which users there are.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.auth.mechanism import Challenge, Done, Failed, Outcome, Work
from penstock.auth.scram import HASHES, ITERATIONS_MIN, ScramCredential
from penstock.auth.scram_server import OTHER_AUTHORIZATION_ID, MadeUpCredentials, ScramServer
from penstock.kafka.sasl import Exchange, Refused
from penstock.kafka.sasl import scram as client
from support.credentials import SALT, SECRET, Store, credential

MECHANISM = "SCRAM-SHA-256"
NOW_MS = 1_700_000_000_000
MADE_UP = MadeUpCredentials(SECRET)
CLIENT_NONCE, SERVER_NONCE = "client-nonce", "server-nonce"


def server(store: Store, nonce: str = SERVER_NONCE, mechanism: str = MECHANISM) -> ScramServer:
    return ScramServer(mechanism, nonce, store, MADE_UP)


def login(
    machine: ScramServer, user: str, password: str, mechanism: str = MECHANISM
) -> tuple[Outcome, Exchange]:
    """What the server says at the end, and the client, who waits for it."""
    exchange = client(HASHES[mechanism], user, password, CLIENT_NONCE)
    asked = machine.step(next(exchange), NOW_MS)
    assert isinstance(asked, Challenge)
    return machine.step(exchange.send(asked.data), NOW_MS), exchange


def believes(exchange: Exchange, message: bytes) -> bool:
    try:
        exchange.send(message)
    except StopIteration:
        return True
    except Refused:
        return False
    raise AssertionError("the client goes on")


def test_the_example_of_the_rfc() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    store = Store()
    store.users[MECHANISM, "user"] = credential(MECHANISM, "pencil", salt)
    machine = server(store, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    asked = machine.step(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO", NOW_MS)
    assert asked == Challenge(
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    final = (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    done = Done("user", b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    assert machine.step(final, NOW_MS) == done
    assert isinstance(machine.step(final, NOW_MS), Failed)


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(sorted(HASHES)),
    st.text(min_size=1, max_size=20).filter(lambda name: "\0" not in name and _is_text(name)),
    st.text(min_size=1, max_size=20).filter(lambda password: _is_text(password)),
)
def test_client_and_server_agree_on_every_name_and_password(
    mechanism: str, user: str, password: str
) -> None:
    store = Store(**{user: password})
    done, exchange = login(server(store, mechanism=mechanism), user, password, mechanism)
    assert isinstance(done, Done)
    assert (done.name, done.expires_at_ms, done.token_authenticated) == (user, None, False)
    assert believes(exchange, done.data)
    failed, _ = login(server(store, mechanism=mechanism), user, password + "x", mechanism)
    assert isinstance(failed, Failed)


def _is_text(text: str) -> bool:
    return text.isprintable() or not any(0xD800 <= ord(c) <= 0xDFFF for c in text)


def changed(message: bytes) -> Iterator[bytes]:
    """Every message with one byte changed, left out or added."""
    for at in range(len(message)):
        for byte in {message[at] ^ 1, message[at] ^ 0x20, ord("A"), ord(","), ord("="), 0}:
            if byte != message[at]:
                yield message[:at] + bytes([byte]) + message[at + 1 :]
        yield message[:at] + message[at + 1 :]
        yield message[:at] + b"A" + message[at:]
        yield message[:at]
    yield from (message + more for more in (b"A", b",", b"=", b"\0", b",m=x", b",x=y"))


@pytest.fixture
def quick_hashing(monkeypatch: pytest.MonkeyPatch) -> None:
    """One round instead of thousands, for tests of thousands of logins."""

    def once(name: str, password: bytes, salt: bytes, iterations: int) -> bytes:
        return hmac.digest(password, salt + b"%d" % iterations, name)

    monkeypatch.setattr(hashlib, "pbkdf2_hmac", once)


def logged_in(store: Store, changes: dict[str, bytes]) -> dict[str, bytes] | None:
    """The messages of a login in which some were changed on their way; None if it failed."""
    machine = server(store)
    exchange = client("sha256", "ann", "pencil", CLIENT_NONCE)
    first = next(exchange)
    asked = machine.step(changes.get("first", first), NOW_MS)
    if not isinstance(asked, Challenge):
        return None
    try:
        final = exchange.send(changes.get("asked", asked.data))
    except Refused:
        return None
    done = machine.step(changes.get("final", final), NOW_MS)
    if not isinstance(done, Done) or not believes(exchange, changes.get("shown", done.data)):
        return None
    return {"first": first, "asked": asked.data, "final": final, "shown": done.data}


@pytest.mark.usefixtures("quick_hashing")
@pytest.mark.parametrize("which", ["first", "asked", "final", "shown"])
def test_whoever_changes_a_message_prevents_the_login(which: str) -> None:
    credential.cache_clear()
    store = Store(ann="pencil", anm="other")
    credential.cache_clear()
    messages = logged_in(store, {})
    assert messages is not None
    tried = 0
    for change in changed(messages[which]):
        if which == "shown" and change.startswith(messages["shown"] + b","):
            continue  # extensions after the signature are no part of what it proves
        tried += 1
        assert logged_in(store, {which: change}) is None, change
    assert tried > 200


def test_a_proof_cannot_be_sent_again_to_another_login() -> None:
    """CVE-2024-56128: the nonce of the final message is compared with ours."""
    store = Store(ann="pencil")
    exchange = client("sha256", "ann", "pencil", CLIENT_NONCE)
    first = next(exchange)
    asked = server(store).step(first, NOW_MS)
    assert isinstance(asked, Challenge)
    final = exchange.send(asked.data)
    later = server(store, "another-nonce")
    later.step(first, NOW_MS)
    failed = later.step(final, NOW_MS)
    assert isinstance(failed, Failed)
    assert "nonce" in failed.reason


def test_the_nonce_alone_is_compared_too() -> None:
    """Even signed by the password: the client's own nonce is not enough."""
    store = Store(ann="pencil")
    machine = server(store)
    exchange = client("sha256", "ann", "pencil", CLIENT_NONCE)
    asked = machine.step(next(exchange), NOW_MS)
    assert isinstance(asked, Challenge)
    final = exchange.send(asked.data.replace(SERVER_NONCE.encode(), b"chosen-by-others"))
    failed = machine.step(final, NOW_MS)
    assert isinstance(failed, Failed)
    assert "nonce" in failed.reason


def test_the_header_must_come_back() -> None:
    store = Store(ann="pencil")
    machine = server(store)
    exchange = client("sha256", "ann", "pencil", CLIENT_NONCE)
    asked = machine.step(b"n,a=ann," + next(exchange)[3:], NOW_MS)
    assert isinstance(asked, Challenge)
    failed = machine.step(exchange.send(asked.data), NOW_MS)
    assert isinstance(failed, Failed)
    assert "header" in failed.reason


@pytest.mark.parametrize("user", ["ann", "nobody"])
def test_another_authorization_id_is_refused_for_whoever_asks(user: str) -> None:
    first = f"n,a=admin,n={user},r=abc".encode()
    failed = server(Store(ann="pencil", admin="x")).step(first, NOW_MS)
    assert isinstance(failed, Failed)
    assert failed.text == OTHER_AUTHORIZATION_ID


def test_a_delegation_token() -> None:
    store = Store()
    store.add_token("token-1", "hmac", "ann", NOW_MS + 1)
    exchange = client("sha256", "token-1", "hmac", CLIENT_NONCE + ",tokenauth=true")
    machine = server(store)
    first = next(exchange)
    work = machine.step(first, NOW_MS)
    assert isinstance(work, Work)
    asked = machine.resume(work.run(), NOW_MS)
    assert isinstance(asked, Challenge)
    done = machine.step(_signed(first, asked.data, "hmac"), NOW_MS)
    assert isinstance(done, Done)
    assert (done.name, done.expires_at_ms, done.token_authenticated) == ("ann", NOW_MS + 1, True)


def _signed(first: bytes, asked: bytes, password: str, header: bytes = b"biws") -> bytes:
    """The final message of a client that uses extensions, which ours does not."""
    nonce = asked.split(b",")[0]
    bare = b"c=" + header + b"," + nonce
    signed = b",".join((first[3:], asked, bare))
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), SALT, ITERATIONS_MIN)
    key = hmac.digest(salted, b"Client Key", "sha256")
    signature = hmac.digest(hashlib.sha256(key).digest(), signed, "sha256")
    proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
    return bare + b",p=" + base64.b64encode(proof)


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (b"n,,n=token-1,r=abc", "a token is no user"),
        (b"n,,n=token-1,r=abc,tokenauth=false", "it must be said"),
        (b"n,,n=ann,r=abc,tokenauth=true", "a user is no token"),
        (b"n,,n=token-2,r=abc,tokenauth=true", "it has expired"),
    ],
)
def test_tokens_and_users_are_kept_apart(first: bytes, why: str) -> None:
    store = Store(ann="hmac")
    store.add_token("token-1", "hmac", "ann", NOW_MS + 1)
    store.add_token("token-2", "hmac", "ann", NOW_MS)
    store.look = credential(MECHANISM, "hmac")
    machine = server(store)
    asked = machine.step(first, NOW_MS)
    assert isinstance(asked, Challenge)
    failed = machine.step(_signed(first, asked.data, "hmac"), NOW_MS)
    assert isinstance(failed, Failed), why


def failing(store: Store, user: str) -> tuple[bytes, Failed]:
    machine = server(store)
    exchange = client("sha256", user, "wrong", CLIENT_NONCE)
    asked = machine.step(next(exchange), NOW_MS)
    assert isinstance(asked, Challenge)
    failed = machine.step(exchange.send(asked.data), NOW_MS)
    assert isinstance(failed, Failed)
    return asked.data, failed


def test_an_unknown_user_looks_like_one_with_another_password() -> None:
    store = Store(ann="pencil")
    known, failed = failing(store, "ann")
    unknown, failed_too = failing(store, "nobody")
    assert failed == failed_too
    again, _ = failing(store, "nobody")
    assert again == unknown, "a salt that changes is a made-up one"
    other, _ = failing(store, "nobody2")
    assert other != unknown
    for asked in (known, unknown, other):
        nonce, salt, iterations = asked.split(b",")
        assert nonce == f"r={CLIENT_NONCE}{SERVER_NONCE}".encode()
        text = base64.b64decode(salt[2:]).decode()
        assert 24 <= len(text) <= 26
        assert text == text.lower()
        assert text.isalnum()
        assert iterations == b"i=4096"


def test_made_up_credentials_follow_the_pattern_and_belong_to_a_node() -> None:
    pattern = ScramCredential(bytes(range(64)), b"", b"", 8192)
    made = MADE_UP.credential("sha512", "nobody", pattern)
    assert (len(made.salt), made.iterations) == (64, 8192)
    assert made == MADE_UP.credential("sha512", "nobody", pattern)
    other = MadeUpCredentials(b"the secret of another").credential("sha512", "nobody", pattern)
    assert not {made.salt, made.stored_key, made.server_key} & {
        other.salt,
        other.stored_key,
        other.server_key,
    }
    with pytest.raises(ValueError, match="16 bytes"):
        MadeUpCredentials(b"short")


class Guessed(MadeUpCredentials):
    """As if somebody had found a password for what is made up."""

    def credential(
        self, hash_name: str, name: str, pattern: ScramCredential | None
    ) -> ScramCredential:
        return credential(MECHANISM, "pencil")


def test_even_with_a_right_proof_an_unknown_user_does_not_get_in() -> None:
    machine = ScramServer(MECHANISM, SERVER_NONCE, Store(), Guessed(SECRET))
    failed, _ = login(machine, "nobody", "pencil")
    assert isinstance(failed, Failed)
    assert "unknown" in failed.reason


def test_a_user_who_is_created_in_the_middle_of_a_login() -> None:
    store = Store()
    machine = server(store)
    first = b"n,,n=nobody,r=abc"
    asked = machine.step(first, NOW_MS)
    assert isinstance(asked, Challenge)
    store.users[MECHANISM, "nobody"] = credential(MECHANISM, "pencil")
    assert isinstance(machine.step(_signed(first, asked.data, "pencil"), NOW_MS), Failed)


def test_as_much_is_hashed_for_an_unknown_user_as_for_a_wrong_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = Store(ann="pencil")
    finals = {}
    for user in ("ann", "bob"):
        exchange = client("sha256", user, "wrong", CLIENT_NONCE)
        first = next(exchange)
        asked = server(store).step(first, NOW_MS)
        assert isinstance(asked, Challenge)
        finals[user] = (first, exchange.send(asked.data))
    counts: dict[str, Counter[str]] = {}
    for user, messages in finals.items():
        counts[user] = count = Counter()
        with monkeypatch.context() as patched:
            _count_calls(patched, count)
            machine = server(store)
            for message in messages:
                machine.step(message, NOW_MS)
    assert counts["ann"] == counts["bob"]
    assert counts["ann"]["hmac.digest"] >= 5
    assert counts["ann"]["compare_digest"] == 2


def _count_calls(patched: pytest.MonkeyPatch, count: Counter[str]) -> None:
    digest, new, compare = hmac.digest, hashlib.new, hmac.compare_digest

    def counted_digest(key: bytes, message: bytes, name: str) -> bytes:
        count["hmac.digest"] += 1
        return digest(key, message, name)

    def counted_new(name: str, data: bytes) -> object:
        count["hashlib.new"] += 1
        return new(name, data)

    def counted_compare(one: bytes, other: bytes) -> bool:
        count["compare_digest"] += 1
        return compare(one, other)

    patched.setattr(hmac, "digest", counted_digest)
    patched.setattr(hashlib, "new", counted_new)
    patched.setattr(hmac, "compare_digest", counted_compare)


def test_a_credential_with_too_few_iterations_is_not_used() -> None:
    weak = ScramCredential(SALT, b"x" * 32, b"y" * 32, 100)
    store = Store()
    store.users[MECHANISM, "ann"] = weak
    asked, _ = failing(store, "ann")
    assert asked.endswith(b",i=4096")
    assert base64.b64encode(SALT) not in asked


def test_a_machine_is_for_one_login() -> None:
    machine = server(Store(ann="pencil"))
    assert isinstance(machine.step(b"nonsense", NOW_MS), Failed)
    assert isinstance(machine.step(b"n,,n=ann,r=abc", NOW_MS), Failed)
    assert isinstance(machine.resume(True, NOW_MS), Failed)
