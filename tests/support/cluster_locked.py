"""What locks a cluster: TLS, logins and ACLs on the one listener that its nodes have.

Nodes and the administrator log in by PLAIN, from the settings, and are super users; clients by
SCRAM, as a user with ACLs whose sessions last `SESSION_MS`. Certificates may be replaced while the
nodes run.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # re-exported there without saying so
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from penstock.config.broker_security import STANDARD_AUTHORIZER
from penstock.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from penstock.wire.messages.sasl_handshake import SaslHandshakeRequest

from .certificates import Authority, client_context
from .places import Place
from .raw import Closed, Encrypted, RawClient
from .waiting import CALL_SECONDS_MAX

SESSION_MS: Final = 8_000
RELOAD_MS: Final = 300
USER, PASSWORD = "chaos", "of-chaos"
ADMIN, ADMIN_PASSWORD = "admin", "of-admin"
_NODE = 'username="node" password="of-node" user_node="of-node"'
_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
_LISTENER = "listener.name.sasl_ssl"
_RIGHTS = (
    (ResourceType.TOPIC, "*", AclOperation.ALL),
    (ResourceType.GROUP, "*", AclOperation.ALL),
    (ResourceType.TRANSACTIONAL_ID, "*", AclOperation.ALL),
    (ResourceType.BROKER, "kafka-cluster", AclOperation.IDEMPOTENT_WRITE),
)


class Lock:
    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._authority = Authority()
        self._trust = folder / "ca.pem"
        self._trust.write_text(self._authority.pem)
        self._context: ssl.SSLContext | None = None
        self._places: dict[int, Place] = {}
        tls = {"security.protocol": "SASL_SSL", "ssl.ca.location": str(self._trust)}
        plain = {"sasl.mechanism": "PLAIN", "sasl.username": ADMIN, "sasl.password": ADMIN_PASSWORD}
        scram = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": USER}
        self.admin = tls | plain
        self.client = tls | scram | {"sasl.password": PASSWORD}

    def settings(self, place: Place, node_id: int) -> dict[str, str]:
        """Those of a node."""
        self._places[node_id] = place
        self.renew(node_id)
        return {
            "listeners": f"SASL_SSL://{place.host}:{place.port}",
            "advertised.listeners": f"SASL_SSL://{place.reached_host}:{place.reached_port}",
            "inter.broker.listener.name": "SASL_SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._identity(node_id)),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._trust),
            "penstock.ssl.reload.interval.ms": str(RELOAD_MS),
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            f"{_LISTENER}.plain.sasl.jaas.config": (
                f'{_MODULE} required {_NODE} user_{ADMIN}="{ADMIN_PASSWORD}";'
            ),
            f"{_LISTENER}.scram-sha-512.connections.max.reauth.ms": str(SESSION_MS),
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": f"User:node;User:{ADMIN}",
        }

    def _identity(self, node_id: int) -> Path:
        return self._folder / f"node-{node_id}.pem"

    # Certificates

    def renew(self, node_id: int) -> None:
        """A new certificate in the place of the old one."""
        place = self._places[node_id]
        hosts = tuple(sorted({place.host, place.reached_host, "127.0.0.1"}))
        path = self._identity(node_id)
        fresh = path.with_suffix(".new")
        fresh.write_text(self._authority.issue(f"node-{node_id}", hosts))
        fresh.rename(path)

    def shows_the_newest(self, node_id: int) -> bool:
        """Whether a node shows new connections what `renew` has written last."""
        place = self._places[node_id]
        shown = ssl.get_server_certificate((place.reached_host, place.reached_port), timeout=5)
        return shown.strip() in self._identity(node_id).read_text()

    # Logins

    def connect(self, host: str, port: int, client_id: str, seconds: float) -> RawClient:
        """The administrator's; `Closed` where it is not let in."""
        if self._context is None:
            self._context = client_context(self._authority.pem)
        client = Encrypted(host, port, self._context, client_id, seconds)
        try:
            client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            token = f"\0{ADMIN}\0{ADMIN_PASSWORD}".encode()
            answer = client.call(SaslAuthenticateRequest(auth_bytes=token), 2)
            if answer.error_code:
                raise Closed(answer.error_message)
        except BaseException:
            client.close()
            raise
        return client

    def let_in(self, admin: AdminClient) -> None:
        """Makes the clients' user and its rights."""
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        made = UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
        for future in admin.alter_user_scram_credentials([made]).values():
            future.result(CALL_SECONDS_MAX)
        acls = [acl(kind, name, USER, operation) for kind, name, operation in _RIGHTS]
        for future in admin.create_acls(acls).values():
            future.result(CALL_SECONDS_MAX)


def acl(kind: ResourceType, name: str, user: str, operation: AclOperation) -> AclBinding:
    literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    return AclBinding(kind, name, literal, f"User:{user}", "*", operation, allow)
