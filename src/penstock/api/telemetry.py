"""What a connection's client has told of itself, for the two APIs of client telemetry.

It is kept with the connection: the software from ApiVersions, and the instance from the first
question or push. The services learn when the connection of an instance has ended.

Limits: SOFTWARE_CHARACTERS_MAX characters of a name or version.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.api.registry import Request
from penstock.base.ids import ZERO_UUID, Uuid
from penstock.net.connection import Connection
from penstock.serving.client_instances import Client
from penstock.serving.services import Services

SOFTWARE_CHARACTERS_MAX: Final = 256
_UNKNOWN: Final = "unknown"
"""What Kafka calls software that has no name."""


class Told:
    __slots__ = ("instance_id", "software_name", "software_version")

    def __init__(self) -> None:
        self.software_name = _UNKNOWN
        self.software_version = _UNKNOWN
        self.instance_id: Uuid = ZERO_UUID


def software_told(connection: Connection, name: str, version: str) -> None:
    """By ApiVersions."""
    told = _told(connection)
    told.software_name = name[:SOFTWARE_CHARACTERS_MAX]
    told.software_version = version[:SOFTWARE_CHARACTERS_MAX]


def client_of(request: Request[Any]) -> Client:
    connection, told = request.connection, _told(request.connection)
    return Client(
        request.client_id,
        told.software_name,
        told.software_version,
        connection.peer_host,
        connection.peer_port,
    )


def instance_told(services: Services, connection: Connection, instance_id: Uuid) -> None:
    """Have the services told when the connection of this instance ends."""
    told = _told(connection)
    told.instance_id = instance_id
    if connection.on_lost is None:
        connection.on_lost = lambda: services.telemetry.forget(told.instance_id)


def _told(connection: Connection) -> Told:
    told = connection.client
    if not isinstance(told, Told):
        told = connection.client = Told()
    return told
