"""The tables are consistent in themselves and with the table of APIs."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

from penstock.wire.apis import (
    APIS,
    OUR_TAGS_FROM,
    ApiKey,
    request_header_version,
    response_header_version,
)
from penstock.wire.messages.header import RequestHeader, ResponseHeader
from penstock.wire.schema import Field, Message, Struct
from unit.wire.random_messages import all_messages, all_structs

MESSAGES = all_messages()
APIS_WITH_TABLES = sorted({ApiKey(cls.API_KEY) for cls in MESSAGES if cls.API_KEY is not None})


def reachable(cls: type[Message]) -> Iterator[tuple[type[Struct], int]]:
    for version in cls.VERSIONS:
        yield cls, version
        for inner in all_structs(cls, version):
            yield inner, version


@pytest.mark.parametrize("key", APIS_WITH_TABLES, ids=lambda key: key.name)
def test_request_and_response_agree_with_the_table_of_apis(key: ApiKey) -> None:
    module = importlib.import_module(f"penstock.wire.messages.{key.name.lower()}")
    stem = "".join(word.capitalize() for word in key.name.split("_"))
    for cls in (getattr(module, f"{stem}Request"), getattr(module, f"{stem}Response")):
        assert key == cls.API_KEY
        assert APIS[key].versions == cls.VERSIONS
        assert APIS[key].flexible_from == cls.FLEXIBLE_FROM


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_every_field_appears_in_some_version(cls: type[Message]) -> None:
    used: set[Field] = set()
    structs: set[type[Struct]] = set()
    for struct, version in reachable(cls):
        structs.add(struct)
        used.update(field for field in struct.FIELDS if version in field.versions)
    assert used == {field for struct in structs for field in struct.FIELDS}


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_tags(cls: type[Message]) -> None:
    for struct, version in reachable(cls):
        tags = [f.tag for f in struct.FIELDS if f.tag is not None and version in f.tagged]
        assert not tags or cls.is_flexible(version), struct
        # New tagged fields take the next tag; a gap would be a forgotten field.
        for first in (0, OUR_TAGS_FROM):
            some = sorted(tag for tag in tags if (tag >= OUR_TAGS_FROM) == (first > 0))
            assert some == list(range(first, first + len(some))), struct


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_null_defaults_are_allowed_where_the_field_begins(cls: type[Message]) -> None:
    for struct, version in reachable(cls):
        for field in struct.FIELDS:
            if field.default is None and field.kind != "records" and version in field.versions:
                assert version in field.nullable, (struct, field)


def test_api_keys_are_kafkas() -> None:
    assert sorted(APIS) == [*range(4), *range(8, 93), 20_000, 20_001]
    assert APIS.keys() == set(ApiKey)
    assert (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.API_VERSIONS) == (0, 1, 18)


def test_unstable_versions_are_told_apart() -> None:
    assert APIS[ApiKey.INIT_PRODUCER_ID].versions == range(7)
    assert APIS[ApiKey.INIT_PRODUCER_ID].stable_versions == range(6)
    assert APIS[ApiKey.FETCH].stable_versions == APIS[ApiKey.FETCH].versions == range(4, 19)


def test_header_versions() -> None:
    assert request_header_version(ApiKey.METADATA, 8) == 1
    assert request_header_version(ApiKey.METADATA, 9) == 2
    assert request_header_version(ApiKey.SASL_HANDSHAKE, 1) == 1
    assert response_header_version(ApiKey.METADATA, 8) == 0
    assert response_header_version(ApiKey.METADATA, 9) == 1
    for key, api in APIS.items():
        for version in api.versions:
            assert request_header_version(key, version) in RequestHeader.VERSIONS
            assert response_header_version(key, version) in ResponseHeader.VERSIONS


def test_api_versions_is_answered_without_tags_in_every_version() -> None:
    assert [response_header_version(ApiKey.API_VERSIONS, v) for v in range(10)] == [0] * 10
    assert request_header_version(ApiKey.API_VERSIONS, 99) == 2


def test_an_unknown_api_has_no_header_version() -> None:
    with pytest.raises(ValueError, match="4 is not a valid ApiKey"):
        request_header_version(4, 0)


def test_the_room_imports_no_tables_and_compiles_nothing() -> None:
    program = (
        "import sys, penstock.wire, penstock.wire.apis, penstock.wire.messages.produce as p\n"
        "tables = [m for m in sys.modules if m.startswith('penstock.wire.messages.')]\n"
        "assert tables == ['penstock.wire.messages.produce'], tables\n"
        "assert not p.ProduceRequest._decoders and not p.ProduceRequest._encoders\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_a_secret_is_in_no_repr(cls: type[Message]) -> None:
    for struct, _ in reachable(cls):
        for field in struct.FIELDS:
            if field.name in ("auth_bytes", "hmac", "salted_password"):
                assert field.secret, struct
            if field.secret:
                shown = repr(struct(**{field.name: b"pass-word"}))
                assert "pass-word" not in shown
                assert f"{field.name}=[hidden]" in shown
