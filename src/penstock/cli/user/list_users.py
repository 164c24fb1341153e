"""`penstock user list`: who has a password."""

from __future__ import annotations

from penstock.cli.access import Access
from penstock.cli.options import Format, OutputFormat
from penstock.cli.output import print_json, print_table
from penstock.cli.user.users import Users


def list_users(access: Access, output_format: OutputFormat = Format.TEXT) -> None:
    """List the users that have a password, and by which mechanisms.

    Not those that are in the settings of a node, or come with a certificate or a token.
    """
    found = Users(access).read()
    if output_format is Format.JSON:
        print_json(
            [
                {"name": name, "mechanisms": {str(m): count for m, count in mechanisms.items()}}
                for name, mechanisms in found.items()
            ]
        )
        return
    rows = [
        (name, mechanism.value, iterations)
        for name, mechanisms in found.items()
        for mechanism, iterations in mechanisms.items()
    ]
    print_table(("user", "mechanism", "iterations"), rows)
