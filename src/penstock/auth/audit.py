"""The events of the audit log, and their JSON in the shape of OCSF 1.3.

Three classes of OCSF are used: Authentication (3002) for logins, API Activity (6003) for what was
asked for and denied or done, Application Lifecycle (6002) for the log itself: that it begins, ends,
and how many events were lost. What OCSF has no field for is in `unmapped`.

Limits: every text that a client can choose is cut to `TEXT_CHARS_MAX` when the event is made;
an event names at most `RESOURCES_PER_EVENT_MAX` resources, and who has more makes more events.
Control characters and all that is not ASCII are escaped by JSON, so that an event is one line.
Pure: any thread may encode an event that is not changed any more.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

from penstock.auth.principal import USER, Principal

OCSF_VERSION: Final = "1.3.0"
TEXT_CHARS_MAX: Final = 256
RESOURCES_PER_EVENT_MAX: Final = 100
PRODUCT: Final = "Penstock"
_OTHER: Final = 99


class Kind(NamedTuple):
    """A class of OCSF and an activity of it."""

    class_uid: int
    class_name: str
    category_uid: int
    category_name: str
    activity_id: int
    activity_name: str


def _api(activity_id: int, activity_name: str) -> Kind:
    return Kind(6003, "API Activity", 6, "Application Activity", activity_id, activity_name)


def _lifecycle(activity_id: int, activity_name: str) -> Kind:
    return Kind(
        6002, "Application Lifecycle", 6, "Application Activity", activity_id, activity_name
    )


LOGON: Final = Kind(3002, "Authentication", 3, "Identity & Access Management", 1, "Logon")
CREATE: Final = _api(1, "Create")
READ: Final = _api(2, "Read")
UPDATE: Final = _api(3, "Update")
DELETE: Final = _api(4, "Delete")
OTHER: Final = _api(_OTHER, "Other")
LOG_STARTED: Final = _lifecycle(3, "Start")
LOG_STOPPED: Final = _lifecycle(4, "Stop")
EVENTS_LOST: Final = _lifecycle(_OTHER, "Other")


class Status(Enum):
    """Its number and name in OCSF; PARTIAL is what OCSF leaves to us."""

    SUCCESS = (1, "Success")
    FAILURE = (2, "Failure")
    PARTIAL = (_OTHER, "Partial")


class Resource(NamedTuple):
    type: str
    name: str
    data: Mapping[str, Any] | None = None
    """Numbers, flags, short texts and lists of them; never a secret."""


class AuditEvent:
    """One thing that happened, or the same thing `count` times."""

    __slots__ = (
        "category",
        "client_id",
        "count",
        "detail",
        "end_ms",
        "fields",
        "kind",
        "operation",
        "principal",
        "resources",
        "status",
        "time_ms",
    )

    def __init__(
        self,
        category: str,
        kind: Kind,
        operation: str,
        status: Status,
        principal: Principal,
        time_ms: int,
        resources: tuple[Resource, ...] = (),
        *,
        client_id: str | None = None,
        detail: str = "",
        fields: Mapping[str, Any] | None = None,
    ) -> None:
        """`detail`: why it failed; `fields`: what else is said, under names of OCSF."""
        self.category = category
        self.kind = kind
        self.operation = operation
        self.status = status
        self.principal = principal
        self.time_ms = self.end_ms = time_ms
        self.count = 1
        self.resources = resources
        self.client_id = None if client_id is None else cut(client_id)
        self.detail = cut(detail)
        self.fields = fields or {}

    @property
    def key(self) -> Hashable:
        """The same for events that can be told as one."""
        return (self.kind, self.operation, self.status, self.principal.key, self.resources)

    def again(self, time_ms: int) -> None:
        self.count += 1
        self.end_ms = time_ms


class Origin(NamedTuple):
    """The node that writes, and its version; `run` is another one at each start."""

    node_id: int
    version: str
    run: str


def cut(text: str) -> str:
    return text if len(text) <= TEXT_CHARS_MAX else f"{text[:TEXT_CHARS_MAX]}..."


def encode(event: AuditEvent, sequence: int, origin: Origin) -> bytes:
    """One line of JSON; `sequence` numbers the events of a run."""
    kind, status = event.kind, event.status
    status_id, status_name = status.value
    failed = status is not Status.SUCCESS
    shown: dict[str, Any] = {
        "class_uid": kind.class_uid,
        "class_name": kind.class_name,
        "category_uid": kind.category_uid,
        "category_name": kind.category_name,
        "activity_id": kind.activity_id,
        "activity_name": kind.activity_name,
        "type_uid": kind.class_uid * 100 + kind.activity_id,
        "severity_id": 3 if failed else 1,
        "severity": "Medium" if failed else "Informational",
        "status_id": status_id,
        "status": status_name,
        "time": event.time_ms,
        "metadata": _metadata(sequence, origin),
    }
    if event.detail:
        shown["status_detail"] = event.detail
    if event.count > 1:
        shown |= {"count": event.count, "start_time": event.time_ms, "end_time": event.end_ms}
    shown |= _who(event)
    shown |= event.fields
    if event.resources:
        shown["resources"] = [_resource(one) for one in event.resources]
    shown["unmapped"] = {"category": event.category, "node_id": origin.node_id}
    return json.dumps(shown, ensure_ascii=True, separators=(",", ":")).encode("ascii")


def _metadata(sequence: int, origin: Origin) -> dict[str, Any]:
    product = {"name": PRODUCT, "vendor_name": PRODUCT, "version": origin.version}
    uid = f"{origin.node_id}-{origin.run}-{sequence}"
    return {"version": OCSF_VERSION, "product": product, "uid": uid, "sequence": sequence}


def _who(event: AuditEvent) -> dict[str, Any]:
    """Who did it, from where and by which request."""
    principal = event.principal
    user: dict[str, Any] = {"name": cut(principal.name), "uid": cut(principal.text)}
    if principal.type == USER:
        user |= {"type_id": 1, "type": "User"}
    else:
        user |= {"type_id": _OTHER, "type": cut(principal.type)}
    shown: dict[str, Any] = {}
    if event.kind.class_uid == LOGON.class_uid:
        shown["user"] = user
    elif event.kind.class_uid == OTHER.class_uid:
        actor: dict[str, Any] = {"user": user}
        if event.client_id is not None:
            actor["app_name"] = event.client_id
        shown |= {"actor": actor, "api": {"operation": event.operation}}
    else:
        shown["app"] = {"name": PRODUCT, "feature": {"name": "audit log"}}
    if principal.host:
        shown["src_endpoint"] = {"ip": principal.host}
    return shown


def _resource(resource: Resource) -> dict[str, Any]:
    shown: dict[str, Any] = {"type": resource.type, "name": cut(resource.name)}
    if resource.data:
        shown["data"] = {key: _bounded(value) for key, value in resource.data.items()}
    return shown


def _bounded(value: Any) -> Any:
    if isinstance(value, str):
        return cut(value)
    if isinstance(value, list):
        return [_bounded(one) for one in value[:RESOURCES_PER_EVENT_MAX]]
    return value
