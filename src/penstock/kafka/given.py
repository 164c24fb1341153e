"""The places in which a person gives settings: a file or a profile, the environment, the command
line; each of them above the one before.

Duty: `-X key=value`, `PENSTOCK_X_KEY` and a file become one `Settings`. One file counts: that of
the command line, else that of the environment, else the profile in use (`profiles.py`). In the
environment a setting's name is in capitals with `_` for the dots: `sasl.password` is
`PENSTOCK_X_SASL_PASSWORD`. A file whose name ends with `.toml` is TOML, any other is a properties
file.

Invariants: what is unknown or refused is an error that names the place, never the value. A setting
that has no effect is refused where somebody typed it, and passed over in the environment and in a
file, which several tools may share. A setting replaces its rivals of the places below: a user name
given by `-X` is not at odds with a `sasl.jaas.config` of the file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from penstock.config.load import read_properties, read_toml
from penstock.config.table import ConfigError
from penstock.kafka.errors import SettingError
from penstock.kafka.profiles import Profiles
from penstock.kafka.security import RIVALS
from penstock.kafka.settings import BOOTSTRAP, Settings, Vocabulary

FILE_VARIABLE: Final = "PENSTOCK_CONFIG"
PROFILE_VARIABLE: Final = "PENSTOCK_PROFILE"
BOOTSTRAP_VARIABLE: Final = "PENSTOCK_BOOTSTRAP"
PREFIX: Final = "PENSTOCK_X_"
_NAME = re.compile(r"[A-Za-z0-9._-]*")


def gather(
    vocabulary: Vocabulary,
    pairs: Sequence[str],
    file: str | None,
    environment: Mapping[str, str],
    profile: str | None = None,
) -> Settings:
    """All that was given, checked."""
    typed = _checked(vocabulary, "-X", _of_pairs(pairs), is_typed=True)
    variables = _checked(vocabulary, "environment", _of_environment(environment), is_typed=False)
    place, found = _filed(file, profile, environment)
    filed = _checked(vocabulary, place, found, is_typed=False)
    return Settings(above(typed, above(variables, filed)), vocabulary.spelling)


def _filed(
    file: str | None, profile: str | None, environment: Mapping[str, str]
) -> tuple[str, dict[str, str]]:
    """The one file that counts: how it is called, and what it says."""
    profiles = Profiles.of(environment)
    for a_file, a_profile, names in (
        (file, profile, "--config and --profile"),
        (
            environment.get(FILE_VARIABLE),
            environment.get(PROFILE_VARIABLE),
            f"{FILE_VARIABLE} and {PROFILE_VARIABLE} of the environment",
        ),
        (None, profiles and profiles.used(), ""),
    ):
        if a_file and a_profile:
            raise SettingError(f"{names} each name a set of settings: give one of them")
        if a_file:
            return a_file, _of_file(a_file)
        if a_profile:
            return f"profile {a_profile}", _of_profile(a_profile, profiles)
    return "", {}


def _of_profile(name: str, profiles: Profiles | None) -> dict[str, str]:
    if profiles is None:
        raise SettingError(f"profile {name}: the environment has no HOME to look for profiles in")
    return profiles.read(name)


def _checked(
    vocabulary: Vocabulary, place: str, given: Mapping[str, str], *, is_typed: bool
) -> dict[str, str]:
    without = {name: why for name in given if (why := vocabulary.no_effect(name)) is not None}
    for name, why in without.items() if is_typed else ():
        raise SettingError(f"{place}: {name} would have no effect: {why}")
    try:
        kept = {name: value for name, value in given.items() if name not in without}
        return vocabulary.checked(kept).values
    except SettingError as e:
        raise SettingError(f"{place}: {e}") from None


def above(upper: Mapping[str, str], lower: Mapping[str, str]) -> dict[str, str]:
    """`lower` with what `upper` has instead; both by Java's names."""
    gone = {rival for name in upper for rival in RIVALS.get(name, ())}
    return {**{name: value for name, value in lower.items() if name not in gone}, **upper}


def _of_pairs(pairs: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        name = name.strip()
        if not sign or not name:
            shown = _NAME.match(pair)  # no more of it: it may be a password
            begun = shown[0] if shown else ""
            raise SettingError(f"-X {begun}... is not a setting: write -X key=value")
        if found.setdefault(name, value) != value:
            raise SettingError(f"-X {name} is given twice with different values: keep one of them")
    return found


def _of_environment(environment: Mapping[str, str]) -> dict[str, str]:
    found = {
        name.removeprefix(PREFIX).lower().replace("_", "."): value
        for name, value in environment.items()
        if name.startswith(PREFIX)
    }
    brokers = environment.get(BOOTSTRAP_VARIABLE)
    return {BOOTSTRAP: brokers, **found} if brokers else found


def _of_file(file: str) -> dict[str, str]:
    path = Path(file)
    try:
        return read_toml(path) if path.suffix == ".toml" else read_properties(path).texts
    except ConfigError as e:
        raise SettingError(
            f"{e}; name a file of key=value lines, or of TOML if its name ends with .toml"
        ) from None
