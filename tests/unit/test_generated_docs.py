"""Pages that are made from the code say what the code says now; `make docs` writes them anew."""

from __future__ import annotations

from pathlib import Path

from penstock.api import handlers
from penstock.wire.support_doc import render

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_protocol_page_lists_what_is_served() -> None:
    served = {api.key: api.versions for api in handlers.APIS.values()}
    page = DOCS / "protocol-support.md"
    assert page.read_text(encoding="utf-8") == render(served), "run: make docs"
