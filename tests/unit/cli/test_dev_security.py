"""The certificates and users of `penstock dev --secure`: what is made, and what is kept."""

from __future__ import annotations

import datetime
import ssl
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509

from penstock.auth.jaas import parse_jaas, plain_users
from penstock.cli.dev.folders import LocalNode, lay_out
from penstock.cli.dev.security import JAAS, LocalSecurity
from penstock.cli.errors import CliError
from penstock.config.load import read_properties


def made(root: Path, count: int | None, *, secure: bool = False) -> list[LocalNode]:
    nodes = lay_out(root, count, 21_000 if secure else None, {}, secure=secure)
    security = LocalSecurity(root)
    security.secure(nodes)
    security.write(nodes)
    for node in nodes:
        node.write()
    return nodes


def test_the_certificates_are_those_of_this_machine(tmp_path: Path) -> None:
    [node] = made(tmp_path, 1, secure=True)
    folder = tmp_path / "security"
    authority = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
    certificate = x509.load_pem_x509_certificate((folder / "node-1.pem").read_bytes())
    certificate.verify_directly_issued_by(authority)
    hosts = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert hosts.get_values_for_type(x509.DNSName) == ["localhost"]
    assert hosts.get_values_for_type(x509.IPAddress) == [ip_address("127.0.0.1")]
    now = datetime.datetime.now(datetime.UTC)
    assert certificate.not_valid_before_utc < now
    assert certificate.not_valid_after_utc > now + datetime.timedelta(days=3000)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(node.settings["ssl.keystore.location"])


@pytest.mark.skipif(not hasattr(ssl, "VERIFY_X509_STRICT"), reason="this OpenSSL is not strict")
def test_strict_clients_take_the_certificates(tmp_path: Path) -> None:
    made(tmp_path, 1, secure=True)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "security" / "node-1.pem")
    client = ssl.create_default_context(cafile=str(tmp_path / "security" / "ca.pem"))
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(back, there, server_hostname="127.0.0.1")
    theirs = server.wrap_bio(there, back, server_side=True)
    for side in (ours, theirs, ours, theirs):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    shown = ours.getpeercert()
    assert shown is not None
    assert shown["subject"] == ((("commonName", "node-1"),),)


def test_all_nodes_have_one_login_and_the_file_has_the_administrators(tmp_path: Path) -> None:
    nodes = made(tmp_path, 3, secure=True)
    [login] = {node.settings[JAAS] for node in nodes}
    options, users = parse_jaas(login).options, plain_users(login)
    assert options["username"] == "node"
    assert options["password"] == users["node"] != users["admin"]
    assert min(len(password) for password in users.values()) >= 32
    found = read_properties(tmp_path / "security" / "admin.properties").texts
    assert found == {
        "bootstrap.servers": "127.0.0.1:21000,127.0.0.1:21001,127.0.0.1:21002",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "admin",
        "sasl.password": users["admin"],
        "ssl.ca.location": str(tmp_path / "security" / "ca.pem"),
    }


def test_what_is_there_is_kept_and_new_nodes_fit_in(tmp_path: Path) -> None:
    before = made(tmp_path, 1, secure=True)
    files = {f.name: f.read_bytes() for f in (tmp_path / "security").iterdir()}
    after = made(tmp_path, 2)
    assert after[1].settings["listeners"] == "SASL_SSL://127.0.0.1:21001"
    assert after[1].settings[JAAS] == before[0].settings[JAAS]
    for name in ("ca.pem", "ca.key", "node-1.pem"):
        assert (tmp_path / "security" / name).read_bytes() == files[name]
    authority = x509.load_pem_x509_certificate(files["ca.pem"])
    new = x509.load_pem_x509_certificate((tmp_path / "security" / "node-2.pem").read_bytes())
    new.verify_directly_issued_by(authority)


def test_what_a_person_has_set_stays(tmp_path: Path) -> None:
    [node] = made(tmp_path, 1, secure=True)
    node.settings["sasl.enabled.mechanisms"] = "PLAIN"
    node.write()
    [again] = made(tmp_path, None)
    assert again.settings == node.settings


def test_without_the_key_of_the_authority_no_node_can_come(tmp_path: Path) -> None:
    made(tmp_path, 1, secure=True)
    (tmp_path / "security" / "ca.key").unlink()
    made(tmp_path, 1)
    with pytest.raises(CliError) as refused:
        made(tmp_path, 2)
    assert "ca.key cannot sign it: No such file" in refused.value.sentence


def test_a_lost_authority_is_made_anew_with_all_it_signs(tmp_path: Path) -> None:
    made(tmp_path, 1, secure=True)
    (tmp_path / "security" / "ca.pem").unlink()
    made(tmp_path, 1)
    authority = x509.load_pem_x509_certificate((tmp_path / "security" / "ca.pem").read_bytes())
    node = x509.load_pem_x509_certificate((tmp_path / "security" / "node-1.pem").read_bytes())
    node.verify_directly_issued_by(authority)


def test_an_administrator_that_was_taken_out_is_missed(tmp_path: Path) -> None:
    [node] = made(tmp_path, 1, secure=True)
    node.settings[JAAS] = node.settings[JAAS].replace("user_admin", "user_adam")
    node.write()
    with pytest.raises(CliError) as refused:
        made(tmp_path, None)
    assert 'has no user_admin="..."' in refused.value.sentence
    assert plain_users(node.settings[JAAS])["adam"] not in refused.value.sentence
