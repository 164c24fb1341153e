"""Chaos on a whole cluster: real processes, real clients, real faults, and a checker.

`python -m tests.chaos.cluster --minutes 5` runs it. The parts: `workload` (clients that record what
they did and saw), `acl_churn` (ACLs of somebody else that come and go), `transactions`
(transactional workers, each a process, and who reads what they commit), `share_clients` (members of
a share group), `nemesis` (faults, from a seed), `network` (what carries the traffic and can be
cut), `history` (the record), `checker`, `txn_checker` and `share_checker` (pure functions over the
record), `replicas` (the log directories of stopped nodes, compared), `report` (the table), `run`
(all of it together).
"""

from __future__ import annotations

import sys
from pathlib import Path

_TESTS = str(Path(__file__).resolve().parents[2])
if _TESTS not in sys.path:  # as `tests/conftest.py` does for pytest
    sys.path.insert(0, _TESTS)
