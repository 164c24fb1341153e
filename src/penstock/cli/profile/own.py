"""The profiles of whoever runs the command."""

from __future__ import annotations

import os

from penstock.cli.errors import CliError
from penstock.kafka.profiles import Profiles


def own_profiles() -> Profiles:
    profiles = Profiles.of(os.environ)
    if profiles is None:
        raise CliError("the environment has no HOME to keep profiles in: set it")
    return profiles
