"""Ways to be taken for somebody else: none of them gets in."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
import ssl
import time
from typing import Any

import pytest

from interop.abuse.rig import FAILED, handshake, raw, say
from penstock.auth import scram
from penstock.wire.messages.api_versions import ApiVersionsRequest
from support.certificates import DAY, client_context
from support.raw import Closed, Encrypted
from support.secured import PASSWORD, PLAIN_PASSWORD, PLAIN_USER, USER
from support.secured_node import SecuredNode, token
from unit.auth.tokens import RSA, key, segment, signed

pytestmark = [pytest.mark.penstock_only, pytest.mark.xdist_group("security")]

SHA = "SCRAM-SHA-512"
OTHER = key("RSA", 2048, "other")
NONCE = "the-same-nonce-of-the-client"


# -- tokens ----------------------------------------------------------------------------------------


def claims(**more: Any) -> dict[str, Any]:
    now_s = int(time.time())
    return {"sub": "ann", "iat": now_s - 5, "exp": now_s + 600} | more


def unsigned(header: dict[str, Any], signature: bytes = b"") -> str:
    return f"{segment(header)}.{segment(claims())}.{segment(signature)}"


def by_public_key(name: str, digest: str) -> str:
    """Signed with what everybody may know, as if it were a secret."""
    message = unsigned({"alg": name, "kid": "rsa"}).rpartition(".")[0]
    public = RSA.as_bytes(private=False)  # type: ignore[union-attr]
    return f"{message}.{segment(hmac.digest(public, message.encode(), digest))}"


def refusals() -> dict[str, str]:
    """Tokens that must not be believed, by what is wrong with them."""
    now_s = int(time.time())
    own = OTHER.as_dict(private=False)
    chain = [base64.b64encode(OTHER.as_bytes("DER", private=False)).decode()]  # type: ignore[union-attr]
    return {
        "alg none": unsigned({"alg": "none"}),
        "alg nOnE, of our key": unsigned({"alg": "nOnE", "kid": "rsa"}, b"x"),
        "no alg": unsigned({"kid": "rsa"}, b"x"),
        "HS256 with the public key": by_public_key("HS256", "sha256"),
        "HS512 with the public key": by_public_key("HS512", "sha512"),
        "jwk": signed(claims(), OTHER, kid="rsa", jwk=own),
        "x5c": signed(claims(), OTHER, kid="rsa", x5c=chain),
        "another one's": signed(claims(), OTHER),
        "ended": signed(claims(exp=now_s - 100)),
        "not yet valid": signed(claims(nbf=now_s + 600)),
        "without an end": signed({"sub": "ann", "iat": now_s}),
    }


def bear(node: SecuredNode, given: str, authorization_id: str = "") -> bool:
    """Whether a token lets its bearer in."""
    who = f"a={authorization_id}" if authorization_id else ""
    with raw(node) as client:
        assert handshake(client, "OAUTHBEARER") == 0
        answer = say(client, f"n,{who},\x01auth=Bearer {given}\x01\x01".encode())
        if answer.error_code == 0 and answer.auth_bytes:
            assert json.loads(answer.auth_bytes)["status"] == "invalid_token"
            answer = say(client, b"\x01")
        if answer.error_code:
            assert answer.error_code == FAILED
            assert given not in (answer.error_message or "")
            assert client.is_closed(10)
            return False
        return True


@pytest.mark.parametrize("wrong", refusals())
def test_a_token_that_is_not_believed(locked: SecuredNode, wrong: str) -> None:
    assert not bear(locked, refusals()[wrong])
    assert bear(locked, token()), "a right one is"


@pytest.mark.parametrize("name", ["jku", "x5u"])
def test_nobody_asks_where_a_token_says(locked: SecuredNode, name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"https://127.0.0.1:{server.getsockname()[1]}/keys"
        assert not bear(locked, signed(claims(), OTHER, **{name: url}))
        assert not bear(locked, signed(claims(), OTHER, kid="rsa", **{name: url}))
        server.settimeout(1)
        with pytest.raises(TimeoutError):
            server.accept()


# -- certificates ----------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["ended", "not yet valid", "stranger", "none"])
def test_a_certificate_that_is_not_believed(locked: SecuredNode, which: str) -> None:
    files = locked.certificates
    identity = {
        "ended": lambda: files.signed("ended", lasts=-DAY),
        "not yet valid": lambda: files.signed("early", begins=DAY),
        "stranger": files.of_stranger,
        "none": lambda: None,
    }[which]()
    trusted = files.authority.read_text()
    with (
        pytest.raises((ssl.SSLError, ConnectionError, Closed)),
        Encrypted(locked.host, locked.ports["MTLS"], client_context(trusted, identity)) as client,
    ):
        client.call(ApiVersionsRequest(), 0)
    right = client_context(trusted, files.open_client)
    with Encrypted(locked.host, locked.ports["MTLS"], right) as client:
        assert client.call(ApiVersionsRequest(), 0).error_code == 0


# -- messages of others ----------------------------------------------------------------------------


def scram_first(nonce: str = NONCE, who: str = "") -> str:
    return f"n,{who},n={scram.escaped(USER)},r={nonce}"


def scram_final(asked: bytes, header: str = "n,,") -> tuple[str, str]:
    """What answers a challenge, and what of it is signed without the proof."""
    said = dict(scram.pairs(asked.decode()))
    salt, rounds = scram.decoded(said["s"]), int(said["i"])
    salted = scram.salted_password("sha512", PASSWORD.encode(), salt, rounds)
    bare = f"c={scram.encoded(header.encode())},r={said['r']}"
    first = scram_first()[3:]
    signed_text = scram.auth_message(first, asked.decode(), bare)
    proof = scram.client_proof("sha512", scram.client_key("sha512", salted), signed_text)
    return f"{bare},p={scram.encoded(proof)}", said["r"]


def test_a_recorded_login_by_scram_is_worth_nothing(locked: SecuredNode) -> None:
    """Neither whole, nor on the same connection, nor with the new nonce put into it."""
    with raw(locked) as client:
        handshake(client, SHA)
        asked = say(client, scram_first().encode()).auth_bytes
        final, nonce = scram_final(asked)
        assert say(client, final.encode()).error_code == 0
        again = say(client, final.encode())
        assert again.error_code != 0, "the same message twice"
    for change in (False, True):
        with raw(locked) as client:
            handshake(client, SHA)
            asked = say(client, scram_first().encode()).auth_bytes
            fresh = dict(scram.pairs(asked.decode()))["r"]
            assert fresh != nonce
            assert fresh.startswith(NONCE)
            replayed = final.replace(nonce, fresh) if change else final
            assert say(client, replayed.encode()).error_code == FAILED
            assert client.is_closed(10)


def test_a_proof_for_another_nonce(locked: SecuredNode) -> None:
    """The proof is right for what it names; the nonce is not that of this login."""
    with raw(locked) as client:
        handshake(client, SHA)
        asked = say(client, scram_first().encode()).auth_bytes
        ours = dict(scram.pairs(asked.decode()))["r"]
        final, _ = scram_final(asked.replace(ours.encode(), (NONCE + "mine").encode()))
        assert say(client, final.encode()).error_code == FAILED


def test_a_hash_of_the_password_is_not_the_password(locked: SecuredNode) -> None:
    with raw(locked) as client:
        handshake(client, "PLAIN")
        digest = hashlib.sha256(PLAIN_PASSWORD.encode()).hexdigest()
        assert say(client, f"\0{PLAIN_USER}\0{digest}".encode()).error_code == FAILED


# -- another authorization id, and none ------------------------------------------------------------


def test_nobody_authorizes_as_another(locked: SecuredNode) -> None:
    with raw(locked) as client:
        handshake(client, "PLAIN")
        message = f"ann\0{PLAIN_USER}\0{PLAIN_PASSWORD}".encode()
        assert say(client, message).error_code == FAILED
    with raw(locked) as client:
        handshake(client, SHA)
        answer = say(client, scram_first(who="a=writer").encode())
        if answer.error_code == 0:
            final, _ = scram_final(answer.auth_bytes, header="n,a=writer,")
            answer = say(client, final.encode())
        assert answer.error_code == FAILED
    assert not bear(locked, token(), authorization_id="writer")
    assert bear(locked, token(), authorization_id="ann")


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", SHA, "OAUTHBEARER"])
@pytest.mark.parametrize(
    "message", [b"", b"\0", b"\0\0", b"\0writer\0", b"\0\0secret", b"n,,", b"n,,\x01\x01"]
)
def test_no_credentials_are_no_login(locked: SecuredNode, mechanism: str, message: bytes) -> None:
    with raw(locked) as client:
        handshake(client, mechanism)
        assert say(client, message).error_code == FAILED
        assert client.is_closed(10)
