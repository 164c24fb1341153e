"""What `penstock dev` writes into the folders of its nodes, new, again and grown."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from penstock.cli.dev.folders import VOTERS_MAX, LocalNode, lay_out
from penstock.cli.errors import CliError
from penstock.config.load import read_toml

VOTERS = "controller.quorum.voters"
BOOTSTRAP = "controller.quorum.bootstrap.servers"
JOINS = "controller.quorum.auto.join.enable"


def made(root: Path, count: int | None, base_port: int | None = 21_000) -> list[LocalNode]:
    nodes = lay_out(root, count, base_port, {})
    for node in nodes:
        node.write()
    return nodes


def test_a_new_cluster_names_the_same_voters_on_every_node(tmp_path: Path) -> None:
    nodes = made(tmp_path, 3)
    voters = "1@127.0.0.1:21000,2@127.0.0.1:21001,3@127.0.0.1:21002"
    assert [node.settings[VOTERS] for node in nodes] == [voters] * 3
    assert [node.address for node in nodes] == [f"127.0.0.1:{21_000 + i}" for i in range(3)]
    assert [node.settings["node.id"] for node in nodes] == ["1", "2", "3"]
    for i, node in enumerate(nodes, 1):
        assert node.config_path == tmp_path / f"node-{i}" / "penstock.toml"
        assert read_toml(node.config_path) == node.settings
        assert node.config.data_dir == str(tmp_path / f"node-{i}")
        assert node.config.default_replication_factor == 3
        assert node.settings["min.insync.replicas"] == "2"
    assert len({node.settings["penstock.http.listen"] for node in nodes}) == 3


def test_one_node_needs_nobody(tmp_path: Path) -> None:
    [node] = made(tmp_path, 1)
    assert VOTERS not in node.settings
    assert BOOTSTRAP not in node.settings
    assert node.settings["min.insync.replicas"] == "1"


def test_beyond_the_voters_nodes_observe(tmp_path: Path) -> None:
    nodes = made(tmp_path, VOTERS_MAX + 1)
    assert nodes[-1].settings[BOOTSTRAP].count(",") == VOTERS_MAX - 1
    assert VOTERS not in nodes[-1].settings
    assert JOINS not in nodes[-1].settings


def test_a_folder_is_started_again_as_its_files_say(tmp_path: Path) -> None:
    made(tmp_path, 3)
    file = tmp_path / "node-2" / "penstock.toml"
    text = file.read_text() + "# mine\nnum.partitions = 7\n"
    file.write_text(text)
    again = made(tmp_path, None, None)
    assert file.read_text() == text, "what a person wrote stays"
    assert [node.number for node in again] == [1, 2, 3]
    assert again[1].config.num_partitions == 7
    assert again[0].address == "127.0.0.1:21000"


def test_settings_for_all_nodes_go_into_the_files(tmp_path: Path) -> None:
    made(tmp_path, 2)
    for node in lay_out(tmp_path, None, None, {"num.partitions": "5"}):
        node.write()
    for i in (1, 2):
        assert read_toml(tmp_path / f"node-{i}" / "penstock.toml")["num.partitions"] == "5"


def test_growing_from_one_makes_voters_and_raises_replication(tmp_path: Path) -> None:
    made(tmp_path, 1)
    nodes = made(tmp_path, 4)
    assert VOTERS not in nodes[0].settings
    assert [node.settings.get(BOOTSTRAP) for node in nodes[1:]] == ["127.0.0.1:21000"] * 3
    assert [node.settings.get(JOINS) for node in nodes] == [None, "true", "true", None]
    assert {node.settings["default.replication.factor"] for node in nodes} == {"3"}


def test_a_lost_folder_of_a_voter_comes_back_as_one(tmp_path: Path) -> None:
    before = made(tmp_path, 3)
    (tmp_path / "node-1" / "penstock.toml").unlink()
    after = made(tmp_path, 3)
    assert after[0].settings[VOTERS] == before[0].settings[VOTERS]


def test_growing_leaves_what_was_chosen(tmp_path: Path) -> None:
    for node in lay_out(tmp_path, 3, 21_000, {"min.insync.replicas": "3"}):
        node.write()
    nodes = made(tmp_path, 4)
    assert [node.settings["min.insync.replicas"] for node in nodes[:3]] == ["3"] * 3


def test_a_taken_http_port_is_passed_over(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        [node] = made(tmp_path, 1, port + 1010 if port + 1010 < 65_536 else port)
        assert node.settings["penstock.http.listen"] != f"127.0.0.1:{port}"


@pytest.mark.parametrize(
    ("count", "base_port", "settings", "said"),
    [
        (2, None, {}, "holds 3 nodes and --nodes says 2"),
        (None, 22_000, {}, "listens from port 21000 on"),
        (None, None, {"node.id": "7"}, "node.id differs from node to node"),
    ],
)
def test_what_does_not_fit_the_folder_is_refused(
    tmp_path: Path, count: int | None, base_port: int | None, settings: dict[str, str], said: str
) -> None:
    made(tmp_path, 3)
    with pytest.raises(CliError) as refused:
        lay_out(tmp_path, count, base_port, settings)
    assert said in refused.value.sentence
    assert refused.value.exit_code == 2


def test_a_setting_that_is_not_allowed_names_the_file(tmp_path: Path) -> None:
    [node] = lay_out(tmp_path, 1, None, {"num.partitions": "many"})
    with pytest.raises(CliError) as refused:
        _ = node.config
    assert "node-1/penstock.toml: num.partitions" in refused.value.sentence
