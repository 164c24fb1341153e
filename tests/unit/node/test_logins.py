"""Who may log in: settings and metadata become machines; nobody learns who exists."""

from __future__ import annotations

import base64
import re
from dataclasses import replace

import pytest

from penstock.auth.delegation_tokens import token_hmac
from penstock.auth.mechanism import Challenge, Work
from penstock.auth.sasl import (
    Answer,
    Authenticate,
    Handshake,
    Moment,
    SaslConnection,
    WorkResult,
)
from penstock.auth.scram import (
    HASHES,
    ScramCredential,
    auth_message,
    client_key,
    client_proof,
    credential_of,
    salted_password,
)
from penstock.auth.scram_server import look
from penstock.config.broker_config import BrokerConfig, broker_config
from penstock.config.table import ConfigError
from penstock.metadata.image import MetadataImage
from penstock.metadata.security_image import DelegationToken
from penstock.node.logins import Logins, StoredCredentials, own_login

KAFKA_SALT = b"1abcdefghijklmnopqrstuvwxy"
PLAIN_JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="node" password="of-node" user_node="of-node" user_ann="of-ann";'
)
NOW = Moment(1_000_000, 1.0)


def config(**more: str) -> BrokerConfig:
    texts = {
        "log.dirs": "unused",
        "listeners": "A://127.0.0.1:1,B://127.0.0.1:2",
        "listener.security.protocol.map": "A:SASL_PLAINTEXT,B:SASL_PLAINTEXT",
        "inter.broker.listener.name": "A",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.a.plain.sasl.jaas.config": PLAIN_JAAS,
    }
    return broker_config(texts | {name.replace("_", "."): value for name, value in more.items()})


def image(**users: ScramCredential) -> MetadataImage:
    made = MetadataImage()
    for name, credential in users.items():
        made.security.scram[1, name] = credential
    return made


def credential(password: str, salt: bytes = KAFKA_SALT, iterations: int = 4096) -> ScramCredential:
    return credential_of(HASHES["SCRAM-SHA-256"], password.encode(), salt, iterations)


def asked(logins: Logins, user: str) -> tuple[bytes, int]:
    """The salt and the iterations that a login by SCRAM is shown."""
    login = logins.new_login("A", "10.0.0.1")
    login.take(Handshake(1, "SCRAM-SHA-256"), NOW)
    answer = login.take(Authenticate(f"n,,n={user},r=nonce".encode()), NOW)
    shown = re.fullmatch(rb"r=nonce[^,]+,s=([^,]+),i=(\d+)", answer.data)  # type: ignore[union-attr]
    assert shown
    return base64.b64decode(shown[1]), int(shown[2])


def test_users_of_settings_are_those_of_their_listener() -> None:
    logins = Logins(config(), image(), None)
    assert logins._configured.keys() == {"A"}
    with pytest.raises(ConfigError, match=r"listener\.name\.b\.plain\.sasl\.jaas\.config"):
        Logins(config(listener_name_b_plain_sasl_jaas_config="nonsense"), image(), None)


def by_token(logins: Logins, token_id: str, password: str, wall_ms: int) -> SaslConnection:
    """The connection after a login by SCRAM with a delegation token."""
    at = Moment(wall_ms, 1.0)
    login = logins.new_login("A", "10.0.0.1")
    login.take(Handshake(1, "SCRAM-SHA-256"), at)
    first = f"n={token_id},r=nonce,tokenauth=true"
    answer = login.take(Authenticate(f"n,,{first}".encode()), at)
    if isinstance(answer, Work):
        answer = login.take(WorkResult(answer.run()), at)
    assert isinstance(answer, Answer)
    shown = re.fullmatch(rb"(r=nonce[^,]+),s=([^,]+),i=(\d+)", answer.data)
    assert shown
    salted = salted_password("sha256", password.encode(), base64.b64decode(shown[2]), 4096)
    final = f"c=biws,{shown[1].decode()}"
    signed = auth_message(first, answer.data.decode(), final)
    proof = client_proof("sha256", client_key("sha256", salted), signed)
    login.take(Authenticate(f"{final},p={base64.b64encode(proof).decode()}".encode()), at)
    return login


def test_a_delegation_token_stands_for_its_owner_until_it_expires() -> None:
    made = image()
    made.security.tokens["t1"] = DelegationToken("t1", "User:ann", "User:root", (), 0, 2_000, 1_000)
    logins = Logins(config(delegation_token_secret_key="key"), made, None)
    password = base64.b64encode(token_hmac(b"key", "t1")).decode()
    login = by_token(logins, "t1", password, 500)
    assert login.principal is not None
    assert (login.principal.text, login.principal.token_authenticated) == ("User:ann", True)
    assert login.has_end
    assert by_token(logins, "t1", "wrong", 500).principal is None
    assert by_token(logins, "t2", password, 500).principal is None
    assert by_token(logins, "t1", password, 1_000).principal is None  # it has expired
    assert by_token(Logins(config(), made, None), "t1", password, 500).principal is None
    other = Logins(config(delegation_token_secret_key="other"), made, None)
    assert by_token(other, "t1", password, 500).principal is None


def test_an_unknown_user_is_asked_as_a_known_one_is() -> None:
    known = {f"user{i}": credential("p", iterations=8192) for i in range(3)}
    logins = Logins(config(), image(odd=credential("p", b"short", 4096), **known), None)
    salt, iterations = asked(logins, "user1")
    assert (salt, iterations) == (KAFKA_SALT, 8192)
    made_up, iterations = asked(logins, "nobody")
    assert iterations == 8192  # as most, not as the first
    assert not made_up.strip(b"0123456789abcdefghijklmnopqrstuvwxyz")
    assert 20 <= len(made_up) <= 26
    assert asked(logins, "nobody") == (made_up, 8192)
    assert asked(logins, "nobody2")[0] != made_up


def test_made_up_credentials_are_the_same_on_every_node_and_after_other_changes() -> None:
    users = {name: credential(name) for name in ("ann", "bob", "eve")}
    here, there = (Logins(config(), image(**users), None) for _ in range(2))
    before = asked(here, "nobody")
    assert asked(there, "nobody") == before
    changed = image(**users)
    logins = Logins(config(), changed, None)
    assert asked(logins, "nobody") == before
    changed.security.scram[1, "bob"] = credential("another")
    changed.security.scram[2, "zoe"] = credential("new")
    del changed.security.scram[1, "eve"]
    logins.credentials_changed()
    assert asked(logins, "nobody") == before  # so it cannot be told from ann, whose salt stays
    changed.security.scram[1, "ann"] = credential("another")
    logins.credentials_changed()
    assert asked(logins, "nobody") != before


def test_the_secret_is_none_that_others_can_compute() -> None:
    one, other = (StoredCredentials(image(ann=credential(p))).secret() for p in ("a", "b"))
    assert one != other
    assert StoredCredentials(image()).secret() != one


def test_the_pattern_looks_like_most() -> None:
    odd = credential("p", bytes(range(16)), 10_000)
    users = {"a": odd, "b": credential("p"), "c": credential("q")}
    store = StoredCredentials(image(**users))
    found = store.pattern("SCRAM-SHA-256")
    assert found is not None
    assert look(found) == (4096, 0)
    assert store.pattern("SCRAM-SHA-512") is None
    of_odd = StoredCredentials(image(a=odd, b=replace(odd))).pattern("SCRAM-SHA-256")
    assert of_odd is not None
    assert look(of_odd) == (10_000, 16)


def test_tokens_are_offered_only_where_keys_are_read() -> None:
    texts = {
        "sasl_enabled_mechanisms": "PLAIN,OAUTHBEARER",
        "sasl_oauthbearer_jwks_endpoint_url": "file:///keys",
    }
    login = Logins(config(**texts), image(), None).new_login("A", "h")
    answer = login.take(Handshake(1, "PLAIN"), NOW)
    assert answer.mechanisms == ("PLAIN",)  # type: ignore[union-attr]

    def validate(_token: str, _now_ms: int) -> Challenge:
        raise AssertionError

    login = Logins(config(**texts), image(), validate).new_login("A", "h")  # type: ignore[arg-type]
    answer = login.take(Handshake(1, "OAUTHBEARER"), NOW)
    assert answer.mechanisms == ("PLAIN", "OAUTHBEARER")  # type: ignore[union-attr]


def test_settings_that_cannot_be_used_leave_the_old_ones() -> None:
    logins = Logins(config(), image(), None)
    kept = logins._configured
    logins.settings_changed(config(listener_name_a_plain_sasl_jaas_config="nonsense"))
    assert logins._configured is kept
    logins.settings_changed(config(listener_name_b_plain_sasl_jaas_config=PLAIN_JAAS))
    assert logins._configured.keys() == {"A", "B"}


def test_the_login_of_the_node_itself() -> None:
    found = own_login(config(), "A")
    assert found is not None
    assert (found.mechanism, found.username, found.password) == ("PLAIN", "node", "of-node")
    assert "of-node" not in repr(found)
    assert own_login(broker_config({"log.dirs": "unused"}), "PLAINTEXT") is None
    with pytest.raises(ConfigError, match="it must be PLAIN"):
        own_login(config(sasl_mechanism_inter_broker_protocol="SCRAM-SHA-256"), "A")
    for jaas in ("nonsense", "PlainLoginModule required;"):
        with pytest.raises(ConfigError, match=r"listener\.name\.a\.plain\.sasl\.jaas\.config"):
            own_login(config(listener_name_a_plain_sasl_jaas_config=jaas), "A")
