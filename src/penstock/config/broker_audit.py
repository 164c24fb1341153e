"""The broker settings of the audit log: whether there is one, of what, and what happens when it
cannot be written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.config.table import (
    Each,
    Importance,
    OneOf,
    SettingType,
    at_least,
    setting,
)

MANAGEMENT: Final = "management"
DENIED: Final = "denied"
AUTHENTICATION: Final = "authentication"
PUBLISH: Final = "publish"
CONSUME: Final = "consume"
DROP: Final = "drop"
REFUSE: Final = "refuse"
_DAY_MS: Final = 24 * 60 * 60 * 1000


@dataclass(frozen=True)
class AuditSettings:
    penstock_audit_enable: bool = setting(
        SettingType.BOOLEAN,
        False,
        "Whether this node writes who did what, allowed or not, to the topic `__audit`, which is "
        "created for it. Set it on every node: each writes what happens at its own listeners.",
        importance=Importance.HIGH,
    )
    penstock_audit_categories: tuple[str, ...] = setting(
        SettingType.LIST,
        (MANAGEMENT, DENIED, AUTHENTICATION),
        "What is written: `management` (requests that change the cluster), `denied` (what an ACL, "
        "or the want of one, forbids), `authentication` (logins that succeed or fail), `publish` "
        "and `consume` (who writes to and reads from which topic).",
        rule=OneOf((MANAGEMENT, DENIED, AUTHENTICATION, PUBLISH, CONSUME)),
    )
    penstock_audit_excluded_principals: tuple[str, ...] = setting(
        SettingType.LIST,
        (),
        "Principals of whom nothing is written, as `User:node`; a login that fails always is.",
        rule=Each(r"[^:]+:.+", "a list of principals, as User:node"),
    )
    penstock_audit_queue_max_events: int = setting(
        SettingType.INT,
        10_000,
        "How many events wait at most while they cannot be written; one that names many resources "
        "counts once for each.",
        rule=at_least(1),
    )
    penstock_audit_overflow: str = setting(
        SettingType.STRING,
        DROP,
        "What happens when so many events wait. `drop`: further events are lost, counted, and "
        "reported in the log of the node. `refuse`: nothing is done that could not be written: "
        "such requests are answered with POLICY_VIOLATION, and logins are refused.",
        rule=OneOf((DROP, REFUSE)),
    )
    penstock_audit_retention_ms: int = setting(
        SettingType.LONG,
        90 * _DAY_MS,
        "`retention.ms` of `__audit` when it is created; -1 keeps everything. Later it is changed "
        "as that of any topic.",
        rule=at_least(1, also=-1),
    )
