"""`penstock user passwd`: another password for a user."""

from __future__ import annotations

from penstock.cli.access import Access
from penstock.cli.options import Format, OutputFormat
from penstock.cli.output import print_json
from penstock.cli.user.password import PasswordFile, new_password
from penstock.cli.user.users import (
    ITERATIONS_DEFAULT,
    Iterations,
    Mechanisms,
    UserName,
    Users,
    missing,
)


def passwd(
    name: UserName,
    access: Access,
    password_file: PasswordFile = None,
    mechanism: Mechanisms = None,
    iterations: Iterations = ITERATIONS_DEFAULT,
    output_format: OutputFormat = Format.TEXT,
) -> None:
    """Give a user another password: for the mechanisms that the user has, or for those named.

    It counts for the next login; sessions go on.
    """
    users = Users(access)
    had = users.read().get(name)
    if had is None:
        raise missing(name)
    wanted = mechanism or list(had)
    users.set(name, wanted, new_password(password_file, name), iterations)
    if output_format is Format.JSON:
        print_json({"changed": name, "mechanisms": [str(one) for one in wanted]})
    else:
        print(f"changed the password of {name}, for {' and '.join(wanted)}")
