"""`penstock token create`, `renew`, `expire`."""

from __future__ import annotations

import base64
from typing import Annotated

import typer

from penstock.cli.access import Access
from penstock.cli.cluster.asking import Brokers
from penstock.cli.options import Format, OutputFormat
from penstock.cli.output import print_json, print_pairs
from penstock.cli.token.tokens import TokenId, check, find, split, time_text
from penstock.wire.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from penstock.wire.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from penstock.wire.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

BROKERS_CHOICE = -1
AT_ONCE = -1

Owner = Annotated[
    str | None,
    typer.Option("--owner", metavar="TYPE:NAME", help="Whom the token stands for; else yourself."),
]
Renewers = Annotated[
    list[str] | None,
    typer.Option(
        "--renewer", metavar="TYPE:NAME", help="Who may renew and expire it, too; may be repeated."
    ),
]
Lifetime = Annotated[
    float | None,
    typer.Option(
        "--lifetime", min=1, metavar="SECONDS", help="Its longest life; else what brokers allow."
    ),
]
For = Annotated[
    float | None,
    typer.Option(
        "--for", min=1, metavar="SECONDS", help="For how long from now; else what brokers allow."
    ),
]
In = Annotated[
    float | None,
    typer.Option("--in", min=0, metavar="SECONDS", help="In how long from now; else at once."),
]


def create(
    access: Access,
    owner: Owner = None,
    renewer: Renewers = None,
    lifetime: Lifetime = None,
    output_format: OutputFormat = Format.TEXT,
) -> None:
    """Create a delegation token and print it; it is the one time that the secret is shown.

    A client logs in with it by SCRAM: the id is the name, the secret the password, with tokenauth.
    """
    doing = "create a delegation token"
    kind, name = (None, None) if owner is None else split(owner)
    request = CreateDelegationTokenRequest(
        owner_principal_type=kind,
        owner_principal_name=name,
        renewers=[
            CreatableRenewers(principal_type=kind, principal_name=name)
            for kind, name in map(split, renewer or [])
        ],
        max_lifetime_ms=_ms(lifetime, BROKERS_CHOICE),
    )
    made = Brokers(access).ask(request, CreateDelegationTokenResponse, doing)
    check(made.error_code, doing)
    shown = {
        "id": made.token_id,
        "secret": base64.b64encode(made.hmac).decode(),
        "owner": f"{made.principal_type}:{made.principal_name}",
        "expires": time_text(made.expiry_timestamp_ms),
        "ends": time_text(made.max_timestamp_ms),
    }
    if output_format is Format.JSON:
        print_json(shown)
    else:
        print_pairs(list(shown.items()))


def renew(
    token_id: TokenId,
    access: Access,
    period: For = None,
    output_format: OutputFormat = Format.TEXT,
) -> None:
    """Let a delegation token be used for longer, up to its end."""
    doing, brokers = f"renew the token {token_id}", Brokers(access)
    request = RenewDelegationTokenRequest(
        hmac=find(brokers, token_id).secret, renew_period_ms=_ms(period, BROKERS_CHOICE)
    )
    answer = brokers.ask(request, RenewDelegationTokenResponse, doing)
    check(answer.error_code, doing)
    _print_expiry("renewed", token_id, answer.expiry_timestamp_ms, output_format)


def expire(
    token_id: TokenId,
    access: Access,
    period: In = None,
    output_format: OutputFormat = Format.TEXT,
) -> None:
    """End a delegation token, at once or in a while.

    Sessions that it has begun go on until they end by themselves.
    """
    doing, brokers = f"expire the token {token_id}", Brokers(access)
    request = ExpireDelegationTokenRequest(
        hmac=find(brokers, token_id).secret, expiry_time_period_ms=_ms(period, AT_ONCE)
    )
    answer = brokers.ask(request, ExpireDelegationTokenResponse, doing)
    check(answer.error_code, doing)
    _print_expiry("expired", token_id, answer.expiry_timestamp_ms, output_format)


def _ms(seconds: float | None, default: int) -> int:
    return default if seconds is None else int(seconds * 1000)


def _print_expiry(what: str, token_id: str, expires_ms: int, output_format: Format) -> None:
    if output_format is Format.JSON:
        print_json({"done": what, "id": token_id, "expires": time_text(expires_ms)})
    else:
        print(f"{what} {token_id}: it can be used until {time_text(expires_ms)}")
