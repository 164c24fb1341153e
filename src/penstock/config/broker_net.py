"""The broker settings of the network: addresses, socket sizes, and what bounds a client's use of
the node.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.config.table import Each, Importance, SettingType, UpdateMode, at_least, setting

_INT_MAX = (1 << 31) - 1


@dataclass(frozen=True)
class NetworkSettings:
    listeners: tuple[str, ...] = setting(
        SettingType.LIST,
        ("PLAINTEXT://127.0.0.1:9092",),
        "Where the node listens, as NAME://HOST:PORT; an empty host means every interface, port "
        "0 any free port. Kafka's default is every interface; without authentication, this "
        "machine alone is the safe one. While a node runs, listeners can be opened and closed, but "
        "for those that are advertised.",
        rule=Each(r"[^:/]+://.*:[0-9]+", "of NAME://HOST:PORT, as PLAINTEXT://127.0.0.1:9092"),
        update=UpdateMode.PER_BROKER,
        importance=Importance.HIGH,
    )
    advertised_listeners: tuple[str, ...] | None = setting(
        SettingType.LIST,
        None,
        "What clients are told to connect to, by listener name; where it is not set, `listeners`, "
        "and this machine's name for one without a host. One that listens on 0.0.0.0 or [::] needs "
        "it.",
        importance=Importance.HIGH,
    )
    listener_security_protocol_map: str = setting(
        SettingType.STRING,
        ",".join(f"{name}:{name}" for name in ("SASL_SSL", "PLAINTEXT", "SSL", "SASL_PLAINTEXT")),
        "The security protocol of each listener by its name, as NAME:PROTOCOL; a listener that is "
        "not named is PLAINTEXT.",
        update=UpdateMode.PER_BROKER,
        importance=Importance.LOW,
    )
    socket_request_max_bytes: int = setting(
        SettingType.INT,
        100 << 20,
        "The largest request; a connection that announces a larger one is closed.",
        rule=at_least(1),
        importance=Importance.HIGH,
    )
    queued_max_request_bytes: int = setting(
        SettingType.LONG,
        256 << 20,
        "How many bytes of requests may be in memory at once before the node stops reading; -1 "
        "for no limit. Kafka's default is no limit; here memory is bounded unless asked "
        "otherwise.",
        rule=at_least(1, also=-1),
    )
    max_connections: int = setting(
        SettingType.INT,
        _INT_MAX,
        "How many connections the node holds; one more is closed at once. Of a node with several "
        "listeners, the one by which nodes reach each other is not bound by it. As "
        "`listener.name.NAME.max.connections` for one listener (its name in lower case).",
        rule=at_least(0),
        update=UpdateMode.CLUSTER_WIDE,
    )
    max_connections_per_ip: int = setting(
        SettingType.INT,
        _INT_MAX,
        "How many connections one client address may hold; one more is closed at once.",
        rule=at_least(0),
        update=UpdateMode.CLUSTER_WIDE,
    )
    max_connections_per_ip_overrides: str = setting(
        SettingType.STRING,
        "",
        "Other limits than `max.connections.per.ip` for some addresses, as ADDRESS:NUMBER "
        "separated by commas. Kafka takes names of hosts too.",
        update=UpdateMode.CLUSTER_WIDE,
    )
    max_connection_creation_rate: int = setting(
        SettingType.INT,
        _INT_MAX,
        "How many connections may be made per second; what comes above it waits, for 30 seconds at "
        "most. As `listener.name.NAME.max.connection.creation.rate` for one listener.",
        rule=at_least(0),
        update=UpdateMode.CLUSTER_WIDE,
    )
    connections_max_idle_ms: int = setting(
        SettingType.LONG,
        600_000,
        "After how long a silent connection is closed; a negative number means never.",
    )
    socket_send_buffer_bytes: int = setting(
        SettingType.INT,
        -1,
        "The socket's send buffer; -1 leaves it to the operating system, which adapts it. "
        "Kafka's default is 102400.",
        rule=at_least(1, also=-1),
        importance=Importance.HIGH,
    )
    socket_receive_buffer_bytes: int = setting(
        SettingType.INT,
        -1,
        "The socket's receive buffer; -1 leaves it to the operating system, which adapts it. "
        "Kafka's default is 102400.",
        rule=at_least(1, also=-1),
        importance=Importance.HIGH,
    )
    socket_listen_backlog_size: int = setting(
        SettingType.INT,
        1024,
        "How many connections may wait to be accepted. Kafka's default is 50, which a burst of "
        "clients overruns.",
        rule=at_least(1),
    )
    max_incremental_fetch_session_cache_slots: int = setting(
        SettingType.INT,
        1000,
        "How many incremental fetch sessions the node remembers.",
        rule=at_least(0),
    )
    fetch_max_bytes: int = setting(
        SettingType.INT,
        55 << 20,
        "The most bytes that one fetch answer carries, whatever the client asks for.",
        rule=at_least(1024),
    )
    max_request_partition_size_limit: int = setting(
        SettingType.INT,
        2000,
        "How many partitions one DescribeTopicPartitions answer describes.",
        rule=at_least(1),
    )
