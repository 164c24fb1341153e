"""Settings from a file, the environment and the command line: which counts, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from penstock.kafka.errors import SettingError
from penstock.kafka.given import gather
from penstock.kafka.librdkafka import VOCABULARY
from penstock.kafka.security import security_of

SECRET = "pencil-of-ann"


def values(
    pairs: Sequence[str] = (),
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> dict[str, str]:
    where = None if file is None else str(file)
    return gather(VOCABULARY, pairs, where, environment or {}).values


def properties(tmp_path: Path, text: str, name: str = "client.properties") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_the_command_line_counts_above_the_environment_and_that_above_the_file(
    tmp_path: Path,
) -> None:
    file = properties(tmp_path, "client.id=file\nlinger.ms=1\nclient.rack=a\n")
    environment = {"PENSTOCK_X_CLIENT_ID": "environment", "PENSTOCK_X_LINGER_MS": "2"}
    assert values(["client.id=typed"], file, environment) == {
        "client.id": "typed",
        "linger.ms": "2",
        "client.rack": "a",
    }


def test_the_environment_names_the_file_and_the_brokers(tmp_path: Path) -> None:
    file = properties(tmp_path, "bootstrap.servers=h:1\nclient.id=file\n")
    environment = {"PENSTOCK_CONFIG": str(file)}
    assert values(environment=environment)["bootstrap.servers"] == "h:1"
    environment["PENSTOCK_BOOTSTRAP"] = "h:2"
    assert values(environment=environment)["bootstrap.servers"] == "h:2"
    assert values(["metadata.broker.list=h:3"], None, environment)["bootstrap.servers"] == "h:3"
    other = properties(tmp_path, "client.id=other\n", "other.properties")
    assert values([], other, environment)["client.id"] == "other"


def test_toml(tmp_path: Path) -> None:
    text = 'security.protocol = "SSL"\n[ssl]\nca.location = "/ca.pem"\nkey.password = "k"\n'
    assert values([], properties(tmp_path, text, "client.toml")) == {
        "security.protocol": "SSL",
        "ssl.ca.location": "/ca.pem",
        "ssl.key.password": "k",
    }


def test_a_name_of_librdkafka_replaces_javas_of_the_file(tmp_path: Path) -> None:
    file = properties(tmp_path, "sasl.mechanism=PLAIN\n")
    assert values(["sasl.mechanisms=SCRAM-SHA-256"], file) == {"sasl.mechanism": "SCRAM-SHA-256"}


def test_what_says_the_same_is_replaced(tmp_path: Path) -> None:
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="a"'
    file = properties(
        tmp_path,
        "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={login} \\\n    password="p";\n'
        "ssl.truststore.type=PEM\nssl.truststore.location=/ca.pem\n",
    )
    found = security_of(values([], file)).sasl
    assert found is not None
    assert (found.username, found.password) == ("a", "p")
    typed = values(
        ["sasl.username=b", "ssl.ca.location=/b.pem"], file, {"PENSTOCK_X_SASL_PASSWORD": "q"}
    )
    security = security_of(typed)
    assert security.sasl is not None
    assert (security.sasl.username, security.sasl.password) == ("b", "q")
    assert security.tls is not None
    assert security.tls.trust is not None
    assert security.tls.trust.location == "/b.pem"


@pytest.mark.parametrize(
    ("pairs", "environment", "said"),
    [
        (["sasl.pasword=x"], {}, "-X: unknown setting sasl.pasword (did you mean sasl.password?)"),
        ([], {"PENSTOCK_X_SASL_PASWORD": "x"}, "environment: unknown setting sasl.pasword (did"),
        (["sasl.kerberos.service.name=x"], {}, "Kerberos cannot be had here; use Kafka's own"),
        (["acks=1"], {}, "-X: acks would have no effect: the command's own options say it"),
        ([f"sasl.password:{SECRET}"], {}, "-X sasl.password... is not a setting: write -X key=v"),
        ([f"={SECRET}"], {}, "is not a setting: write -X key=value"),
        (["client.id=a", "client.id=b"], {}, "-X client.id is given twice"),
        (
            ["socket.timeout.ms=1", "request.timeout.ms=2"],
            {},
            "-X: setting socket.timeout.ms and request.timeout.ms are two names",
        ),
    ],
)
def test_what_is_refused_names_the_place_and_no_value(
    pairs: list[str], environment: dict[str, str], said: str
) -> None:
    with pytest.raises(SettingError) as failed:
        values(pairs, None, environment)
    assert said in str(failed.value)
    assert SECRET not in str(failed.value)


def test_a_file_may_hold_what_other_tools_need(tmp_path: Path) -> None:
    file = properties(tmp_path, "group.id=g\nkey.serializer=x.Y\nclient.id=c\n")
    assert values([], file, {"PENSTOCK_X_GROUP_ID": "g"}) == {"client.id": "c"}
    with pytest.raises(SettingError, match=r"client\.properties: unknown setting cleint\.id"):
        values([], properties(tmp_path, "cleint.id=c\n"))


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("none.properties", None, "cannot be read: No such file.*; name a file of key=value lines"),
        ("client.toml", b"= 1", "is not TOML"),
        ("client.toml", None, "cannot be read"),
        ("client.properties", b"\xff\xfe", "no text in UTF-8"),
    ],
)
def test_a_file_that_cannot_be_read(
    tmp_path: Path, name: str, content: bytes | None, said: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(SettingError, match=said):
        values([], tmp_path / name)
