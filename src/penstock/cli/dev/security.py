"""What a local cluster with security has: certificates, users, and the settings of nodes and of the
administrator's client.

`DIR/security/` holds the certificates (`certificates.py`) and `admin.properties`, with which
clients log in as `admin`. The passwords stand in the nodes' own settings, from where new nodes and
`admin.properties` have them: they are never an argument of a process, and files have mode 0600.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from penstock.auth.jaas import plain_users
from penstock.base.private_files import make_private_folder, write_private
from penstock.cli.dev.certificates import Authority
from penstock.cli.dev.folders import SECURE, LocalNode
from penstock.cli.errors import usage_error
from penstock.config.broker_security import STANDARD_AUTHORIZER
from penstock.config.properties import property_line

JAAS: Final = f"listener.name.{SECURE.lower()}.plain.sasl.jaas.config"
NODE_USER: Final = "node"
ADMIN_USER: Final = "admin"
PASSWORD_BYTES: Final = 24
_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"

_HEAD = """\
# The administrator of a local cluster; written by `penstock dev` at each start.
# penstock topic list --config {path}
"""


class LocalSecurity:
    """That of the cluster in `root`."""

    def __init__(self, root: Path) -> None:
        folder = root.resolve() / "security"
        self._authority = Authority(folder)
        self.folder = folder
        self.config_path = folder / "admin.properties"

    def secure(self, nodes: Iterable[LocalNode]) -> None:
        """Adds to the settings of nodes what security needs; what they have stays."""
        nodes = list(nodes)
        login = next((node.settings[JAAS] for node in nodes if JAAS in node.settings), None)
        common = self._settings(login or _new_login())
        for node in nodes:
            identity = {"ssl.keystore.location": str(self._authority.node_path(node.number))}
            node.settings |= {
                name: text
                for name, text in (common | identity).items()
                if name not in node.settings
            }

    def write(self, nodes: Iterable[LocalNode]) -> None:
        """Makes the certificates that are missing, and the file for clients."""
        nodes = list(nodes)
        make_private_folder(self.folder)
        self._authority.provide([node.number for node in nodes])
        settings = {
            "bootstrap.servers": ",".join(node.address for node in nodes),
            "security.protocol": SECURE,
            "sasl.mechanism": "PLAIN",
            "sasl.username": ADMIN_USER,
            "sasl.password": _password(nodes[0]),
            "ssl.ca.location": str(self._authority.certificate_path),
        }
        lines = [property_line(name, text) for name, text in settings.items()]
        head = _HEAD.format(path=self.config_path)
        write_private(self.config_path, head + "".join(lines))

    def _settings(self, login: str) -> dict[str, str]:
        return {
            "inter.broker.listener.name": SECURE,
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            JAAS: login,
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": f"User:{NODE_USER};User:{ADMIN_USER}",
            "ssl.keystore.type": "PEM",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._authority.certificate_path),
        }


def _new_login() -> str:
    """How nodes log in to each other, and who may log in by PLAIN: nodes and the administrator."""
    node, admin = (secrets.token_urlsafe(PASSWORD_BYTES) for _ in range(2))
    users = f'user_{NODE_USER}="{node}" user_{ADMIN_USER}="{admin}"'
    return f'{_MODULE} required username="{NODE_USER}" password="{node}" {users};'


def _password(node: LocalNode) -> str:
    """The administrator's."""
    try:
        return plain_users(node.settings[JAAS])[ADMIN_USER]
    except (ValueError, KeyError):
        raise usage_error(
            f'{node.config_path}: {JAAS} has no user_{ADMIN_USER}="...", which `penstock dev` logs'
            " in with"
        ) from None
