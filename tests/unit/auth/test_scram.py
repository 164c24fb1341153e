"""SCRAM's formulas by the vectors of their RFCs, and its messages."""

from __future__ import annotations

import base64

import pytest

from penstock.auth import scram
from penstock.auth.scram import ScramError

HEADER = "n,,"


@pytest.mark.parametrize(
    ("hash_name", "first", "asked", "final", "proof", "signature"),
    [
        (  # RFC 5802, section 5
            "sha1",
            "n=user,r=fyko+d2lbbFgONRv9qkxdawL",
            "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
            "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j",
            "v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
            "rmF9pqV8S7suAoZWja4dJRkFsKQ=",
        ),
        (  # RFC 7677, section 3
            "sha256",
            "n=user,r=rOprNGfwEbeRWgbNEkqO",
            "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
            "s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
            "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
            "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
            "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
        ),
    ],
)
def test_the_formulas_by_the_examples_of_the_rfcs(
    hash_name: str, first: str, asked: str, final: str, proof: str, signature: str
) -> None:
    salt = base64.b64decode(dict(scram.pairs(asked))["s"])
    salted = scram.salted_password(hash_name, b"pencil", salt, 4096)
    stored_key, server_key = scram.keys(hash_name, salted)
    signed = scram.auth_message(first, asked, final)
    made = scram.client_proof(hash_name, scram.client_key(hash_name, salted), signed)
    assert scram.encoded(made) == proof
    assert scram.proves(hash_name, stored_key, signed, made)
    assert scram.encoded(scram.server_signature(hash_name, server_key, signed)) == signature


def test_a_proof_of_another_length_proves_nothing() -> None:
    made = scram.credential_of("sha256", b"pencil", b"salt")
    for proof in (b"", b"\0" * 31, b"\0" * 33, b"\0" * 64):
        assert not scram.proves("sha256", made.stored_key, b"signed", proof)


@pytest.mark.parametrize("iterations", [0, -1, 4095, 16_385, 1_000_000])
def test_the_iterations_of_a_new_credential_are_bounded(iterations: int) -> None:
    with pytest.raises(ValueError, match="4096 to 16384"):
        scram.credential_of("sha256", b"p", b"s", iterations)


def test_a_first_message() -> None:
    found = scram.parse_client_first(b"n,a=a=2Cb,n=a=2Cb,r=xyz,tokenauth=TRUE,more=1=2")
    assert found == (
        "n,a=a=2Cb,",
        "a,b",
        "a,b",
        "xyz",
        True,
        "n=a=2Cb,r=xyz,tokenauth=TRUE,more=1=2",
    )
    assert not scram.parse_client_first(b"n,,n=u,r=x,tokenauth=false").token
    assert scram.parse_client_first("n,,n=ü,r=x".encode()).name == "ü"


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n",
        b"n,,",
        b"y,,n=user,r=abc",
        b"p=tls-unique,,n=user,r=abc",
        b"p=tls-exporter,,n=user,r=abc",
        b"N,,n=user,r=abc",
        b"n,user,n=user,r=abc",
        b"n,a=,n=user,r=abc",
        b"n,,m=x,n=user,r=abc",
        b"n,,n=user,r=abc,m=x",
        b"n,,n=,r=abc",
        b"n,,n=user,r=",
        b"n,,n=user",
        b"n,,r=abc,n=user",
        b"n,,n=user,n=admin,r=abc",
        b"n,,n=user,r=abc,r=def",
        b"n,,n=user,r=abc,tokenauth=true,tokenauth=false",
        b"n,,n=user,r=abc,",
        b"n,,n=user,r=abc,1=2",
        b"n,,n=user,r=abc,x=",
        b"n,,n=us=er,r=abc",
        b"n,,n=us=2cer,r=abc",
        b"n,,n=us=00er,r=abc",
        b"n,,n=user=,r=abc",
        b"n,,n=us\0er,r=abc",
        b"n,,n=user,r=a c",
        b"n,,n=user,r=a\x7fc",
        "n,,n=user,r=äbc".encode(),
        b"n,,n=user,r=\xff",
        b"n,,n=user,r=" + b"a" * (scram.NONCE_CHARS_MAX + 1),
        b"n,,n=" + b"a" * scram.MESSAGE_BYTES_MAX + b",r=abc",
    ],
)
def test_a_first_message_that_is_not_one(message: bytes) -> None:
    with pytest.raises(ScramError):
        scram.parse_client_first(message)


def test_a_final_message() -> None:
    found = scram.parse_client_final(b"c=biws,r=xyz,more=1,p=AAEC")
    assert tuple(found) == (b"n,,", "xyz", b"\0\1\2", "c=biws,r=xyz,more=1")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"c=biws,r=xyz",
        b"c=biws,p=AAEC",
        b"r=xyz,p=AAEC",
        b"r=xyz,c=biws,p=AAEC",
        b"c=biws,r=xyz,p=AAEC,more=1",
        b"c=biws,r=xyz,m=1,p=AAEC",
        b"c=biws,r=xyz,p=",
        b"c=biws,r=xyz,p=AA",
        b"c=biws,r=xyz,p=AAE*",
        b"c=biws,r=xyz,p=AB==",  # AA== has the same bytes: one spelling only
        b"c=biws,r=xyz,p=AAEC,p=AAEC",
        b"c=biwt\n,r=xyz,p=AAEC",
        b"c=,r=xyz,p=AAEC",
        b"p=AAEC",
        "c=biws,r=xyz,p=ÄAEC".encode(),
    ],
)
def test_a_final_message_that_is_not_one(message: bytes) -> None:
    with pytest.raises(ScramError):
        scram.parse_client_final(message)


@pytest.mark.parametrize("name", ["a", "a,b", "a=b", "=2C", "=3D,", ",,==", "ü=ü", "a b"])
def test_names_are_escaped_and_back(name: str) -> None:
    written = scram.escaped(name)
    assert "," not in written
    assert scram.unescaped(written) == name
