"""The locked node that the tests of attacks share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from interop.abuse.rig import LOCKED
from support.secured_node import SecuredNode


@pytest.fixture(scope="session")
def shared_locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    with SecuredNode(tmp_path_factory.mktemp("locked") / "node", LOCKED) as made:
        made.add_user()
        yield made


@pytest.fixture
def locked(shared_locked: SecuredNode) -> Iterator[SecuredNode]:
    """It lives on whatever is done to it."""
    yield shared_locked
    assert shared_locked.running, shared_locked.log_tail()
    assert "Traceback" not in shared_locked.log_path.read_text()
