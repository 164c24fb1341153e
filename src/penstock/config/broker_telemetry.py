"""The broker settings of clients' metrics (KIP-714): whether they are taken, and how many.

What clients are asked for is set by subscriptions, in `client_metrics_config`.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.config.table import Importance, SettingType, at_least, setting


@dataclass(frozen=True)
class TelemetrySettings:
    penstock_telemetry_enable: bool = setting(
        SettingType.BOOLEAN,
        True,
        "Whether clients are told that they may push their metrics to this node, which shows them "
        "on `/metrics`. They push none unless a subscription asks for some "
        "(`penstock config set client-metrics:NAME`).",
    )
    penstock_telemetry_max_series: int = setting(
        SettingType.INT,
        10_000,
        "How many numbers of clients `/metrics` shows at most; further ones are dropped, and "
        "counted there.",
        rule=at_least(0),
    )
    telemetry_max_bytes: int = setting(
        SettingType.INT,
        1_048_576,
        "How many bytes the metrics of one push have at most, packed and unpacked.",
        rule=at_least(1),
        importance=Importance.LOW,
    )
