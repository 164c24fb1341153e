"""The passwords of PLAIN in a broker's own settings. What clients write is tested with them, in
`tests/unit/kafka/test_security.py`.
"""

from __future__ import annotations

import pytest

from penstock.auth.jaas import parse_jaas, plain_users

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def test_users_of_a_broker() -> None:
    text = f'{MODULE} username="node" password="n" user_node="n" user_a.b="p;=\\"q";'
    assert plain_users(text) == {"node": "n", "a.b": 'p;="q'}
    assert plain_users(f'{MODULE} username="node" password="n";') == {}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('a.ScramLoginModule required user_a="hush";', "PlainLoginModule"),
        (f'{MODULE} user_="hush";', "no name or no password"),
        (f'{MODULE} user_a="hush" user_b="";', "no name or no password"),
        (f'{MODULE} user_a="hush"', "semicolon"),
        (f'{MODULE} user_a="hush;', "quote"),
    ],
)
def test_what_cannot_be_read_shows_no_password(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as failed:
        plain_users(text)
    assert "hush" not in str(failed.value)


def test_no_option_is_shown() -> None:
    assert "hush" not in repr(parse_jaas(f'{MODULE} password="hush";'))
