"""`penstock user create`: a new user with a password."""

from __future__ import annotations

from penstock.cli.access import Access
from penstock.cli.errors import CliError
from penstock.cli.options import Format, OutputFormat
from penstock.cli.output import print_json
from penstock.cli.user.password import PasswordFile, new_password
from penstock.cli.user.users import (
    ITERATIONS_DEFAULT,
    Iterations,
    Mechanism,
    Mechanisms,
    UserName,
    Users,
)


def create(
    name: UserName,
    access: Access,
    password_file: PasswordFile = None,
    mechanism: Mechanisms = None,
    iterations: Iterations = ITERATIONS_DEFAULT,
    output_format: OutputFormat = Format.TEXT,
) -> None:
    """Create a user with a password.

    The user may do nothing yet where there are ACLs; see `penstock acl create`.
    """
    users = Users(access)
    if name in users.read():
        raise CliError(
            f"there is a user {name} already: for another password, `penstock user passwd {name}`"
        )
    wanted = mechanism or list(Mechanism)
    users.set(name, wanted, new_password(password_file, name), iterations)
    if output_format is Format.JSON:
        print_json({"created": name, "mechanisms": [str(one) for one in wanted]})
    else:
        print(f"created {name}, for {' and '.join(wanted)}")
