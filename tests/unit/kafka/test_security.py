"""Security from options: SASL by the vectors of its RFC, logins in JAAS, certificates."""

from __future__ import annotations

import base64
import hashlib
import hmac
import pickle

import pytest

from penstock.auth.jaas import parse_jaas
from penstock.auth.scram import ITERATIONS_MAX
from penstock.kafka.errors import SettingError
from penstock.kafka.sasl import (
    Refused,
    Sasl,
    plain,
    scram,
)
from penstock.kafka.security import Pem, Security, Tls, context_of, security_of

# RFC 7677, section 3
NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
SECRET = "pencil-of-ann"
SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required"
TLS = {"security.protocol": "SSL"}
SASL = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.username": "ann",
    "sasl.password": SECRET,
}


def test_scram_by_the_example_of_the_rfc() -> None:
    exchange = scram("sha256", "user", "pencil", NONCE)
    assert next(exchange) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert exchange.send(SERVER_FIRST) == CLIENT_FINAL
    with pytest.raises(StopIteration):
        exchange.send(SERVER_FINAL)


@pytest.mark.parametrize("wrong", [b"v=" + b"A" * 43 + b"=", b"v=", b"", b"v=*", b"\xff"])
def test_a_broker_that_does_not_know_the_password(wrong: bytes) -> None:
    exchange = scram("sha256", "user", "pencil", NONCE)
    next(exchange)
    exchange.send(SERVER_FIRST)
    with pytest.raises(Refused):
        exchange.send(wrong)


def test_what_the_broker_finds_wrong_is_said() -> None:
    exchange = scram("sha256", "user", "pencil", NONCE)
    next(exchange)
    exchange.send(SERVER_FIRST)
    with pytest.raises(Refused, match=r"^invalid-proof$"):
        exchange.send(b"e=invalid-proof")


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (SERVER_FIRST.replace(NONCE.encode(), b"another"), "nonce"),
        (b"r=" + NONCE.encode() + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "nonce"),
        (SERVER_FIRST.replace(b"i=4096", b"i=4095"), "4095 iterations"),
        (SERVER_FIRST.replace(b"i=4096", b"i=%d" % (ITERATIONS_MAX + 1)), "iterations"),
        (SERVER_FIRST.replace(b"i=4096", b"i=-1"), "how often"),
        (SERVER_FIRST.replace(b"i=4096", b""), "how often"),
        (SERVER_FIRST.replace(b"s=W22ZaJ0SNY7soEsUEjb6gQ==", b"s="), "salt"),
        (SERVER_FIRST.replace(b"W22Z", b"W2!Z"), "base64"),
        (b"", "nonce"),
    ],
)
def test_a_first_answer_that_is_not_one(first: bytes, why: str) -> None:
    exchange = scram("sha256", "user", "pencil", NONCE)
    next(exchange)
    with pytest.raises(Refused, match=why):
        exchange.send(first)


def test_scram_with_sha_512_and_a_name_that_is_written_in_another_way() -> None:
    exchange = scram("sha512", "a=b,c", SECRET, "abc")
    first = next(exchange)
    assert first == b"n,,n=a=3Db=2Cc,r=abc"
    asked = b"r=abcdef,s=" + base64.b64encode(b"salt") + b",i=5000"
    final = exchange.send(asked)
    bare, _, proof = final.rpartition(b",p=")
    signed = b",".join((first[3:], asked, bare))
    salted = hashlib.pbkdf2_hmac("sha512", SECRET.encode(), b"salt", 5000)
    stored = hashlib.sha512(hmac.digest(salted, b"Client Key", "sha512")).digest()
    signature = hmac.digest(stored, signed, "sha512")
    shown = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
    assert hashlib.sha512(shown).digest() == stored
    theirs = hmac.digest(hmac.digest(salted, b"Server Key", "sha512"), signed, "sha512")
    with pytest.raises(StopIteration):
        exchange.send(b"v=" + base64.b64encode(theirs))


def test_two_exchanges_have_two_nonces() -> None:
    who = Sasl("SCRAM-SHA-256", "ann", SECRET)
    assert next(who.exchange()) != next(who.exchange())


def test_plain() -> None:
    assert list(plain("änn", "pä")) == ["\0änn\0pä".encode()]


@pytest.mark.parametrize(
    ("text", "username", "password"),
    [
        (f'{SCRAM_LOGIN} username="ann" password="p";', "ann", "p"),
        (f'{SCRAM_LOGIN}\n  username="ann"\n  password = "p" ;\n', "ann", "p"),
        (f"{SCRAM_LOGIN} username=ann password='p q';", "ann", "p q"),
        (f'{SCRAM_LOGIN} password="a\\"b\\\\c;=" username="a,b";', "a,b", 'a"b\\c;='),
        (f'/* who */ {SCRAM_LOGIN} // we\n username="ann" password="/*p*/";', "ann", "/*p*/"),
    ],
)
def test_logins_as_java_writes_them(text: str, username: str, password: str) -> None:
    kafka = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512"}
    found = security_of({**kafka, "sasl.jaas.config": text}).sasl
    assert found == Sasl("SCRAM-SHA-512", username, password)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "does not end with a semicolon"),
        (f'{SCRAM_LOGIN} username="ann" password="{SECRET}"', "does not end with a semicolon"),
        (f'{SCRAM_LOGIN} username="ann" password="{SECRET};', "is a quote open"),
        (f'{SCRAM_LOGIN} password="{SECRET}"; {SCRAM_LOGIN};', "more than one login module"),
        (f'{SCRAM_LOGIN} username="ann" "{SECRET}";', 'form name="value"'),
        (";", "no login module"),
        (f'{SCRAM_LOGIN} username="ann";', "has no password"),
        (f'{SCRAM_LOGIN} password="{SECRET}";', "has no username"),
        (f'"{SECRET}" required username="a" password="b";', "login module ScramLoginModule"),
        (f'a.PlainLoginModule required username="a" password="{SECRET}";', "ScramLoginModule"),
        (
            f'{SCRAM_LOGIN} username="ann" password="{SECRET}" tokenauth="true";',
            "delegation token",
        ),
    ],
)
def test_logins_that_cannot_be_used_are_not_shown(text: str, why: str) -> None:
    kafka = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}
    with pytest.raises(SettingError) as failed:
        security_of({**kafka, "sasl.jaas.config": text})
    assert "sasl.jaas.config" in str(failed.value)
    assert why in str(failed.value)
    assert SECRET not in str(failed.value)


def test_an_entry_of_jaas() -> None:
    assert parse_jaas('m required a="1" b=2;') == ("m", {"a": "1", "b": "2"})


@pytest.mark.parametrize(
    ("kafka", "why"),
    [
        ({"security.protocol": "TLS"}, "must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"sasl.username": "ann"}, "sasl.username is given, but security.protocol is"),
        ({"ssl.ca.location": "/x"}, "ssl.ca.location is given, but security.protocol"),
        ({**SASL, "sasl.mechanism": "GSSAPI"}, "is GSSAPI, which cannot be had here"),
        ({**SASL, "sasl.mechanism": "OAUTHBEARER"}, "is OAUTHBEARER, which cannot be had here"),
        ({**SASL, "sasl.mechanism": ""}, "sasl.mechanism is missing"),
        ({**SASL, "sasl.password": ""}, "sasl.password is missing"),
        ({**SASL, "sasl.jaas.config": "x"}, "one of the settings sasl.jaas.config and"),
        ({**TLS, "ssl.truststore.location": "t.jks"}, "keytool -exportcert -rfc -alias CA -k"),
        (
            {**TLS, "ssl.keystore.location": "k.p12", "ssl.keystore.type": "PKCS12"},
            "type PKCS12 (ssl.keystore.type), which cannot be read here",
        ),
        ({**TLS, "ssl.key.location": "k"}, "ssl.key.location is given alone"),
        ({**TLS, "ssl.certificate.location": "c"}, "ssl.certificate.location is given alone"),
        (
            {**TLS, "ssl.ca.location": "a", "ssl.ca.pem": "b"},
            "one of the settings ssl.ca.location and ssl.ca.pem",
        ),
        ({**TLS, "ssl.enabled.protocols": "TLSv1.2,SSLv3"}, "ssl.enabled.protocols has 'SS"),
        ({**TLS, "ssl.endpoint.identification.algorithm": "x"}, "must be https, or none or empty"),
        ({**TLS, "enable.ssl.certificate.verification": "no"}, "must be true or false"),
    ],
)
def test_what_cannot_be_had_is_said(kafka: dict[str, str], why: str) -> None:
    with pytest.raises(SettingError) as failed:
        security_of(kafka)
    assert why in str(failed.value)
    assert "\n" not in str(failed.value)
    assert SECRET not in str(failed.value)


def test_plain_unless_it_is_said_otherwise() -> None:
    assert security_of({}) == Security()
    assert security_of({}).protocol == "PLAINTEXT"
    assert security_of({**SASL, "security.protocol": "plaintext"}) == Security()
    assert security_of(SASL).protocol == "SASL_PLAINTEXT"
    assert security_of({**SASL, "security.protocol": "sasl_ssl"}).protocol == "SASL_SSL"


def test_secrets_are_carried_but_not_shown() -> None:
    key = {"ssl.keystore.key": f"key {SECRET}", "ssl.keystore.certificate.chain": "c"}
    more = {**SASL, **key, "security.protocol": "SASL_SSL", "ssl.key.password": f"of key {SECRET}"}
    found = security_of(more)
    assert SECRET not in repr(found)
    assert pickle.loads(pickle.dumps(found)) == found
    assert found.tls is not None
    assert found.tls.key_password == f"of key {SECRET}"


def test_certificates_are_verified_unless_it_is_said_otherwise() -> None:
    context = context_of(Tls())
    assert context.check_hostname
    assert context.verify_mode.name == "CERT_REQUIRED"
    found = security_of({**TLS, "ssl.endpoint.identification.algorithm": "none"}).tls
    assert found is not None
    assert not context_of(found).check_hostname
    assert context_of(found).verify_mode.name == "CERT_REQUIRED"
    found = security_of({**TLS, "enable.ssl.certificate.verification": "false"}).tls
    assert found is not None
    assert context_of(found).verify_mode.name == "CERT_NONE"


@pytest.mark.parametrize(
    "tls",
    [
        Tls(trust=Pem("ssl.ca.location", location="/no/such/file.pem")),
        Tls(trust=Pem("ssl.ca.location", text=SECRET)),
        Tls(
            chain=Pem("ssl.certificate.location", location="/no/such/file.crt"),
            key=Pem("ssl.ca.location", location="/no/such/file.key"),
        ),
        Tls(chain=Pem("x", text=SECRET), key=Pem("ssl.ca.location", text=SECRET)),
    ],
)
def test_files_and_texts_that_are_no_pem(tls: Tls) -> None:
    with pytest.raises(SettingError, match=r"setting ssl\.ca\.location:.*as PEM") as failed:
        context_of(tls)
    assert SECRET not in str(failed.value)


def test_ciphers_by_openssls_names() -> None:
    found = context_of(Tls(ciphers="ECDHE-RSA-AES256-GCM-SHA384", versions=("TLSv1.2",)))
    assert "ECDHE-RSA-AES256-GCM-SHA384" in {c["name"] for c in found.get_ciphers()}
    with pytest.raises(SettingError, match=r"ssl\.cipher\.suites"):
        context_of(Tls(ciphers="NONE_SUCH"))
