"""`penstock acl list`: the ACLs that are there."""

from __future__ import annotations

from penstock.cli.access import Access
from penstock.cli.acl.acls import read
from penstock.cli.acl.selection import Selection
from penstock.cli.acl.show import acl_json, print_acls
from penstock.cli.cluster.asking import Brokers
from penstock.cli.options import Format, OutputFormat
from penstock.cli.output import print_json


def list_acls(
    selection: Selection, access: Access, output_format: OutputFormat = Format.TEXT
) -> None:
    """List the ACLs, all of them or those that the options select."""
    found = read(Brokers(access), selection.filters)
    if output_format is Format.JSON:
        print_json([acl_json(acl) for acl in found])
    else:
        print_acls(found)
