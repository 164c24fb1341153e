from __future__ import annotations

from pathlib import Path

from penstock.config.settings_doc import settings_page

PAGE = Path(__file__).parents[3] / "docs" / "settings.md"


def test_the_settings_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == settings_page(), (
        "run: python -m penstock.config.settings_doc > docs/settings.md"
    )
