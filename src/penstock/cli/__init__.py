"""The command line: `penstock NOUN VERB`.

Nothing heavy is imported here: `penstock serve` has to be ready in a second, so that a node runs
without typer, and each other command without what only the others need (`lazy.py`).
"""

from __future__ import annotations

import sys

from penstock.cli.errors import EXIT_INTERRUPTED, CliError, fail


def main() -> int:
    """The entry point of the `penstock` command; the result is the exit code."""
    argv = sys.argv[1:]
    if argv[:1] == ["serve"]:
        from penstock.cli.serve_node import parse_plain, serve_node

        options = parse_plain(argv[1:])
        if options is not None:
            try:
                return serve_node(options)
            except CliError as e:
                return fail(e.sentence, e.exit_code)
            except KeyboardInterrupt:
                return EXIT_INTERRUPTED
    from penstock.cli.app import run

    return run(argv)
