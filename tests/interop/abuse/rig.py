"""A locked node, and connections to it that do what no client library would do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock.config.broker_security import STANDARD_AUTHORIZER
from penstock.wire.messages.create_acls import AclCreation, CreateAclsRequest
from penstock.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from penstock.wire.messages.sasl_handshake import SaslHandshakeRequest
from support.raw import RawClient
from support.secured import PLAIN_PASSWORD, PLAIN_USER
from support.secured_node import SecuredNode

LOCKED = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
"""The plain listener of a `SecuredNode` is then that of an administrator."""
FAILED = 58
RIGHT = f"\0{PLAIN_USER}\0{PLAIN_PASSWORD}".encode()


def raw(node: SecuredNode, listener: str = "SASL_PLAINTEXT") -> RawClient:
    return RawClient(node.host, node.ports[listener])


def admin(node: SecuredNode) -> RawClient:
    return RawClient(node.host, node.port)


def handshake(client: RawClient, mechanism: str) -> int:
    answer = client.call(SaslHandshakeRequest(mechanism=mechanism), 1)
    return int(answer.error_code)


def say(client: RawClient, message: bytes) -> Any:
    """The next message of a mechanism."""
    return client.call(SaslAuthenticateRequest(auth_bytes=message), 2)


@contextmanager
def login(node: SecuredNode, message: bytes = RIGHT) -> Iterator[RawClient]:
    """Somebody who got in by PLAIN."""
    with raw(node) as client:
        assert handshake(client, "PLAIN") == 0
        assert say(client, message).error_code == 0
        yield client


def allow(node: SecuredNode, *rules: tuple[int, int, str], user: str = PLAIN_USER) -> list[int]:
    """(operation, type of resource, name) each; the codes of the answer."""
    creations = [
        AclCreation(
            resource_type=kind,
            resource_name=name,
            principal=f"User:{user}",
            host="*",
            operation=operation,
            permission_type=3,
        )
        for operation, kind, name in rules
    ]
    with admin(node) as root:
        answer = root.call(CreateAclsRequest(creations=creations), 3)
    return [one.error_code for one in answer.results]
