"""Every `penstock group` command, against a real broker."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from penstock.wire.messages.join_group import JoinGroupRequestProtocol
from penstock.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from penstock.wire.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    Topology,
)
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from support.group_calls import SYNC, connected, join, leave
from support.groups import STRATEGIES, Member, members, partitions_of, polled, publish, settle
from support.helpers import TopicMaker, produce_all, producer
from support.process import BrokerProcess
from support.raw import RawClient
from support.waiting import eventually

Run = Callable[..., Any]
T0 = 1_700_000_000_000


@pytest.fixture
def run(group_node: BrokerProcess, run_at: Run) -> Run:
    """Runs `penstock ARGS` against the broker of the groups."""
    return lambda *args, **options: run_at(group_node.bootstrap, *args, **options)


@pytest.fixture
def filled(group_node: BrokerProcess, group_topic: TopicMaker) -> str:
    """A topic with ten messages in each of two partitions, a second apart."""
    name = group_topic(partitions=2)
    client = producer(group_node)
    for partition in range(2):
        messages = [
            {"value": str(i), "partition": partition, "timestamp": T0 + 1000 * i} for i in range(10)
        ]
        produce_all(client, name, messages)
    return name


def places(run: Run, group: str) -> dict[int, int]:
    """The committed offset of each partition, as `describe` tells it."""
    described = run("group", "describe", group, "--format", "json").json()[0]
    return {p["partition"]: p["committed"] for p in described["partitions"]}


def shares(client: RawClient, group: str, epoch: int, topics: list[str] | None = None) -> Any:
    """The answer to a member of a share group."""
    beat = ShareGroupHeartbeatRequest(
        group_id=group, member_id="sharer", member_epoch=epoch, subscribed_topic_names=topics
    )
    return client.call(beat, 1)


def test_a_share_group_is_seen(
    run: Run, group_node: BrokerProcess, filled: str, group_id: str
) -> None:
    with connected(group_node, group_id) as client:
        eventually(lambda: shares(client, group_id, 0, [filled]).assignment.topic_partitions)
        entry = {"group": group_id, "type": "share", "protocol": "share", "state": "Stable"}
        assert entry in run("group", "list", "--type", "share", "--format", "json").json()
        [described] = run("group", "describe", group_id, "--format", "json").json()
        assert (described["type"], described["assignor"]) == ("share", "simple")
        assert [(m["member"], m["partitions"]) for m in described["members"]] == [("sharer", 2)]
        owned = [(p["topic"], p["partition"], p["owner"]) for p in described["partitions"]]
        assert owned == [(filled, 0, "sharer"), (filled, 1, "sharer")]
        assert "type: share, state: Stable" in run("group", "describe", group_id).out
        busy = run("group", "delete", group_id, "--yes")
        assert (busy.code, "active members" in busy.sentence) == (1, True)
        assert shares(client, group_id, -1).error_code == 0
    assert run("group", "delete", group_id, "--yes").code == 0


def runs(client: RawClient, group: str, epoch: int, topics: list[str] | None = None) -> Any:
    """The answer to a member of a streams group."""
    beat = StreamsGroupHeartbeatRequest(
        group_id=group, member_id="runner", member_epoch=epoch, process_id="p"
    )
    if topics is not None:
        subtopology = Subtopology(subtopology_id="0", source_topics=topics)
        beat.topology = Topology(epoch=1, subtopologies=[subtopology])
        beat.active_tasks, beat.standby_tasks, beat.warmup_tasks = [], [], []
        beat.rebalance_timeout_ms = 60_000
    return client.call(beat, 0)


def test_a_streams_group_is_seen(
    run: Run, group_node: BrokerProcess, filled: str, group_id: str
) -> None:
    with connected(group_node, group_id) as client:
        eventually(lambda: runs(client, group_id, 0, [filled]).active_tasks)
        entry = {"group": group_id, "type": "streams", "protocol": "streams", "state": "Stable"}
        assert entry in run("group", "list", "--type", "streams", "--format", "json").json()
        [described] = run("group", "describe", group_id, "--format", "json").json()
        assert [(m["member"], m["partitions"]) for m in described["members"]] == [("runner", 2)]
        owned = [(p["topic"], p["partition"], p["owner"]) for p in described["partitions"]]
        assert owned == [(filled, 0, "runner"), (filled, 1, "runner")]
        assert "type: streams, state: Stable" in run("group", "describe", group_id).out
        busy = run("group", "delete", group_id, "--yes")
        assert (busy.code, "active members" in busy.sentence) == (1, True)
        assert runs(client, group_id, -1).error_code == 0
    assert run("group", "seek", group_id, "--to", "earliest", "--topic", filled).code == 0
    assert places(run, group_id) == {0: 0, 1: 0}
    assert run("group", "delete", group_id, "--yes").code == 0


def test_a_group_of_connect_is_seen(run: Run, group_node: BrokerProcess, group_id: str) -> None:
    """Members of other protocols than the consumers' have assignments that nobody else reads."""
    own = JoinGroupRequestProtocol(name="sessioned", metadata=b"\x00\x02 of connect's own")
    with connected(group_node, group_id) as client:
        alive = {"session_timeout_ms": 60_000}  # nobody beats for it meanwhile
        joined = join(client, group_id, protocol_type="connect", protocols=[own], **alive)
        mine = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"\xff no list")
        request = SyncGroupRequest(
            group_id=group_id,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type="connect",
            protocol_name="sessioned",
            assignments=[mine],
        )
        assert client.call(request, SYNC).error_code == 0
        entry = {"group": group_id, "type": "classic", "protocol": "connect", "state": "Stable"}
        assert entry in run("group", "list", "--format", "json").json()
        [described] = run("group", "describe", group_id, "--format", "json").json()
        assert (described["state"], described["assignor"]) == ("Stable", "sessioned")
        assert [m["member"] for m in described["members"]] == [joined.member_id]
        busy = run("group", "delete", group_id, "--yes")
        assert (busy.code, "active members" in busy.sentence) == (1, True)
        leave(client, group_id, joined.member_id)
    assert run("group", "delete", group_id, "--yes").code == 0


def test_seek_makes_a_group_and_list_and_describe_show_it(
    run: Run, filled: str, group_id: str
) -> None:
    moved = run("group", "seek", group_id, "--to", "4", "--topic", filled, "--format", "json")
    assert moved.json() == [
        {"topic": filled, "partition": p, "now": None, "new": 4} for p in range(2)
    ]
    assert moved.err == f"moved group {group_id} in 2 partitions\n"
    listed = run("group", "list", "--format", "json").json()
    entry = {"group": group_id, "type": "classic", "protocol": "", "state": "Empty"}
    assert entry in listed
    lines = run("group", "list").out.splitlines()
    assert lines[0].split() == ["GROUP", "TYPE", "PROTOCOL", "STATE"]
    assert [group_id, "classic", "-", "Empty"] in [line.split() for line in lines]
    [described] = run("group", "describe", group_id, "--format", "json").json()
    assert described == {
        "group": group_id,
        "type": "classic",
        "state": "Empty",
        "assignor": "",
        "coordinator": 1,
        "lag": 12,
        "members": [],
        "partitions": [
            {
                "topic": filled,
                "partition": p,
                "owner": None,
                "committed": 4,
                "end": 10,
                "lag": 6,
            }
            for p in range(2)
        ],
    }
    text = run("group", "describe", group_id).out
    assert "0 members, 12 messages behind" in text
    assert re.search(rf"^{filled}\s+1\s+-\s+4\s+10\s+6$", text, re.MULTILINE)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_in_use(
    run: Run, group_node: BrokerProcess, filled: str, group_id: str, protocol: str
) -> None:
    strategy = STRATEGIES["consumer" if protocol == "consumer" else "range"]
    settings = {**strategy, "client.id": "the-client", "group.instance.id": "the-instance"}
    with members() as made:
        made.append(Member(group_node, group_id, [filled], settings))
        settle(made, partitions_of(filled, 2))
        places = [TopicPartition(filled, p, 1) for p in range(2)]
        made[0].client.commit(offsets=places, asynchronous=False)
        [described] = run("group", "describe", group_id, "--format", "json").json()
        [member] = described["members"]
        assert (described["type"], described["state"]) == (protocol, "Stable")
        assert described["assignor"] == ("uniform" if protocol == "consumer" else "range")
        assert member["client"] == "the-client"
        assert member["instance"] == "the-instance"
        assert member["host"] == "127.0.0.1"
        assert member["partitions"] == 2
        assert {p["owner"] for p in described["partitions"]} == {member["member"]}
        stable = run("group", "list", "--state", "stable", "--type", protocol, "--format", "json")
        entry = {
            "group": group_id,
            "type": protocol,
            "protocol": "consumer",
            "state": "Stable",
        }
        assert entry in stable.json()
        other = run("group", "list", "--state", "empty", "--format", "json").json()
        assert group_id not in [group["group"] for group in other]

        refused = run("group", "seek", group_id, "--to", "earliest", "--topic", filled)
        assert refused.code == 1
        assert f"group '{group_id}' has 1 active member, who" in refused.sentence
        assert f"wait until `penstock group describe {group_id}` shows Empty" in refused.sentence
        tried = run("group", "seek", group_id, "--to", "5", "--topic", filled, "--dry-run")
        assert tried.code == 0
        assert "could not be moved now" in tried.err
        refused = run("group", "delete", group_id, "--yes")
        assert f"cannot delete group '{group_id}': it has active members; stop them" in (
            refused.sentence
        )
        refused = run("group", "delete-offsets", group_id, "--topic", filled)
        assert "active members read the topic; stop them" in refused.sentence


def test_seek_to_every_kind_of_place(run: Run, filled: str, group_id: str) -> None:
    def seek(place: str, *more: str) -> dict[int, int]:
        assert run("group", "seek", group_id, "--to", place, *more).code == 0
        return places(run, group_id)

    assert seek("latest", "--topic", filled) == {0: 10, 1: 10}
    assert seek("earliest") == {0: 0, 1: 0}
    assert seek("7", "--topic", f"{filled}:1") == {0: 0, 1: 7}
    assert seek("+2") == {0: 2, 1: 9}
    assert seek("-1") == {0: 1, 1: 8}
    assert seek("+5") == {0: 6, 1: 10}, "a place behind the end is the end"
    assert seek(str(T0 + 2500)) == {0: 3, 1: 3}
    assert seek("2023-11-14T22:13:24Z", "--topic", f"{filled}:0") == {0: 4, 1: 3}
    assert seek("-1s") == {0: 10, 1: 10}, "no message is so new"


def test_a_dry_run_changes_nothing(run: Run, filled: str, group_id: str) -> None:
    run("group", "seek", group_id, "--to", "3", "--topic", filled)
    shown = run("group", "seek", group_id, "--to", "-2", "--dry-run")
    assert [line.split() for line in shown.out.splitlines()] == [
        ["TOPIC", "PARTITION", "NOW", "NEW"],
        [filled, "0", "3", "1"],
        [filled, "1", "3", "1"],
    ]
    assert "nothing was changed" in shown.err
    assert places(run, group_id) == {0: 3, 1: 3}


def test_there_and_back_by_a_csv(run: Run, filled: str, group_id: str, tmp_path: Path) -> None:
    saved = tmp_path / "saved.csv"
    run("group", "seek", group_id, "--to", "3", "--topic", filled)
    run("group", "seek", group_id, "--to", "5", "--topic", f"{filled}:1")
    run("group", "seek", group_id, "--to", "latest", "--export", str(saved))
    assert saved.read_text() == f"{filled},0,3\n{filled},1,5\n"
    assert places(run, group_id) == {0: 10, 1: 10}
    assert run("group", "seek", group_id, "--from-csv", str(saved)).code == 0
    assert places(run, group_id) == {0: 3, 1: 5}
    saved.write_text(f"{filled},0,x\n")
    refused = run("group", "seek", group_id, "--from-csv", str(saved))
    assert "line 1" in refused.sentence
    assert "is not topic,partition,offset" in refused.sentence


def test_delete_offsets_and_delete(run: Run, filled: str, group_id: str) -> None:
    run("group", "seek", group_id, "--to", "3", "--topic", filled)
    gone = run("group", "delete-offsets", group_id, "--topic", f"{filled}:0", "--format", "json")
    assert gone.json() == [{"topic": filled, "partition": 0, "was": 3}]
    assert places(run, group_id) == {1: 3}
    refused = run("group", "delete-offsets", group_id, "--topic", f"{filled}:0")
    assert "has committed no offset there" in refused.sentence
    asked = run("group", "delete", group_id)
    assert asked.code == 2
    assert "needs a yes" in asked.sentence
    assert run("group", "delete", group_id, "--yes").out == f"deleted group {group_id}\n"
    assert group_id not in run("group", "list").out


def test_a_topic_that_is_gone_has_no_lag(run: Run, filled: str, group_id: str) -> None:
    """Kafka deletes the offsets with the topic, though not at once."""
    run("group", "seek", group_id, "--to", "3", "--topic", filled)
    run("topic", "delete", filled, "--yes")
    described = run("group", "describe", group_id, "--format", "json")
    left = described.json()[0]["partitions"] if described.code == 0 else []
    assert all((p["end"], p["lag"]) == (None, None) for p in left)


def test_missing_groups_and_topics_are_named(run: Run, filled: str, group_id: str) -> None:
    run("group", "seek", group_id, "--to", "3", "--topic", filled)
    typo = group_id + "x"
    for command in (
        ("describe", typo),
        ("delete", typo, "--yes"),
        ("seek", typo, "--to", "latest"),
        ("delete-offsets", typo, "--topic", filled),
    ):
        missing = run("group", *command)
        assert missing.code == 1
        assert f"group '{typo}' does not exist on 127.0.0.1:" in missing.sentence
        assert "(did you mean " in missing.sentence
    missing = run("group", "seek", group_id, "--to", "latest", "--topic", filled + "x")
    assert f"topic '{filled}x' does not exist" in missing.sentence
    missing = run("group", "seek", group_id, "--to", "latest", "--topic", f"{filled}:7")
    assert f"topic '{filled}' has no partition 7: give partitions from 0 to 1" in missing.sentence


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--to", "yesterday"), "'yesterday' is no place to go: write earliest, latest"),
        ((), "give --to PLACE or --from-csv FILE, one of them"),
        (("--to", "1", "--from-csv", "x"), "give --to PLACE or --from-csv FILE, one of them"),
        (("--to", "1", "--topic", "t:a"), "'t:a' is not a topic: write TOPIC, or TOPIC:0,1"),
    ],
)
def test_a_seek_that_cannot_be_meant(run: Run, args: tuple[str, ...], said: str) -> None:
    refused = run("group", "seek", "g", *args)
    assert refused.code == 2
    assert said in refused.sentence


def test_a_shift_needs_a_committed_offset(run: Run, filled: str, group_id: str) -> None:
    refused = run("group", "seek", group_id, "--to", "+1", "--topic", filled)
    assert refused.code == 1
    assert f"group '{group_id}' has no committed offset in {filled}-0 to shift" in refused.sentence


def test_messages_come_again_after_a_seek(
    run: Run, group_node: BrokerProcess, group_topic: TopicMaker, group_id: str
) -> None:
    name = group_topic()
    publish(group_node, name, ["a", "b", "c"])
    run("group", "seek", group_id, "--to", "1", "--topic", name)
    with members() as made:
        made.append(Member(group_node, group_id, [name], STRATEGIES["range"]))
        settle(made, partitions_of(name, 1))
        polled(made, 2)
        assert made[0].values == [b"b", b"c"]


def test_bench(run: Run, group_node: BrokerProcess) -> None:
    size = ("--members", "5", "--partitions", "11", "--groups", "3", "--seconds", "0.2")
    found = run("bench", "groups", *size, "--json", "--broker-pid", str(group_node.pid)).json()
    assert 0 < found["classic_rebalance_s"] < 10
    assert 0 < found["consumer_join_s"] < 10
    assert (found["consumer_moved"], found["consumer_moved_too_many"]) == (2, 0)
    assert found["heartbeats"] > 0
    assert all(found[f"{kind}_cores"] >= 0 for kind in ("no_groups", "offsets_only", "empty"))
