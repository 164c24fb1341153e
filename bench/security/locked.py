"""A node with users and ACLs, and what its administrator does: one user, and many rules.

The load comes in by a plain listener as `User:ANONYMOUS`, so that what is measured is the rules and
not encryption; logins go to listeners of their own.
"""

from __future__ import annotations

import os
from pathlib import Path

from bench.peers.penstock_server import PenstockServer
from bench.peers.wire import PeerError
from tests.support.process import free_port

from penstock.auth import scram
from penstock.auth.types import WILDCARD, Acl, Operation, PatternType, PermissionType, ResourceType
from penstock.config.broker_security import STANDARD_AUTHORIZER
from penstock.kafka.client import Client
from penstock.kafka.connection import Connection
from penstock.kafka.sasl import PLAIN, Sasl
from penstock.kafka.security import Security
from penstock.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)
from penstock.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse

from .servers import certificate_settings

ADMIN, ADMIN_PASSWORD = "admin", "a password of the bench"
USER = "ann"
SCRAM, SCRAM_NUMBER, ITERATIONS = "SCRAM-SHA-512", 2, 4096
LOGINS = ("SASL_PLAINTEXT", "SASL_SSL")
SCRAM_VERSION, ACLS_VERSION = 0, 3
RULES_AT_ONCE = 2_000
TOPICS = "load-"
"""What the names of all topics of the load begin with."""
ANONYMOUS = "User:ANONYMOUS"
_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


class LockedPenstock(PenstockServer):
    """`penstock serve` with listeners for logins; with rules once `lock` is set."""

    lock = False

    def __init__(self, folder: Path, *, fsync: bool = False) -> None:
        super().__init__(folder, fsync=fsync)
        self.login_ports = {name: free_port() for name in LOGINS}

    def settings(self) -> dict[str, str]:
        login = f'{_MODULE} required username="{ADMIN}" password="{ADMIN_PASSWORD}"'
        login += f' user_{ADMIN}="{ADMIN_PASSWORD}";'
        listeners = [f"PLAINTEXT://{self.host}:{self.port}"]
        listeners += [f"{name}://{self.host}:{port}" for name, port in self.login_ports.items()]
        settings = {
            **super().settings(),
            **certificate_settings(self.folder, self.host),
            "listeners": ",".join(listeners),
            "inter.broker.listener.name": "SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": f"{PLAIN},{SCRAM}",
            "sasl.mechanism.inter.broker.protocol": PLAIN,
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": login,
        }
        if self.lock:
            settings["authorizer.class.name"] = STANDARD_AUTHORIZER
            settings["super.users"] = f"User:{ADMIN}"
        return settings

    def _admin(self) -> Connection:
        client = Client("bench", Security(sasl=Sasl(PLAIN, ADMIN, ADMIN_PASSWORD)))
        return Connection((self.host, self.login_ports["SASL_PLAINTEXT"]), client)

    def add_user(self) -> None:
        """One that logs in by SCRAM and by PLAIN."""
        salt, password = os.urandom(16), os.urandom(16)
        salted = scram.salted_password(scram.HASHES[SCRAM], password, salt, ITERATIONS)
        wanted = ScramCredentialUpsertion(
            name=USER,
            mechanism=SCRAM_NUMBER,
            iterations=ITERATIONS,
            salt=salt,
            salted_password=salted,
        )
        with self._admin() as admin:
            request = AlterUserScramCredentialsRequest(upsertions=[wanted])
            answer = admin.call(request, AlterUserScramCredentialsResponse, SCRAM_VERSION)
        if answer.results[0].error_code:
            raise PeerError(f"the user was not made: {answer.results[0].error_message}")

    def add_rules(self, count: int) -> None:
        """So many, of which one allows the load what it does."""
        wanted = [_creation(rule) for rule in rules(count)]
        with self._admin() as admin:
            for start in range(0, count, RULES_AT_ONCE):
                request = CreateAclsRequest(creations=wanted[start : start + RULES_AT_ONCE])
                answer = admin.call(request, CreateAclsResponse, ACLS_VERSION)
                if refused := [result for result in answer.results if result.error_code]:
                    raise PeerError(f"rules were refused: {refused[0].error_message}")


class RuledPenstock(LockedPenstock):
    """The same with rules."""

    lock = True


def rules(count: int) -> list[Acl]:
    """Rules as a large cluster has them: of users and roles, for topics and groups, by names and by
    prefixes; a tenth of them for the principal of the load, but for other topics.
    """
    found = [_rule(TOPICS, ANONYMOUS, Operation.ALL, prefixed=True)]
    for number in range(count - 1):
        mine, prefixed = number % 10 == 0, number % 4 == 0
        who = ANONYMOUS if mine else f"{('User', 'Role')[number % 2]}:team-{number % 500}"
        kind = ResourceType.GROUP if number % 5 == 4 else ResourceType.TOPIC
        operation = Operation.READ if number % 3 else Operation.DESCRIBE
        found.append(_rule(f"orders-{number}", who, operation, kind, prefixed=prefixed))
    return found


def _rule(
    name: str,
    who: str,
    operation: Operation,
    kind: ResourceType = ResourceType.TOPIC,
    *,
    prefixed: bool,
) -> Acl:
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    return Acl(kind, name, pattern, who, WILDCARD, operation, PermissionType.ALLOW)


def _creation(rule: Acl) -> AclCreation:
    return AclCreation(
        resource_type=rule.resource_type,
        resource_name=rule.resource_name,
        resource_pattern_type=rule.pattern_type,
        principal=rule.principal,
        host=rule.host,
        operation=rule.operation,
        permission_type=rule.permission,
    )
