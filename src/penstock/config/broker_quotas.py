"""The broker settings of quotas of clients: over which time a rate is measured.

The quotas themselves are in the metadata: they are set by AlterClientQuotas while nodes run.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.config.table import Importance, SettingType, at_least, setting


@dataclass(frozen=True)
class QuotaSettings:
    quota_window_num: int = setting(
        SettingType.INT,
        11,
        "How many samples the rate of a client is measured over, for quotas of bytes, of requests' "
        "time and of connections.",
        rule=at_least(1),
        importance=Importance.LOW,
    )
    quota_window_size_seconds: int = setting(
        SettingType.INT,
        1,
        "How long each of these samples is.",
        rule=at_least(1),
        importance=Importance.LOW,
    )
    controller_quota_window_num: int = setting(
        SettingType.INT,
        11,
        "As `quota.window.num`, for quotas of controller mutations: the bucket of a client holds "
        "what its quota allows in so many samples.",
        rule=at_least(1),
        importance=Importance.LOW,
    )
    controller_quota_window_size_seconds: int = setting(
        SettingType.INT,
        1,
        "How long each of these samples is.",
        rule=at_least(1),
        importance=Importance.LOW,
    )
