"""Runs one script of requests on two brokers and says in which fields their answers differ.

Answers are made plain and comparable first: what must differ between two brokers (ids, addresses,
times, wording) is replaced by a mark, and lists whose order means nothing are sorted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.wire.messages.describe_cluster import DescribeClusterRequest

from .process import BrokerProcess
from .raw import Closed, RawClient

ZERO_ID = bytes(16)
ANSWER_SECONDS_MAX = 5.0

# Fields whose value is the broker's own affair; whether there is a value at all is compared.
OWN = {
    "acknowledge_error_message",
    "cluster_id",
    "documentation",
    "error_message",
    "batch_index_error_message",
    "host",
    "log_dir",
    "port",
    "producer_id",
    "total_bytes",
    "usable_bytes",
}
NODE_IDS = {"broker_id", "controller_id", "leader_id", "node_id"}
NODE_LISTS = {"isr_nodes", "replica_nodes", "eligible_leader_replicas", "offline_replicas"}
SKIPPED = {"throttle_time_ms", "session_id", "finalized_features_epoch"}

Answers = dict[str, Any]


class Script:
    """Asks one broker and keeps the plain answers by label."""

    def __init__(self, broker: BrokerProcess, name: str) -> None:
        self.broker = broker
        self.name = name
        self.answers: Answers = {}
        self._client = self._connect()
        self.node_id = self._own_id()

    def _connect(self) -> RawClient:
        return RawClient(self.broker.host, self.broker.port, seconds=ANSWER_SECONDS_MAX)

    def _own_id(self) -> int:
        return int(self._client.call(DescribeClusterRequest(), 0).brokers[0].broker_id)

    def ask(self, label: str, request: Any, version: int) -> Any:
        """Sends a request, notes the answer under `label` and returns it."""
        assert label not in self.answers, f"{label} was asked already"
        try:
            answer = self._client.call(request, version)
        except (Closed, TimeoutError) as error:
            self._client.close()
            self._client = self._connect()
            self.answers[label] = "<closed>" if isinstance(error, Closed) else "<no answer>"
            return None
        self.answers[label] = plain(answer)
        return answer

    def close(self) -> None:
        self._client.close()


def plain(value: Any, field: str = "") -> Any:
    """An answer as dicts, lists and plain values, with a broker's own affairs marked."""
    if hasattr(value, "FIELDS"):
        return {
            f.name: plain(getattr(value, f.name), f.name)
            for f in value.FIELDS
            if f.name not in SKIPPED
        }
    if field in OWN:
        return value if value in (None, "", -1) else f"<{field}>"
    if field in NODE_IDS:
        return value if value < 0 else "<node>"
    if field in NODE_LISTS and value is not None:
        return ["<node>"] * len(value)
    if field == "topic_id":
        return "<no id>" if bytes(value) == ZERO_ID else "<id>"
    if isinstance(value, list):
        return sorted((plain(item) for item in value), key=repr)
    if isinstance(value, memoryview | bytes):
        return bytes(value).hex()
    return value


def differences(one: Any, other: Any, path: str = "") -> list[str]:
    """Where two plain answers differ, as `path: one | other`."""
    if isinstance(one, dict) and isinstance(other, dict):
        return [
            line
            for key in one.keys() | other.keys()
            for line in differences(
                one.get(key, "<absent>"), other.get(key, "<absent>"), f"{path}/{key}"
            )
        ]
    if isinstance(one, list) and isinstance(other, list):
        if not one or not other:
            return [] if one == other else [f"{path}: {len(one)} | {len(other)} entries"]
        named_one, named_other = _named(one), _named(other)
        if named_one is not None and named_other is not None:
            return differences(named_one, named_other, path)
        if len(one) == len(other):
            return [
                line
                for i, (a, b) in enumerate(zip(one, other, strict=True))
                for line in differences(a, b, f"{path}/{i}")
            ]
    if path.endswith("error_message") and one in (None, ""):
        return []  # to say more than the referee is no difference
    return [] if one == other else [f"{path}: {one!r} | {other!r}"]


def _named(items: list[Any]) -> dict[str, Any] | None:
    """A list of things that carry a name of their own, by that name."""
    for key in (
        "name",
        "resource_name",
        "topic",
        "partition_index",
        "partition",
        "index",
        "api_key",
    ):
        if items and all(isinstance(item, dict) and key in item for item in items):
            named = {str(item[key]): item for item in items}
            return named if len(named) == len(items) else None
    return None


def compare(
    script: Callable[[Script], None], name: str, referee: BrokerProcess, tested: BrokerProcess
) -> list[str]:
    """Runs a script on both brokers; the lines say `label/path: referee's | tested's`."""
    runs = [Script(referee, name), Script(tested, name)]
    for run in runs:
        script(run)
        run.close()
    return sorted(differences(runs[0].answers, runs[1].answers))
