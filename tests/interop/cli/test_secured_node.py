"""Commands on a node of ours with TLS and SASL; `test_secured.py` has all of them, on Kafka."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from support.secured import PASSWORD, PLAIN_PASSWORD, certificate_in_a_file, plain_tls, scram_tls
from support.secured_node import SecuredNode

from .conftest import run_with
from .test_secured import in_a_file, in_the_environment, refusal, typed

pytestmark = [pytest.mark.penstock_only, pytest.mark.xdist_group("security")]


def test_commands_by_every_way_in(tmp_path: Path) -> None:
    with SecuredNode(tmp_path / "node") as node:
        node.add_user()
        ways = [
            (scram_tls, in_the_environment),
            (plain_tls, typed),
            (certificate_in_a_file, in_a_file),
        ]
        for number, (way, given) in enumerate(ways):
            run = given(way(node), tmp_path)  # type: ignore[arg-type]
            topic = f"t{number}"
            assert run("topic", "create", topic).code == 0
            assert run("topic", "produce", topic, stdin="a\nb\n").code == 0
            assert run("topic", "consume", topic).out.split() == ["a", "b"]
            assert run("group", "seek", "g", "--topic", topic, "--to", "latest").code == 0
            status = run("cluster", "status")
            assert status.code == 0, status
        wrong = plain_tls(node) | {"sasl.password": "wrong"}  # type: ignore[arg-type]
        said = refusal(wrong, "topic", "list")
        assert "do not agree by PLAIN" in said
        bare = run_with({"PENSTOCK_BOOTSTRAP": node.at("SASL_SSL")}, "topic", "list")
        assert "expects another security.protocol than PLAINTEXT" in bare.sentence
        for secret in (PASSWORD, PLAIN_PASSWORD):
            assert secret not in node.log_path.read_text()


def test_doctor_finds_a_certificate_that_ends(tmp_path: Path) -> None:
    node = SecuredNode(tmp_path / "node")
    soon = node.certificates.signed("soon", lasts=timedelta(days=1, hours=12))
    node.settings["listener.name.ssl.ssl.keystore.location"] = str(soon)
    with node:
        for listener, mechanism, code in (("SASL_SSL", "PLAIN", 0), ("SSL", "", 3)):
            run = in_the_environment(node.way(listener, mechanism), tmp_path)
            report = run("doctor", "--format", "json").json(code=code)
            named = [f for f in report["findings"] if "certificate" in f["problem"]]
            assert [f["severity"] for f in named] == (["critical"] if code else [])
