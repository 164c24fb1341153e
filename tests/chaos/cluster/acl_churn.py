"""ACLs of a user who has nothing to do with the load come and go while it runs.

Each change drops what nodes keep of their decisions; nobody else may notice. A change that fails
because of a fault is tried again.
"""

from __future__ import annotations

import contextlib

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # re-exported there without saying so
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from support.cluster import Cluster
from support.cluster_locked import acl

from .history import Recorder
from .workload import IMPATIENT, Client

STRANGER = "stranger"
EVERY_SECONDS = 0.1
CALL_SECONDS_MAX = 5.0


class AclChurn(Client):
    def __init__(self, cluster: Cluster, recorder: Recorder) -> None:
        super().__init__("acls", recorder)
        self._cluster = cluster
        self.changes = 0

    def work(self) -> None:
        lock = self._cluster.lock
        assert lock is not None
        servers = {"bootstrap.servers": self._cluster.bootstrap, **lock.admin, **IMPATIENT}
        client = AdminClient(servers)
        while not self.stopping.wait(EVERY_SECONDS):
            with contextlib.suppress(KafkaException):
                self._change(client)
                self.changes += 1

    def _change(self, client: AdminClient) -> None:
        topic = f"of-{STRANGER}-{self.changes // 2}"
        if self.changes % 2:
            every = AclBindingFilter(
                ResourceType.ANY, None, ResourcePatternType.ANY, f"User:{STRANGER}", None,
                AclOperation.ANY, AclPermissionType.ANY,
            )  # fmt: skip
            futures = client.delete_acls([every], request_timeout=CALL_SECONDS_MAX).values()
        else:
            rule = acl(ResourceType.TOPIC, topic, STRANGER, AclOperation.READ)
            futures = client.create_acls([rule], request_timeout=CALL_SECONDS_MAX).values()
        for future in futures:
            future.result(CALL_SECONDS_MAX * 2)
