"""`penstock acl delete`: take ACLs away, exactly those that were shown."""

from __future__ import annotations

from penstock.cli.access import Access
from penstock.cli.acl import acls
from penstock.cli.acl.selection import Selection
from penstock.cli.acl.show import acl_json, print_acls
from penstock.cli.cluster.asking import Brokers
from penstock.cli.cluster.options import Yes, confirm, require_yes
from penstock.cli.errors import usage_error
from penstock.cli.options import Format, OutputFormat
from penstock.cli.output import plural, print_json


def delete(
    selection: Selection,
    access: Access,
    yes: Yes = False,
    output_format: OutputFormat = Format.TEXT,
) -> None:
    """Delete the ACLs that the options select, after showing them.

    Where they deny, what they denied may be allowed then.
    """
    if selection.is_everything:
        raise usage_error(
            "to delete every ACL is surely not meant: say which, by --principal, --role, --topic"
            " or another option of `penstock acl list`"
        )
    require_yes(yes, "deleting ACLs")
    brokers = Brokers(access)
    found = acls.read(brokers, selection.filters)
    if found and output_format is Format.TEXT:
        print_acls(found)
    if found:
        confirm(yes, f"Delete {plural(len(found), 'ACL')}?")
    deleted = acls.delete(brokers, found)
    if output_format is Format.JSON:
        print_json([acl_json(acl) for acl in deleted])
    else:
        print(f"deleted {plural(len(deleted), 'ACL')}" if found else "there is no such ACL")
