"""Whether a run can speak for what the one before it had written."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.log.run_claim import NO_EPOCH, RUN_FILE, RunClaim, boot_id


@pytest.mark.parametrize(
    ("closed_cleanly", "boot", "epoch"),
    [
        (False, "monday", 7),  # killed
        (True, "monday", 7),
        (True, "tuesday", 7),  # all was synced
        (False, "tuesday", NO_EPOCH),  # the power was lost
        (False, "", NO_EPOCH),
    ],
)
def test_who_can_speak_for_the_data(
    tmp_path: Path, closed_cleanly: bool, boot: str, epoch: int
) -> None:
    RunClaim(str(tmp_path), "monday").begin(7)
    assert RunClaim(str(tmp_path), boot).intact_epoch(closed_cleanly=closed_cleanly) == epoch


def test_machines_that_do_not_tell_their_boot_are_not_trusted(tmp_path: Path) -> None:
    RunClaim(str(tmp_path), "").begin(7)
    assert RunClaim(str(tmp_path), "").intact_epoch(closed_cleanly=False) == NO_EPOCH
    assert RunClaim(str(tmp_path), "").intact_epoch(closed_cleanly=True) == 7


def test_a_claim_can_be_withdrawn(tmp_path: Path) -> None:
    claim = RunClaim(str(tmp_path), "monday")
    claim.begin(7)
    claim.withdraw()
    claim.withdraw()
    assert claim.intact_epoch(closed_cleanly=True) == NO_EPOCH


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "7", '{"broker_epoch": "x", "boot_id": "monday"}']
)
def test_a_damaged_claim_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / RUN_FILE).write_text(text)
    claim = RunClaim(str(tmp_path), "monday")
    assert claim.intact_epoch(closed_cleanly=True) == NO_EPOCH


def test_this_machine_names_its_boot() -> None:
    assert boot_id() == boot_id()
