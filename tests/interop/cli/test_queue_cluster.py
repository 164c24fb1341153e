"""`penstock queue` on three nodes: each leader is asked for its own, also after another has died,
and what was revived outlives the leader that revived it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from support.cluster import Cluster
from support.features import SHARE_VERSION, enable_feature
from support.helpers import NO_DUPLICATES, QUIET, produce_all
from support.share_groups import CLUSTER_SETTINGS, REJECT, set_group, share_member, values
from support.waiting import eventually

from .conftest import Run

pytestmark = [pytest.mark.penstock_only, pytest.mark.timeout(240)]

TOPIC, GROUP, DEAD = "tasks", "workers", "dlq.tasks"
SENT = [str(number) for number in range(30)]


def test_leaders_are_asked_and_asked_again(tmp_path: Path, run_at: Run) -> None:
    with Cluster(3, tmp_path, CLUSTER_SETTINGS) as cluster:
        enable_feature(cluster.bootstrap, SHARE_VERSION, 2)
        cluster.make_topic(TOPIC, 3)
        cluster.make_topic(DEAD, 3, config={"errors.deadletterqueue.group.enable": "true"})
        with cluster.raw(1) as client:
            set_group(
                client,
                GROUP,
                share_auto_offset_reset="earliest",
                errors_deadletterqueue_topic_name=DEAD,
            )

        def json(verb: str, *args: str) -> Any:
            return run_at(cluster.bootstrap, "queue", verb, GROUP, *args, "--format", "json").json()

        publisher = Producer(cluster.client | NO_DUPLICATES | QUIET)
        produce_all(publisher, TOPIC, [{"key": n.encode(), "value": n.encode()} for n in SENT])
        with share_member(cluster.bootstrap, GROUP, TOPIC) as member:
            left = len(SENT)
            while left:
                found = member.next()
                member.say(REJECT, *found)
                left -= len(found)
        eventually(lambda: json("describe")["dead"] == len(SENT))
        places = json("describe")["partitions"]
        assert len(places) == 3
        assert {cluster.leader(TOPIC, place["partition"]) for place in places} == {1, 2, 3}

        victim = cluster.leader(TOPIC)
        cluster.kill(victim)
        done = json("redrive", "--all", "--timeout", "30")
        assert (done["chosen"], done["revived"]) == (len(SENT), len(SENT))
        cluster.start_node(victim)
        cluster.wait_in_sync()
        other = cluster.leader(TOPIC)
        cluster.kill(other)
        assert json("describe", "--timeout", "30")["revived"] == len(SENT)
        cluster.start_node(other)
        with share_member(cluster.bootstrap, GROUP, TOPIC) as member:
            taken = values(member.take(len(SENT), 60))
            assert sorted(taken) == sorted(n.encode() for n in SENT)
            assert member.poll(1.0) == []
        assert json("redrive", "--all", "--timeout", "30")["chosen"] == 0
