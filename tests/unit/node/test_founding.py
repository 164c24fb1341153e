"""The file with the first users of a new cluster."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.auth import scram
from penstock.base.clock import SystemRng
from penstock.base.errors import ApiError
from penstock.config.table import ConfigError
from penstock.metadata.security_records import UserScramCredentialRecord
from penstock.node.founding import FoundingUsers


def users(folder: Path, text: str) -> FoundingUsers:
    path = folder / "users"
    path.write_text(text, encoding="utf-8")
    return FoundingUsers(str(path), SystemRng())


def test_each_line_becomes_a_credential(tmp_path: Path) -> None:
    found = users(
        tmp_path,
        "# comment\n\n"
        "SCRAM-SHA-256=[name=ann,password=one=two]\n"
        'SCRAM-SHA-512=[name=ann,iterations=8192,password="a, b"]\n',
    )
    found.check()
    records = asyncio.run(found.records())
    for record, (mechanism, number, password, rounds) in zip(
        records,
        [("SCRAM-SHA-256", 1, b"one=two", 4096), ("SCRAM-SHA-512", 2, b"a, b", 8192)],
        strict=True,
    ):
        assert isinstance(record, UserScramCredentialRecord)
        assert (record.name, record.mechanism, record.iterations) == ("ann", number, rounds)
        salted = scram.salted_password(scram.HASHES[mechanism], password, record.salt, rounds)
        wanted = scram.keys(scram.HASHES[mechanism], salted)
        assert (record.stored_key, record.server_key) == wanted


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("SCRAM-MD5=[name=a,password=hidden]", "the mechanism one of"),
        ("SCRAM-SHA-256=name=a,password=hidden", "the mechanism one of"),
        ("SCRAM-SHA-256=[name=a]", "needs a name and a password"),
        ("SCRAM-SHA-256=[name=,password=hidden]", "needs a name and a password"),
        ("SCRAM-SHA-256=[name=a,password=hidden,x=1]", "needs a name and a password"),
        ("SCRAM-SHA-256=[name=a,password=hidden,iterations=1]", "between 4096 and 16384"),
        ('SCRAM-SHA-256=[name=a,password="hidden]', "must be NAME=VALUE"),
        ("SCRAM-SHA-256=[name=a,password=x]\nSCRAM-SHA-256=[name=a,password=hidden]", "line 2"),
    ],
)
def test_a_line_that_is_none_is_named_and_not_shown(tmp_path: Path, line: str, why: str) -> None:
    found = users(tmp_path, line)
    with pytest.raises(ConfigError) as refused:
        found.check()
    assert why in str(refused.value)
    assert "hidden" not in str(refused.value)


def test_a_file_that_is_gone_refuses_the_first_records(tmp_path: Path) -> None:
    found = FoundingUsers(str(tmp_path / "none"), SystemRng())
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        found.check()
    with pytest.raises(ApiError, match="cannot be read"):
        asyncio.run(found.records())
