"""DefaultPrincipalData: who sent a request that one broker passes on to another."""

from __future__ import annotations

from penstock.wire.schema import Message, boolean, string


class DefaultPrincipalData(Message, versions="0", flexible="0+"):
    type: str = string("0+")
    name: str = string("0+")
    token_authenticated: bool = boolean("0+")
