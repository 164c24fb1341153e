"""The broker settings, each field a row of the table; `BrokerConfig()` has the defaults.

The fields stand in groups (one base class each, so that each can be read at one sitting): the node
itself, its network, its cluster, the topics it creates, its logs, consumer groups, and
transactions. A broker setting that only supplies a topic setting's default is declared with
`topic_default`, which takes type, default and bounds from the topic's row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.base.ids import parse_uuid
from penstock.config.broker_audit import AuditSettings
from penstock.config.broker_cluster import ClusterSettings, check_cluster
from penstock.config.broker_encryption import EncryptionSettings, check_encryption
from penstock.config.broker_groups import GroupSettings, check_groups
from penstock.config.broker_log import LogSettings
from penstock.config.broker_net import NetworkSettings
from penstock.config.broker_quotas import QuotaSettings
from penstock.config.broker_security import (
    AclSettings,
    DelegationTokenSettings,
    SaslSettings,
    TlsSettings,
    check_sasl,
    check_tls,
)
from penstock.config.broker_share_coordinator import ShareCoordinatorSettings
from penstock.config.broker_table import BrokerTable
from penstock.config.broker_transactions import TransactionSettings
from penstock.config.kafka_settings import read_kafka_settings
from penstock.config.listeners import (
    PLAINTEXT,
    SASL_PROTOCOLS,
    SECURITY_PROTOCOLS,
    SSL,
    TLS_PROTOCOLS,
    Listener,
    parse_address,
    parse_listeners,
    parse_per_ip,
    parse_protocol_map,
)
from penstock.config.table import (
    Between,
    ConfigError,
    Importance,
    OneOf,
    Only,
    SettingType,
    UpdateMode,
    at_least,
    setting,
    value_text,
)

HTTP_LISTENER: Final = "HTTP"
"""Under this name stand the ssl settings of the HTTP address."""
HTTPS: Final = "https://"
_NO_BROKER_ID = -1


@dataclass(frozen=True)
class NodeSettings:
    node_id: int = setting(
        SettingType.INT,
        1,
        "The node's number in its cluster; it is written into the data folder and must not change.",
        rule=at_least(0),
        importance=Importance.HIGH,
    )
    broker_id: int = setting(
        SettingType.INT,
        _NO_BROKER_ID,
        "The older name of `node.id`, which counts where `node.id` is not set.",
        rule=at_least(_NO_BROKER_ID),
        importance=Importance.HIGH,
    )
    process_roles: tuple[str, ...] = setting(
        SettingType.LIST,
        ("broker", "controller"),
        "What the node is. Every node is a broker, and those in the metadata quorum are its "
        "controllers, whatever is said here; so `broker` must be among them.",
        rule=OneOf(("broker", "controller")),
        importance=Importance.HIGH,
    )
    broker_rack: str | None = setting(
        SettingType.STRING,
        None,
        "Where the node stands (a machine or a room); replicas of a partition are spread over "
        "racks.",
    )
    controlled_shutdown_enable: bool = setting(
        SettingType.BOOLEAN,
        True,
        "Whether a stopping node hands its partitions over and writes its clean-shutdown marker.",
        rule=Only(True, "a Penstock node always stops in a controlled way"),
    )
    penstock_cluster_id: str | None = setting(
        SettingType.STRING,
        None,
        "The cluster's id (a uuid as 22 characters of base64) for a new data folder; chosen at "
        "random when it is not set. An existing data folder must carry the same.",
    )
    penstock_http_listen: str = setting(
        SettingType.STRING,
        "127.0.0.1:8082",
        "HOST:PORT of the HTTP address with `/metrics`, `/healthz` and `/readyz`; empty for none. "
        "`https://HOST:PORT` encrypts it: with the certificate that the `ssl` settings name, or "
        "one of its own (`listener.name.http.ssl.keystore.location` and the like; "
        "`listener.name.http.ssl.client.auth=required` lets in none but clients with a "
        "certificate).",
    )
    penstock_busy_poll_us: int = setting(
        SettingType.INT,
        50,
        "For how many microseconds after an answer the node looks for the next request before it "
        "sleeps, as long as requests do come so soon; 0 for never. Shortens what a client sees "
        "that waits for each answer, and costs processor time meanwhile.",
        rule=at_least(0),
    )
    penstock_log_level: str = setting(
        SettingType.STRING,
        "info",
        "The least severe messages that the node's own log shows.",
        rule=OneOf(("debug", "info", "warning", "error")),
        update=UpdateMode.PER_BROKER,
    )
    penstock_log_format: str = setting(
        SettingType.STRING,
        "text",
        "How the node's own log is written to stderr: lines for people or one JSON object per "
        "line.",
        rule=OneOf(("text", "json")),
    )
    penstock_metrics_request_histograms: str = setting(
        SettingType.STRING,
        "full",
        "Which buckets `/metrics` shows of the histograms of requests' times: all of every phase "
        "and of the total (full), every second of them (coarse), only those of the total (total), "
        "or none. Sums and counts, for averages, are always there.",
        rule=OneOf(("full", "coarse", "total", "none")),
    )
    penstock_metrics_per_topic: bool = setting(
        SettingType.BOOLEAN,
        True,
        "Whether `/metrics` shows traffic by topic; switch it off where topics are many. The "
        "totals stay.",
    )
    penstock_metrics_per_group: bool = setting(
        SettingType.BOOLEAN,
        True,
        "Whether `/metrics` shows the lag of consumer groups by group, topic and partition; switch "
        "it off where groups are many. The totals stay.",
    )
    penstock_metrics_per_partition: bool = setting(
        SettingType.BOOLEAN,
        True,
        "Whether `/metrics` shows size and offsets by partition; switch it off where partitions "
        "are many. The totals stay.",
    )


@dataclass(frozen=True)
class TopicSettings:
    num_partitions: int = setting(
        SettingType.INT,
        1,
        "How many partitions a topic gets when its creator does not say.",
        rule=at_least(1),
    )
    default_replication_factor: int = setting(
        SettingType.INT,
        1,
        "How many replicas a partition gets when the topic's creator does not say.",
        rule=Between(1, 32_767),
    )
    auto_create_topics_enable: bool = setting(
        SettingType.BOOLEAN,
        True,
        "Whether a client that asks for a missing topic's metadata makes it be created (if the "
        "client allows it).",
        importance=Importance.HIGH,
    )
    delete_topic_enable: bool = setting(
        SettingType.BOOLEAN,
        True,
        "Whether topics can be deleted.",
        importance=Importance.HIGH,
    )


@dataclass(frozen=True)
class BrokerConfig(
    NodeSettings,
    NetworkSettings,
    TlsSettings,
    SaslSettings,
    AclSettings,
    DelegationTokenSettings,
    AuditSettings,
    QuotaSettings,
    ClusterSettings,
    TopicSettings,
    LogSettings,
    EncryptionSettings,
    GroupSettings,
    TransactionSettings,
    ShareCoordinatorSettings,
):
    without_effect: tuple[tuple[str, str], ...] = ()
    """Settings of Kafka that were given and have no effect, with their values."""
    of_listeners: tuple[tuple[str, str, str], ...] = field(default=(), repr=False)
    """Settings of single listeners: listener, setting, text."""

    @property
    def data_dir(self) -> str:
        """The one data folder."""
        return (self.log_dirs or (self.log_dir,))[0]

    @property
    def inter_broker_listener(self) -> str:
        """The name of the listener by which brokers reach each other: where none is named, the
        first one that is not for the quorum alone.
        """
        if self.inter_broker_listener_name:
            return self.inter_broker_listener_name.upper()
        names = [listener.name for listener in self.listen]
        return next((name for name in names if name not in self.controller_listeners), names[0])

    @property
    def controller_listeners(self) -> tuple[str, ...]:
        """The names of the listeners that are for the quorum alone."""
        return tuple(name.upper() for name in self.controller_listener_names)

    @property
    def quorum_listener(self) -> str:
        """The name of the listener by which nodes reach each other for the quorum."""
        return (self.controller_listeners or (self.inter_broker_listener,))[0]

    @property
    def listen(self) -> tuple[Listener, ...]:
        return parse_listeners(self.listeners, "listeners")

    @property
    def advertised(self) -> tuple[Listener, ...]:
        """What clients are told to connect to; where it is not set, what is listened on."""
        return parse_listeners(self.advertised_listeners or self.listeners, "advertised.listeners")

    @property
    def bootstrap_servers(self) -> tuple[tuple[str, int], ...]:
        """Where an existing cluster is asked for, apart from the first voters and this node."""
        own = (*self.listen, *self.advertised)
        return tuple(
            server
            for server in super().bootstrap_servers
            if not any(listener.is_at(*server) for listener in own)
        )

    def of_listener(self, listener: str, name: str, default: int) -> int:
        """A number that one listener may have of its own."""
        own = [text for of, what, text in self.of_listeners if (of, what) == (listener, name)]
        return int(own[0]) if own else default

    def protocol(self, listener: str) -> str:
        """The security protocol of a listener."""
        if listener == HTTP_LISTENER and self.http_is_encrypted:
            return SSL
        protocols = parse_protocol_map(self.listener_security_protocol_map)
        return protocols.get(listener, listener if listener in SECURITY_PROTOCOLS else PLAINTEXT)

    def mechanisms(self, listener: str) -> tuple[str, ...]:
        """`sasl.enabled.mechanisms` of a listener, in upper case."""
        text = self._text_of(listener, "sasl.enabled.mechanisms")
        found = self.sasl_enabled_mechanisms if text is None else text.split(",")
        return tuple(name.strip().upper() for name in found)

    def jaas(self, listener: str, mechanism: str) -> str | None:
        """The login of a listener and a mechanism, as Java writes it."""
        return self._text_of(listener, f"{mechanism.lower()}.sasl.jaas.config")

    def max_reauth_ms(self, listener: str, mechanism: str) -> int:
        text = self._text_of(listener, f"{mechanism.lower()}.connections.max.reauth.ms")
        return self.connections_max_reauth_ms if text is None else int(text)

    def _text_of(self, listener: str, name: str) -> str | None:
        own = (text for of, what, text in self.of_listeners if (of, what) == (listener, name))
        return next(own, None)

    def tls_texts(self, listener: str) -> dict[str, str]:
        """The ssl settings of a listener that are set, its own before those of the node."""
        texts = {
            row.name: text
            for row in BROKER_SETTINGS
            if row.name.startswith("ssl.")
            and getattr(self, row.field) != row.default
            and (text := value_text(getattr(self, row.field))) is not None
        }
        own = {name: text for of, name, text in self.of_listeners if of == listener}
        return texts | {name: text for name, text in own.items() if name.startswith("ssl.")}

    @property
    def token_secret_key(self) -> bytes | None:
        """`delegation.token.secret.key`; None where there are no delegation tokens."""
        key = self.delegation_token_secret_key
        return key.encode() if key else None

    @property
    def per_ip_overrides(self) -> dict[str, int]:
        """`max.connections.per.ip.overrides` by address."""
        return parse_per_ip(self.max_connections_per_ip_overrides)

    @property
    def http_listen(self) -> tuple[str, int] | None:
        text = self.penstock_http_listen.removeprefix(HTTPS)
        return parse_address(text, "penstock.http.listen") if text else None

    @property
    def http_is_encrypted(self) -> bool:
        return self.penstock_http_listen.startswith(HTTPS)


_NO_TIER = "it has no remote tier"

BROKER_SETTINGS = BrokerTable(
    BrokerConfig,
    absent={
        "log.message.timestamp.difference.max.ms": "use log.message.timestamp.before.max.ms and "
        "log.message.timestamp.after.max.ms",
        "zookeeper.": "nodes keep the cluster's metadata themselves; use controller.quorum.voters",
        "config.providers.": "values are taken as they stand",
        "rlmm.config.": _NO_TIER,
        "rsm.config.": _NO_TIER,
        "password.encoder.": "there are no passwords in settings that it encodes",
    },
    kafka=read_kafka_settings(),
)


def broker_config(texts: Mapping[str, str]) -> BrokerConfig:
    """The typed settings of `texts` by name, checked one by one and against each other."""
    values: dict[str, Any] = BROKER_SETTINGS.parse(texts)
    config = BrokerConfig(
        **values | _node_id(values),
        without_effect=BROKER_SETTINGS.without_effect(texts),
        of_listeners=BROKER_SETTINGS.of_listeners(texts),
    )
    _check(config)
    return config


def _node_id(values: Mapping[str, Any]) -> dict[str, int]:
    """`node.id` by its older name, where that alone is given."""
    older = values.get("broker_id", _NO_BROKER_ID)
    if older == _NO_BROKER_ID:
        return {}
    if values.get("node_id", older) != older:
        raise ConfigError(
            f"node.id ({values['node_id']}) and broker.id ({older}) are the same setting: give "
            "one of them"
        )
    return {"node_id": older}


def _check(config: BrokerConfig) -> None:
    _check_addresses(config)
    _check_protocols(config)
    if "broker" not in config.process_roles:
        raise ConfigError(
            f"process.roles cannot be {','.join(config.process_roles)!r}: it must name broker, "
            "since every node is one"
        )
    if config.penstock_cluster_id is not None:
        try:
            parse_uuid(config.penstock_cluster_id)
        except ValueError as e:
            raise ConfigError(f"penstock.cluster.id is wrong: {e}") from e
    if config.log_dirs is not None and len(config.log_dirs) != 1:
        raise ConfigError(
            f"log.dirs cannot be {','.join(config.log_dirs)!r}: it must be one folder"
        )
    if 0 < config.queued_max_request_bytes < config.socket_request_max_bytes:
        raise ConfigError(
            f"queued.max.request.bytes ({config.queued_max_request_bytes}) cannot be less than "
            f"socket.request.max.bytes ({config.socket_request_max_bytes})"
        )
    _check_controller_listeners(config)
    check_cluster(config, config.node_id, {listener.name for listener in config.listen})
    check_encryption(config, config.penstock_encryption_key_id)
    check_groups(config)
    _check_time("log.retention.ms", config.log_retention_ms)
    _check_time("log.retention.minutes", config.log_retention_minutes)
    _check_time("log.retention.hours", config.log_retention_hours)


def _check_controller_listeners(config: BrokerConfig) -> None:
    here = {listener.name for listener in config.listen}
    named = config.controller_listeners
    if named and "controller" in config.process_roles and here.isdisjoint(named):
        raise ConfigError(
            f"controller.listener.names is {','.join(named)}, of which none is among listeners "
            f"({', '.join(sorted(here))}): add it there"
        )


def _check_addresses(config: BrokerConfig) -> None:
    if not config.listen:
        raise ConfigError("listeners cannot be empty: the node needs an address to listen on")
    names = {listener.name for listener in config.listen}
    for advertised in config.advertised:
        if advertised.name not in names:
            raise ConfigError(
                f"advertised.listeners names {advertised.name}, which is not among listeners "
                f"({', '.join(sorted(names))})"
            )
        if advertised.is_wildcard and config.advertised_listeners:
            raise ConfigError(
                f"advertised.listeners cannot be {str(advertised)!r}: clients need an address to "
                "connect to"
            )
    advertised_names = {listener.name for listener in config.advertised}
    for listener in config.listen:
        told = not config.advertised_listeners or listener.name not in advertised_names
        if told and listener.is_wildcard:
            raise ConfigError(
                f"listeners has {listener}, which is no address that clients can connect to: set "
                f"advertised.listeners to {listener.name}://HOST:{listener.port} with the name or "
                "address by which they reach this machine, or leave the host out in listeners "
                f"({listener.name}://:{listener.port}) to have this machine's own name advertised"
            )
    parse_per_ip(config.max_connections_per_ip_overrides)
    if config.http_listen is not None and config.http_is_encrypted and HTTP_LISTENER in names:
        raise ConfigError(
            f"listeners cannot have one by the name {HTTP_LISTENER} where penstock.http.listen is "
            "encrypted: its ssl settings have that name"
        )


def _check_protocols(config: BrokerConfig) -> None:
    http = [HTTP_LISTENER] if config.http_is_encrypted else []
    for name in [*(listener.name for listener in config.listen), *http]:
        if config.protocol(name) in TLS_PROTOCOLS:
            check_tls(name, config.tls_texts(name))
        if config.protocol(name) in SASL_PROTOCOLS:
            mechanisms = config.mechanisms(name)
            check_sasl(name, mechanisms, config.sasl_oauthbearer_jwks_endpoint_url)


def _check_time(name: str, value: int | None) -> None:
    if value is not None and (value == 0 or value < -1):
        raise ConfigError(f"{name} cannot be '{value}': it must be at least 1, or -1 for no limit")
