"""A snapshot with ACLs, credentials, tokens and quotas, read by Apache's own log-dump tool."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from interop.test_log_dump import dump
from penstock.metadata.snapshot import snapshot_records
from penstock.raft.types import OffsetAndEpoch
from unit.controlling.test_metadata_snapshots import write
from unit.metadata.rig import Rig
from unit.metadata.test_security import filled

pytestmark = pytest.mark.java

_RECORD = re.compile(r"payload: (\{.*\})$", re.MULTILINE)
ROLE_RECORDS = 3


def dumped(folder: Path, rig: Rig) -> tuple[list[dict[str, Any]], str]:
    write(folder, OffsetAndEpoch(10, 1), list(snapshot_records(rig.image.frozen())))
    [file] = folder.glob("*.checkpoint")
    said = dump(file, options=("--cluster-metadata-decoder",))
    return [json.loads(payload) for payload in _RECORD.findall(said)], said


def test_apache_reads_what_a_snapshot_says_of_security(tmp_path: Path) -> None:
    rig = filled()
    rig.delete_role("r")
    records, said = dumped(tmp_path, rig)
    assert "rror" not in said
    found: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        found.setdefault(record["type"], []).append(record["data"])
    [acl] = found["ACCESS_CONTROL_ENTRY_RECORD"]
    del acl["id"]
    assert acl == {
        "resourceType": 2,
        "resourceName": "a",
        "patternType": 3,
        "principal": "User:a",
        "host": "*",
        "operation": 3,
        "permissionType": 3,
    }
    users = found["USER_SCRAM_CREDENTIAL_RECORD"]
    assert [(user["name"], user["mechanism"]) for user in users] == [("a", 1), ("a", 2)]
    [token] = found["DELEGATION_TOKEN_RECORD"]
    assert (token["owner"], token["requester"]) == ("User:a", "User:admin")
    assert [(quota["entity"], quota["value"]) for quota in found["CLIENT_QUOTA_RECORD"]] == [
        (
            [
                {"entityType": "client-id", "entityName": None},
                {"entityType": "user", "entityName": "a"},
            ],
            10.0,
        ),
        ([{"entityType": "ip", "entityName": None}], 1.0),
    ]


def test_apache_skips_the_records_of_roles_and_reads_the_rest(tmp_path: Path) -> None:
    records, said = dumped(tmp_path, filled())
    assert said.count("UnsupportedVersionException") == ROLE_RECORDS, said
    assert {"ACCESS_CONTROL_ENTRY_RECORD", "CLIENT_QUOTA_RECORD"} <= {r["type"] for r in records}
