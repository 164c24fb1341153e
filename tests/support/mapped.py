"""Counts the stretches of segment files that are sent unread."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.log import pages


class Mapped:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times = 0
        real = pages.Pages

        def counted(*args: Any, **kwargs: Any) -> pages.Pages:
            self.times += 1
            return real(*args, **kwargs)

        monkeypatch.setattr(pages, "Pages", counted)
