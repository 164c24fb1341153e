"""Every kind of command on a secured cluster: Apache Kafka with SASL over TLS and with client
certificates; by `-X`, by a file and by the environment.

Being kept out is one sentence within seconds, which never shows a password.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from support.secured import (
    KEY_PASSWORD,
    PASSWORD,
    PLAIN_PASSWORD,
    PLAIN_USER,
    SecuredKafka,
    cannot_run,
    certificate_in_a_file,
    plain_tls,
    scram_tls,
)
from support.transactions import newest_features

from .conftest import COMMAND_SECONDS_MAX, PENSTOCK, Ended, run_with

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(cannot_run() is not None, reason=str(cannot_run())),
]
Settings = dict[str, str]
Run = Callable[..., Ended]
REFUSED_S_MAX = 10.0
SECRETS = (PASSWORD, PLAIN_PASSWORD, KEY_PASSWORD, "wrong-password")
PAGE = (Path(__file__).resolve().parents[3] / "docs" / "cli.md").read_text(encoding="utf-8")
READER, READER_PASSWORD = "reader", "secret-of-reader"
_numbers = itertools.count()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with SecuredKafka(tmp_path_factory.mktemp("secured") / "kafka") as broker:
        broker.add_user()
        broker.add_user(READER, READER_PASSWORD)
        newest_features(broker)
        yield broker


def typed(settings: Settings, _: Path) -> Run:
    more = [word for name, value in settings.items() for word in ("-X", f"{name}={value}")]
    return lambda *args, **named: run_with({}, *args, *more, **named)


def in_a_file(settings: Settings, folder: Path) -> Run:
    def escaped(text: str) -> str:
        return text.replace("\\", "\\\\")

    file = folder / "client.properties"
    lines = [f"{name} = {escaped(value)}\n" for name, value in settings.items()]
    file.write_text("".join(["# how to connect\n", "group.id=of-another-tool\n", *lines]))
    return lambda *args, **named: run_with({}, *args, "--config", str(file), **named)


def in_the_environment(settings: Settings, _: Path) -> Run:
    variables = {
        f"PENSTOCK_X_{name.upper().replace('.', '_')}": value for name, value in settings.items()
    }
    return lambda *args, **named: run_with(variables, *args, **named)


@pytest.mark.parametrize(
    ("way", "given"),
    [
        (scram_tls, typed),
        (scram_tls, in_a_file),
        (scram_tls, in_the_environment),
        (plain_tls, typed),
        (certificate_in_a_file, in_a_file),
    ],
    ids=lambda part: part.__name__,
)
def test_every_kind_of_command(
    secured: SecuredKafka,
    way: Callable[[SecuredKafka], Settings],
    given: Callable[[Settings, Path], Run],
    tmp_path: Path,
) -> None:
    run = given(way(secured), tmp_path)
    topic, group = f"t{next(_numbers)}", f"g{next(_numbers)}"
    _use_topic(run, topic)
    _use_group(run, topic, group)
    nodes = run("cluster", "nodes", "--format", "json").json()
    assert len(nodes) == 1
    status = run("cluster", "status")
    assert status.code == 0, status
    assert run("txn", "list", "--format", "json").json() == []
    assert run("txn", "list", "--hanging", "--format", "json").json() == []


def _use_topic(run: Run, topic: str) -> None:
    created = run("topic", "create", topic, "-p", "2", "-c", "cleanup.policy=compact")
    assert created.code == 0, created
    assert topic in [t["topic"] for t in run("topic", "list", "--format", "json").json()]
    produced = run("topic", "produce", topic, "--input", "key-value", stdin="a:1\nb:2\nc:3\n")
    assert produced.code == 0, produced
    read = run("topic", "consume", topic)
    assert sorted(read.out.split()) == ["1", "2", "3"], read
    described = run("topic", "describe", topic)
    assert described.code == 0, described
    assert "cleanup.policy" in described.out


def _use_group(run: Run, topic: str, group: str) -> None:
    sought = run("group", "seek", group, "--topic", topic, "--to", "latest")
    assert sought.code == 0, sought
    assert group in [g["group"] for g in run("group", "list", "--format", "json").json()]
    described = run("group", "describe", group)
    assert described.code == 0, described
    assert topic in described.out
    assert run("group", "delete-offsets", group, "--topic", f"{topic}:0").code == 0


KINDS = (
    ("topic", "list"),
    ("topic", "consume", "t"),
    ("group", "list"),
    ("cluster", "status"),
    ("txn", "list"),
    ("bench", "produce", "--seconds", "0.1"),
)


def refusal(settings: Mapping[str, str], *args: str, code: int = 1) -> str:
    began = time.monotonic()
    ended = typed(dict(settings), Path())(*args)
    assert time.monotonic() - began < REFUSED_S_MAX
    assert ended.code == code, ended
    assert ended.out == ""
    assert not any(secret in ended.err for secret in SECRETS)
    return ended.sentence


@pytest.mark.parametrize("args", KINDS, ids=lambda args: args[0])
def test_a_wrong_password_is_told_at_once(secured: SecuredKafka, args: tuple[str, ...]) -> None:
    said = refusal(plain_tls(secured) | {"sasl.password": "wrong-password"}, *args)
    assert f"and user {PLAIN_USER!r} do not agree by PLAIN" in said
    assert "sasl.mechanism, the name and the password" in said


def test_a_cluster_that_is_secured_in_another_way(secured: SecuredKafka) -> None:
    plain = {"bootstrap.servers": secured.at("SASL_SSL")}
    said = refusal(plain, "topic", "list")
    assert "speaks TLS, and security.protocol is PLAINTEXT; set it to SSL or SASL_SSL" in said
    plain = {"bootstrap.servers": secured.at("SASL_PLAINTEXT")}
    for args in KINDS:
        said = refusal(plain, *args)
        assert "expects another security.protocol than PLAINTEXT" in said
        assert "-X, --config or the environment" in said
    stranger = {"ssl.ca.location": str(secured.certificates.stranger)}
    said = refusal(plain_tls(secured) | stranger, "topic", "list")
    assert "is not trusted" in said
    assert "ssl.ca.location" in said


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"sasl.pasword": "wrong-password"}, "-X: unknown setting sasl.pasword (did you mean sasl"),
        ({"sasl.username": "a"}, "sasl.username is given, but security.protocol is not"),
        ({"linger.ms": "soon"}, "a setting of the Kafka client is wrong: Invalid value"),
        ({"acks": "all"}, "-X: acks would have no effect"),
    ],
)
def test_settings_that_make_no_sense(secured: SecuredKafka, wrong: Settings, said: str) -> None:
    servers = {"bootstrap.servers": secured.bootstrap}
    assert said in refusal({**servers, **wrong}, "topic", "list", code=2)


@pytest.mark.parametrize("client", ["raw", "confluent"])
@pytest.mark.parametrize("verb", ["produce", "consume", "latency"])
def test_the_bench(secured: SecuredKafka, verb: str, client: str) -> None:
    run = typed(plain_tls(secured), Path())
    brief = {"consume": ("--fill-bytes", "1M"), "latency": ("--rate", "100")}.get(verb, ())
    found = run("bench", verb, "--client", client, "--seconds", "0.3", "--json", *brief).json()
    assert found["messages_per_s"] > 0


def test_groups_of_the_bench(secured: SecuredKafka) -> None:
    run = typed(certificate_in_a_file(secured), Path())
    found = run("bench", "groups", "--members", "3", "--partitions", "6", "--json").json()
    assert found["members"] == 3


def test_the_page(secured: SecuredKafka, tmp_path: Path) -> None:
    """The examples of docs/cli.md, with the names of this cluster in place of the page's."""
    section = PAGE.partition("## Secured clusters\n")[2].partition("\n## ")[0]
    names = {
        "broker:9093": secured.at("SASL_SSL"),
        "/etc/kafka/ca.pem": str(secured.certificates.authority),
        "/etc/kafka/client.properties": str(tmp_path / "client.properties"),
    }
    for name, ours in names.items():
        assert name in section
        section = section.replace(name, ours)
    [file] = re.findall(r"```properties\n(.*?)```", section, re.DOTALL)
    (tmp_path / "client.properties").write_text(file)
    programs = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    assert len(programs) == 3
    command = " ".join(PENSTOCK)
    for program in programs:
        text = f'set -e\npenstock() {{ {command} "$@"; }}\n{program}'
        done = subprocess.run(
            ["bash", "-c", text],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS_MAX,
            check=False,
            env={**os.environ, "READER_PASSWORD": READER_PASSWORD},
        )
        assert done.returncode == 0, done
        assert READER_PASSWORD not in done.stdout + done.stderr
