"""`penstock acl create`: new ACLs, by hand or of a preset; what is there already stays."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.auth.acls import AclFilter
from penstock.auth.types import Acl
from penstock.cli.access import Access
from penstock.cli.acl import acls
from penstock.cli.acl.show import acl_json, print_acls
from penstock.cli.acl.wanted import Wanted
from penstock.cli.cluster.asking import Brokers
from penstock.cli.errors import CliError
from penstock.cli.options import Format, OutputFormat
from penstock.cli.output import plural, print_json, title

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be created.")]


def create(
    wanted: Wanted,
    access: Access,
    dry_run: DryRun = False,
    output_format: OutputFormat = Format.TEXT,
) -> None:
    """Create ACLs: for each principal, on each resource, for each operation; or those of a preset.

    Those that are there already stay as they are.
    """
    brokers = Brokers(access)
    principals = dict.fromkeys(acl.principal for acl in wanted.acls)
    there = set(acls.read(brokers, [AclFilter(principal=p) for p in principals]))
    existing = [acl for acl in wanted.acls if acl in there]
    missing = [acl for acl in wanted.acls if acl not in there]
    done = acls.Created(missing, [])
    if missing and not dry_run:
        done = acls.create(brokers, missing)
    if output_format is Format.JSON:
        _print_json(done.acls, existing, dry_run=dry_run)
    else:
        _print_text(done.acls, existing, "would create" if dry_run else "created")
    if done.refusals:
        raise CliError("; ".join(done.refusals))


def _print_json(created: list[Acl], existing: list[Acl], *, dry_run: bool) -> None:
    print_json(
        {
            "dry_run": dry_run,
            "created": [acl_json(acl) for acl in created],
            "existing": [acl_json(acl) for acl in existing],
        }
    )


def _print_text(created: list[Acl], existing: list[Acl], done: str) -> None:
    for what, found in ((done, created), ("there already:", existing)):
        if found:
            title(f"{what} {plural(len(found), 'ACL')}")
            print_acls(found)
