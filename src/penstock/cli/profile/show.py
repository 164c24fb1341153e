"""`penstock profile list` and `show`: no secret is shown."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from penstock.cli.config.show import HIDDEN
from penstock.cli.errors import CliError
from penstock.cli.options import Format, OutputFormat
from penstock.cli.output import print_json, print_pairs, print_table, remark
from penstock.cli.profile.own import own_profiles
from penstock.kafka.settings import BOOTSTRAP

SHOWN: Final = frozenset(
    (
        "security.protocol",
        "sasl.mechanism",
        "sasl.username",
        "enable.ssl.certificate.verification",
        "ssl.endpoint.identification.algorithm",
        "ssl.enabled.protocols",
        "ssl.cipher.suites",
    )
)
"""What of security is no secret, besides types and places of files."""
_MAY_BE_SECRET: Final = ("security.", "sasl.", "ssl.", "enable.ssl.")


def list_profiles(output_format: OutputFormat = Format.TEXT) -> None:
    """List the profiles; the one in use has a star."""
    profiles = own_profiles()
    used = profiles.used()
    found = [(name, profiles.read(name)) for name in profiles.names()]
    if output_format is Format.JSON:
        print_json(
            [
                {"profile": name, "used": name == used, "settings": public(settings)}
                for name, settings in found
            ]
        )
    elif found:
        rows = [
            (
                "*" if name == used else "",
                name,
                settings.get(BOOTSTRAP, "-"),
                settings.get("security.protocol", "PLAINTEXT"),
            )
            for name, settings in found
        ]
        print_table(("", "profile", "bootstrap", "security"), rows)
    else:
        remark("there are no profiles: make one with `penstock profile set NAME`")


def show(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="The profile; else the one in use.")
    ] = None,
    output_format: OutputFormat = Format.TEXT,
) -> None:
    """Show the settings of a profile, without its secrets."""
    profiles = own_profiles()
    wanted = name or profiles.used()
    if wanted is None:
        raise CliError("no profile is in use: name one, as `penstock profile list` shows them")
    found = public(profiles.read(wanted))
    if output_format is Format.JSON:
        print_json({"profile": wanted, "used": wanted == profiles.used(), "settings": found})
    else:
        print_pairs(list(found.items()))


def public(settings: dict[str, str]) -> dict[str, str]:
    """The settings, with a word in place of what is or may be a secret."""
    return {name: value if _is_shown(name) else HIDDEN for name, value in settings.items()}


def _is_shown(name: str) -> bool:
    if not name.startswith(_MAY_BE_SECRET):
        return True
    return name in SHOWN or name.endswith((".location", ".type"))
