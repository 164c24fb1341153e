"""A cluster whose nodes speak TLS and SASL to each other survives the loss of a leader; a plain one
becomes one of those, node by node. No message is lost.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from support.secured_cluster import (
    NODES,
    Load,
    SecuredCluster,
    check_all,
    is_open,
    make_topic,
)
from support.waiting import eventually

pytestmark = [pytest.mark.penstock_only, pytest.mark.xdist_group("security")]

BY_ANOTHER = "does not offer the listener that it is to be reached by"


@pytest.mark.timeout(180)
def test_a_killed_leader(tmp_path: Path) -> None:
    secured = SecuredCluster(tmp_path)
    try:
        for node_id in NODES:
            secured.configure(node_id, plain=False, secure=True, between="SASL_SSL")
        secured.launch()
        client = secured.secure_client()
        make_topic(client)
        load = Load(client)
        load.goes_on()
        leader = secured.leader(client)
        secured.cluster.kill(leader)
        eventually(lambda: secured.leader(client) not in (leader, -1))
        load.goes_on()
        secured.cluster.start_node(leader)
        eventually(lambda: secured.in_sync(client))
        load.end()
        check_all(client, load.next)
    finally:
        secured.cluster.close()


@pytest.mark.timeout(240)
def test_a_plain_cluster_becomes_an_encrypted_one(tmp_path: Path) -> None:
    """In a hurry: each node gets the new listener and is to reach others by it in one restart,
    while those do not offer it yet. In the second round the plain listener goes.
    """
    secured = SecuredCluster(tmp_path)
    try:
        for node_id in NODES:
            secured.configure(node_id, plain=True, secure=False, between="PLAINTEXT")
        secured.launch()
        plain, safe = secured.plain_client(), secured.secure_client()
        make_topic(plain)
        load = Load(plain)
        for node_id in NODES:
            secured.configure(node_id, plain=True, secure=True, between="SASL_SSL")
            secured.cluster.restart(node_id)
            eventually(lambda: secured.in_sync(plain))
            load.goes_on()
        assert secured.has_said(1, BY_ANOTHER)
        load.end()
        moved = Load(safe, load.next)
        for node_id in NODES:
            secured.configure(node_id, plain=False, secure=True, between="SASL_SSL")
            secured.cluster.restart(node_id)
            eventually(lambda: secured.in_sync(safe))
            moved.goes_on()
        moved.end()
        assert not secured.has_said(3, BY_ANOTHER), "the last one finds that all offer it"
        for node_id in NODES:
            assert not is_open(secured.plain_at(node_id))
        check_all(safe, moved.next)
    finally:
        secured.cluster.close()
