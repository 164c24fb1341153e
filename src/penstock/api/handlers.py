"""Every API that is served: importing this module fills the registry."""

from __future__ import annotations

import importlib
import pkgutil

import penstock.api as room
from penstock.api.registry import APIS

for _module in pkgutil.iter_modules(room.__path__):
    importlib.import_module(f"{room.__name__}.{_module.name}")


def api_names() -> dict[int, str]:
    """The served APIs' names as metrics show them: Produce, ListOffsets, ..."""
    return {key: api.request.__name__.removesuffix("Request") for key, api in APIS.items()}
