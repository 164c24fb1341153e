"""Features of Apache Kafka that its storage tool, which was not run, would have switched on."""

from __future__ import annotations

from kafka.admin import KafkaAdminClient

ELIGIBLE_LEADER_REPLICAS = "eligible.leader.replicas.version"
SHARE_VERSION = "share.version"
GROUPS = "group.version"


def enable_feature(bootstrap: str, name: str, level: int = 1) -> None:
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    done = client.update_features({name: level})
    client.close()
    assert done == {name: "OK"}, done
