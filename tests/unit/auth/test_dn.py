"""Names of TLS clients: from whole certificates, and by rules, good and bad."""

from __future__ import annotations

import datetime
from contextlib import suppress

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from penstock.auth.dn import PrincipalMapper, name_text, subject_name
from penstock.auth.java_regex import compile_java
from unit.auth.random_names import der

ATTRIBUTES = st.lists(
    st.tuples(
        st.sampled_from(
            (
                NameOID.COMMON_NAME,
                NameOID.ORGANIZATION_NAME,
                NameOID.DOMAIN_COMPONENT,
                NameOID.USER_ID,
            )
        ),
        st.text("abcXYZ019.-é", min_size=1, max_size=20),
    ),
    max_size=5,
)


def certificate(*attributes: x509.NameAttribute) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    begin = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "the issuer")])
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name(attributes))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(2**70)
        .not_valid_before(begin)
        .not_valid_after(begin + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
        .public_bytes(Encoding.DER)
    )


def test_the_subject_of_a_certificate() -> None:
    made = certificate(
        x509.NameAttribute(NameOID.COUNTRY_NAME, "DE"),
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Sun, Inc."),
        x509.NameAttribute(NameOID.EMAIL_ADDRESS, "ab"),
        x509.NameAttribute(NameOID.COMMON_NAME, "Düke #1"),
    )
    wanted = "CN=Düke \\#1,1.2.840.113549.1.9.1=#16026162,O=Sun\\, Inc.,C=DE"
    assert subject_name(made) == wanted
    assert subject_name(certificate()) == ""


def test_what_is_no_certificate_has_no_name() -> None:
    made = certificate(x509.NameAttribute(NameOID.COMMON_NAME, "a"))
    for bad in (b"", made[:-1], made + b"\0", b"\x30\x84\xff\xff\xff\xff"):
        with pytest.raises(ValueError, match=r"."):
            subject_name(bad)


@given(ATTRIBUTES)
def test_plain_names_are_as_the_library_writes_them(
    pairs: list[tuple[x509.ObjectIdentifier, str]],
) -> None:
    name = x509.Name([x509.NameAttribute(oid, text) for oid, text in pairs])
    assert name_text(name.public_bytes()) == name.rfc4514_string()


def test_two_subjects_never_share_a_name_for_want_of_letters() -> None:
    latin = der(0x30, der(0x31, der(0x30, der(6, b"\x55\x04\x03") + der(0x14, b"\xe9"))))
    with pytest.raises(ValueError, match="not UTF-8"):
        name_text(latin)


def test_the_first_rule_that_matches_the_whole_name_decides() -> None:
    mapper = PrincipalMapper(
        "RULE:^CN=(.*?),OU=Service.*$/$1/L, RULE:CN=([^,]*)/plain-$1/, RULE:O=(.*)/$1/U"
    )
    assert mapper.name("CN=Duke,OU=ServiceUsers,C=DE") == "duke"
    assert mapper.name("CN=Duke") == "plain-Duke"
    assert mapper.name("CN=Duke,C=DE") is None
    assert mapper.name("O=acme") == "ACME"
    assert PrincipalMapper().name("CN=Duke") == "CN=Duke"
    assert PrincipalMapper("").name("CN=Duke") is None


def test_a_number_beyond_the_groups_is_literal() -> None:
    assert PrincipalMapper("RULE:CN=(.*)/$1$2$3/").name("CN=a") == "a$2$3"
    assert PrincipalMapper("RULE:CN=(.*)/$12/").name("CN=a") == "a2"
    assert PrincipalMapper("RULE:CN=(.*)/\\$1\\/$1/").name("CN=a") == "$1/a"


@pytest.mark.parametrize(
    ("rules", "sentence"),
    [
        ("RULE:foo", "RULE:pattern/replacement/"),
        ("RULE:(a/b/", "is wrong"),
        ("RULE:a/$/", "without a number"),
        ("RULE:a/$1/", "a pattern with groups"),
        ("RULE:(?<x>a)/${y}/", "names a group"),
        ("RULE:a/b/LU", "L or U"),
        ("RULE:\\p{L}/b/", "not supported"),
    ],
)
def test_bad_rules_are_refused_with_a_sentence(rules: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        PrincipalMapper(rules)


@given(st.text("ab(){}[]\\^$.|?*+:=!<>-&,09dwsQEzZkxu/P#", max_size=12))
def test_whatever_is_written_is_translated_or_refused(pattern: str) -> None:
    with suppress(ValueError):
        assert compile_java(pattern).groups <= len(pattern)


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ("RULE:(.*?)//U", "CN=DUKE"),
        ("RULE:(.*?)/-/", "-C-N-=-D-u-k-e-"),
        ("RULE:(.*)/<$1>/", "<CN=Duke><>"),
        ("RULE:^CN=(.*?)$/$1/L", "duke"),
    ],
)
def test_matches_are_replaced_as_java_replaces_them(rules: str, name: str) -> None:
    assert PrincipalMapper(rules).name("CN=Duke") == name
