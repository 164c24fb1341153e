"""Every generated alert, as promtool evaluates it: when it fires and what it says then, and when it
does not.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from penstock.cli.generate.alerts import rule_file
from penstock.cli.generate.rules import Alert, rules
from support import prometheus
from support.prometheus import JOB, promtool

pytestmark = [
    pytest.mark.penstock_only,
    pytest.mark.skipif(prometheus.missing() is not None, reason=str(prometheus.missing())),
]

AT = f'{{job="{JOB}",instance="a:1"}}'
ELSEWHERE = '{job="other",instance="a:1"}'
NODE = {"job": JOB, "instance": "a:1"}
CLUSTER = {"job": JOB}
INTERVAL = "1m"
GIB = 1 << 30


class Case(NamedTuple):
    alert: str
    wrong: dict[str, str]
    """Series and their values, a minute apart, by which the alert fires."""
    right: dict[str, str]
    """The same series with values that are in order."""
    at: str = "30m"
    labels: dict[str, str] = NODE
    value: str = ""
    """How the annotations show the value, where they do."""


def constant(name: str, value: float, labels: str = AT) -> dict[str, str]:
    return {name + labels: f"{value:g}x600"}


def histogram(name: str, slow: int, labels: str) -> dict[str, str]:
    """Ten observations a minute, of which so many took between 2.1 and 4.3 seconds."""
    inside = f'{labels[:-1]},le="2.147483648"}}'
    outside = f'{labels[:-1]},le="4.294967296"}}'
    whole = f'{labels[:-1]},le="+Inf"}}'
    return {
        f"{name}_bucket{inside}": f"0+{10 - slow}x600",
        f"{name}_bucket{outside}": "0+10x600",
        f"{name}_bucket{whole}": "0+10x600",
    }


def disk(free_part: float) -> dict[str, str]:
    total = 1000 * GIB
    return constant("penstock_log_dir_free_bytes", free_part * total) | constant(
        "penstock_log_dir_total_bytes", total
    )


def filling(per_minute: int) -> dict[str, str]:
    free = f"{400 * GIB}-{per_minute}x600"
    return constant("penstock_log_dir_total_bytes", 1000 * GIB) | {
        f"penstock_log_dir_free_bytes{AT}": free
    }


def certificate(days: float) -> dict[str, str]:
    """One that ends so long after the tests' beginning of time."""
    return constant("penstock_certificate_not_after_seconds", days * 24 * 3600, LISTENER_AT)


def dead_letters_waiting(records: int) -> dict[str, str]:
    return constant("penstock_share_dead_letters_waiting", records, AT[:-1] + ',group="workers"}')


def produce(failed: int) -> dict[str, str]:
    return {
        f"penstock_produce_requests_total{AT}": "0+100x600",
        f"penstock_failed_produce_requests_total{AT}": f"0+{failed}x600",
    }


REFUSED = {"listener": "PLAINTEXT", "reason": "max.connections"}
REFUSED_AT = AT[:-1] + ',listener="PLAINTEXT",reason="max.connections"}'
PRODUCE_AT = AT[:-1] + ',api="Produce"}'
FETCH_AT = AT[:-1] + ',api="Fetch"}'
LISTENER = {"listener": "SASL_SSL"}
LISTENER_AT = AT[:-1] + ',listener="SASL_SSL"}'
OTHER_NODE = f'{{job="{JOB}",instance="b:1"}}'

CASES = (
    Case("PenstockNodeDown", constant("up", 0), constant("up", 1)),
    Case(
        "PenstockNodeDown", constant("up", 0), {"up" + AT: "0 1x600"} | constant("up", 0, ELSEWHERE)
    ),
    Case(
        "PenstockNoActiveController",
        constant("penstock_active_controller", 0),
        constant("penstock_active_controller", 0)
        | constant("penstock_active_controller", 1, OTHER_NODE),
        labels=CLUSTER,
    ),
    Case(
        "PenstockSeveralActiveControllers",
        constant("penstock_active_controller", 1)
        | constant("penstock_active_controller", 1, OTHER_NODE),
        constant("penstock_active_controller", 1)
        | constant("penstock_active_controller", 1, ELSEWHERE),
        labels=CLUSTER,
        value="2",
    ),
    Case(
        "PenstockQuorumLeaderUnknown",
        constant("penstock_quorum_leader_id", -1),
        constant("penstock_quorum_leader_id", 0),
    ),
    Case(
        "PenstockBrokersFenced",
        constant("penstock_brokers_fenced", 1) | constant("penstock_brokers_fenced", 1, OTHER_NODE),
        constant("penstock_brokers_fenced", 0),
        labels=CLUSTER,
        value="1",
    ),
    Case(
        "PenstockNodeRestarts",
        {f"process_start_time_seconds{AT}": "1x17 2 2 3 3 4 4 5 5 5 5 5 5 5"},
        {f"process_start_time_seconds{AT}": "1x20 2 2 2 2 2 2 2 2 2 2 2"},
        value="4",
    ),
    Case(
        "PenstockOfflinePartitions",
        constant("penstock_offline_partitions", 3),
        constant("penstock_offline_partitions", 0),
        value="3",
    ),
    Case(
        "PenstockUnderMinIsrPartitions",
        constant("penstock_under_min_isr_partitions", 2),
        constant("penstock_under_min_isr_partitions", 0),
        value="2",
    ),
    Case(
        "PenstockUnderReplicatedPartitions",
        constant("penstock_under_replicated_partitions", 2),
        {f"penstock_under_replicated_partitions{AT}": "0x26 2 2 2 2 2 2 2"},
        value="2",
    ),
    Case(
        "PenstockStoppedReplicas",
        {f"penstock_stopped_partitions{AT}": "0x29 1 1 1"},
        constant("penstock_stopped_partitions", 0),
        value="1",
    ),
    Case("PenstockDiskAlmostFull", disk(0.02), disk(0.05), value="2%"),
    Case("PenstockDiskNearlyFull", disk(0.05), disk(0.2), value="5%"),
    Case("PenstockDiskFillsUp", filling(GIB // 2), filling(GIB // 8), at="5h"),
    Case("PenstockDiskFillsUp", filling(GIB // 2), disk(0.2), at="5h"),
    Case(
        "PenstockDiskRefusesWrites",
        constant("penstock_log_dir_writable", 0),
        constant("penstock_log_dir_writable", 1),
    ),
    Case(
        "PenstockCorruptData",
        {f"penstock_log_corrupt_reads_total{AT}": "0x25 1 1 1 1 1 1 1"},
        {f"penstock_log_corrupt_reads_total{AT}": "0x5 1x40"},
    ),
    Case(
        "PenstockCompactionFails",
        {f"penstock_cleaner_failures_total{AT}": "0x15 1x40"},
        constant("penstock_cleaner_failures_total", 1),
    ),
    Case(
        "PenstockProduceIsSlow",
        histogram("penstock_request_total_seconds", 1, PRODUCE_AT),
        histogram("penstock_request_total_seconds", 10, FETCH_AT),
        value="4.08s",
    ),
    Case("PenstockProduceFails", produce(2), produce(1), value="2%"),
    Case("PenstockProduceFails", produce(2), {}, value="2%"),
    Case(
        "PenstockConnectionsRefused",
        {f"penstock_connections_refused_total{REFUSED_AT}": "0+1x600"},
        {f"penstock_connections_refused_total{REFUSED_AT}": "5x600"},
        labels=NODE | REFUSED,
    ),
    Case(
        "PenstockNodeOverloaded",
        histogram("penstock_event_loop_lag_seconds", 1, AT),
        {
            f'penstock_event_loop_lag_seconds_bucket{AT[:-1]},le="0.002097152"}}': "0+10x600",
            f'penstock_event_loop_lag_seconds_bucket{AT[:-1]},le="+Inf"}}': "0+10x600",
        },
        value="4.08s",
    ),
    Case(
        "PenstockTransactionHangs",
        constant("penstock_partitions_oldest_transaction_seconds", 7200),
        constant("penstock_partitions_oldest_transaction_seconds", 60),
        value="2h 0m 0s",
    ),
    Case(
        "PenstockFilesRunOut",
        constant("process_open_fds", 900) | constant("process_max_fds", 1000),
        constant("process_open_fds", 100) | constant("process_max_fds", 1000),
        value="90%",
    ),
    Case("PenstockCertificateEnds", certificate(1), certificate(3), labels=NODE | LISTENER),
    Case("PenstockCertificateEndsSoon", certificate(13), certificate(15), labels=NODE | LISTENER),
    Case(
        "PenstockAuditEventsLost",
        {f"penstock_audit_events_dropped_total{AT}": "0x25 7 7 7 7 7 7 7"},
        {f"penstock_audit_events_dropped_total{AT}": "0x5 7x40"},
    ),
    Case(
        "PenstockDeadLettersWait",
        dead_letters_waiting(3),
        dead_letters_waiting(0),
        labels=NODE | {"group": "workers"},
    ),
)


def rendered(text: str, case: Case) -> str:
    """What Prometheus makes of an annotation; KeyError if it names a label that is not there."""
    text = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda m: case.labels[m[1]], text)
    return re.sub(r"\{\{ \$value(?: \| \w+)? \}\}", case.value, text)


def both_ways(case: Case, alert: Alert) -> list[dict[str, Any]]:
    told = {"summary": alert.summary, "description": alert.description}
    fired = {
        "exp_labels": {"severity": alert.severity.value, **case.labels},
        "exp_annotations": {name: rendered(text, case) for name, text in told.items()},
    }
    return [
        {
            "name": f"{case.alert} {name}",
            "interval": INTERVAL,
            "input_series": [{"series": s, "values": v} for s, v in series.items()],
            "alert_rule_test": [
                {"eval_time": case.at, "alertname": case.alert, "exp_alerts": expected}
            ],
        }
        for name, series, expected in (("fires", case.wrong, [fired]), ("is quiet", case.right, []))
    ]


def checked(folder: Path, tests: list[dict[str, Any]]) -> str:
    """What promtool says of the tests; empty if it agrees."""
    (folder / "rules.yml").write_text(rule_file(JOB))
    file = folder / "test.yml"
    file.write_text(
        json.dumps({"rule_files": ["rules.yml"], "evaluation_interval": INTERVAL, "tests": tests})
    )
    done = promtool("test", "rules", str(file))
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_promtool_takes_the_rules(tmp_path: Path) -> None:
    file = tmp_path / "rules.yml"
    file.write_text(rule_file('it\'s|"other"'))
    done = promtool("check", "rules", "--lint=all", "--lint-fatal", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules(JOB))} rules found" in done.stdout


def test_every_alert_has_a_case() -> None:
    assert {case.alert for case in CASES} == {alert.name for alert in rules(JOB)}


@pytest.mark.parametrize(
    "case", CASES, ids=[f"{case.alert}-{number}" for number, case in enumerate(CASES)]
)
def test_an_alert_fires_when_it_should_and_only_then(case: Case, tmp_path: Path) -> None:
    [alert] = [alert for alert in rules(JOB) if alert.name == case.alert]
    assert checked(tmp_path, both_ways(case, alert)) == ""


def test_an_alert_that_does_not_fire_is_noticed(tmp_path: Path) -> None:
    [alert] = [alert for alert in rules(JOB) if alert.name == "PenstockNodeDown"]
    case = Case("PenstockNodeDown", constant("up", 1), constant("up", 0))
    said = checked(tmp_path, both_ways(case, alert))
    assert "PenstockNodeDown fires" in said
    assert "PenstockNodeDown is quiet" in said
