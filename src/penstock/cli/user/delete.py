"""`penstock user delete`: users whose passwords are to let nobody in any more."""

from __future__ import annotations

from penstock.cli.access import Access
from penstock.cli.cluster.options import Yes, confirm, require_yes
from penstock.cli.options import Format, OutputFormat
from penstock.cli.output import print_json
from penstock.cli.user.users import UserNames, Users, missing


def delete(
    names: UserNames, access: Access, yes: Yes = False, output_format: OutputFormat = Format.TEXT
) -> None:
    """Delete users: with their passwords nobody logs in any more.

    Sessions go on, and ACLs stay; see `penstock acl delete`.
    """
    require_yes(yes, "deleting users")
    users = Users(access)
    found = users.read()
    for name in names:
        if name not in found:
            raise missing(name)
    confirm(yes, f"Delete {', '.join(names)}?")
    for name in dict.fromkeys(names):
        users.delete(name, list(found[name]))
    if output_format is Format.JSON:
        print_json({"deleted": list(dict.fromkeys(names))})
    else:
        print(f"deleted {', '.join(dict.fromkeys(names))}")
