"""A setting that nothing reads would be accepted and do nothing."""

from __future__ import annotations

import re
from pathlib import Path

from penstock.config.broker_config import BROKER_SETTINGS
from penstock.config.broker_groups import BOUNDED
from penstock.config.client_metrics_config import CLIENT_METRICS_SETTINGS
from penstock.config.group_config import GROUP_SETTINGS
from penstock.config.log_config import TOPIC_SETTINGS
from penstock.config.table import Only

SOURCE = Path(__file__).parents[3] / "src" / "penstock"
# Read through properties of BrokerConfig.
BY_PROPERTY = {
    "controller.listener.names": "controller_listeners",
    "controller.quorum.bootstrap.servers": "bootstrap_servers",
    "controller.quorum.voters": "first_voters",
    "delegation.token.secret.key": "token_secret_key",
    "inter.broker.listener.name": "inter_broker_listener",
    "listeners": "listen",
    "advertised.listeners": "advertised",
    "log.dir": "data_dir",
    "log.dirs": "data_dir",
    "max.connections.per.ip.overrides": "per_ip_overrides",
    "penstock.http.listen": "http_listen",
    "sasl.enabled.mechanisms": "mechanisms",
    "penstock.retention.consumed": "deletes_consumed",
    "sasl.jaas.config": "jaas",
    "connections.max.reauth.ms": "max_reauth_ms",
}
# Held against other settings when they are read.
CHECKED = {
    "broker.id",
    "group.streams.max.standby.replicas",
    "listener.security.protocol.map",
    "process.roles",
}
# Topic settings that are taken without effect, as their texts say.
WITHOUT_EFFECT = {"local.retention.bytes", "local.retention.ms", "preallocate"}
# Bounds of other settings, held when the settings are read.
BOUNDS = re.compile(
    rf"group\.({'|'.join(BOUNDED)})\.(min|max)\.("
    + "|".join(re.escape(what) for kind in BOUNDED.values() for what in kind)
    + ")"
)


def test_every_setting_is_read_somewhere() -> None:
    outside = [path for path in SOURCE.rglob("*.py") if path.parent.name != "config"]
    attributes, texts = set(), ""
    for path in outside:
        text = path.read_text(encoding="utf-8")
        attributes |= set(re.findall(r"\.(\w+)", text))
        texts += text
    narrower = [*TOPIC_SETTINGS, *GROUP_SETTINGS, *CLIENT_METRICS_SETTINGS]
    defaults = {synonym.name for row in narrower for synonym in row.synonyms}
    rows = [*narrower, *(row for row in BROKER_SETTINGS if row.name not in defaults)]
    unread = [
        row.name
        for row in rows
        if not isinstance(row.rule, Only)
        and row.name not in CHECKED | WITHOUT_EFFECT
        and BOUNDS.fullmatch(row.name) is None
        and BY_PROPERTY.get(row.name, row.field) not in attributes
        # Those of TLS are handed on as texts, by name, to what reads them for clients, too.
        and not (row.name.startswith("ssl.") and f'"{row.name}"' in texts)
    ]
    assert unread == []
