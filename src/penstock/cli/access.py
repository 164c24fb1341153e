"""How a command reaches its cluster: the options that say it, and what both clients make of them.

A command has one parameter of the type `Access`; `cli.lazy` puts the options of `Access.OPTIONS` in
its place. This is the one place where options become settings of confluent-kafka (`config`) and of
the connections that speak the protocol themselves (`client`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from penstock.cli.errors import usage_error
from penstock.cli.options import (
    BOOTSTRAP_DEFAULT,
    TIMEOUT_S_DEFAULT,
    Bootstrap,
    ConfigFile,
    OptionGroup,
    ProfileName,
    Timeout,
    Xs,
)
from penstock.kafka.client import Address, Client, parse_addresses
from penstock.kafka.given import gather
from penstock.kafka.librdkafka import VOCABULARY, config_of
from penstock.kafka.settings import BOOTSTRAP, Settings, client_of

CLIENT_ID = "penstock-cli"
PORT_DEFAULT = 9092


@dataclass(frozen=True)
class Access(OptionGroup):
    """Which cluster, by which settings, and how long to wait for each answer."""

    bootstrap: str
    timeout_s: float
    client: Client
    config: Mapping[str, str] = field(repr=False)
    """For confluent-kafka: what was given, and nothing else."""

    OPTIONS: ClassVar[Mapping[str, tuple[Any, Any]]] = {
        "bootstrap": (Bootstrap, None),
        "xs": (Xs, None),
        "config_file": (ConfigFile, None),
        "profile": (ProfileName, None),
        "timeout": (Timeout, TIMEOUT_S_DEFAULT),
    }

    @classmethod
    def of_options(cls, options: Mapping[str, Any]) -> Self:
        file = options["config_file"]
        if file is not None and "=" in file and not os.path.exists(file):
            raise usage_error(
                "--config names a file: give a setting of the client with -X KEY=VALUE, one of a"
                " topic with -c KEY=VALUE"
            )
        return cls.of(
            options["bootstrap"],
            options["timeout"],
            options["xs"] or (),
            file,
            os.environ,
            options["profile"],
        )

    @classmethod
    def of(
        cls,
        bootstrap: str | None,
        timeout_s: float,
        xs: Sequence[str] = (),
        file: str | None = None,
        environment: Mapping[str, str] | None = None,
        profile: str | None = None,
    ) -> Self:
        """Without an environment: of a node on this machine, say, which no profile is meant for."""
        given = gather(VOCABULARY, xs, file, environment or {}, profile)
        brokers = bootstrap or given.get(BOOTSTRAP) or BOOTSTRAP_DEFAULT
        settings = Settings({**given.values, BOOTSTRAP: brokers}, given.spelling)
        client = client_of(settings, Client(CLIENT_ID, connect_s=timeout_s, answer_s=timeout_s))
        return cls(brokers, timeout_s, client, config_of(settings, client.security))

    @property
    def addresses(self) -> list[Address]:
        """The brokers to ask first."""
        try:
            return parse_addresses(self.bootstrap, PORT_DEFAULT)
        except ValueError as e:
            raise usage_error(f"{e}: write --bootstrap HOST:PORT") from None
