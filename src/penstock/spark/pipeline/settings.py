"""Turns settings as they are typed or written in `pipeline.toml` into a pipeline's arguments.

Pure. The pipeline's signature says what is allowed; every refusal names the setting and, where one
is near, the one that was probably meant.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
from collections.abc import Mapping

from penstock.spark.pipeline.errors import PipelineError
from penstock.spark.pipeline.roles import Role
from penstock.spark.pipeline.signature import Kind, Setting, Signature, Value

KAFKA = "kafka."
BOOTSTRAP = "kafka.bootstrap.servers"
CHECKPOINT = "checkpoint"
CATALOG = "catalog"
DESTINATIONS = ("to", "table")
DIGEST_LENGTH = 12
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


def arguments(signature: Signature, given: Mapping[str, str]) -> dict[str, Value]:
    """The keyword arguments of the pipeline's function."""
    known = {setting.name: setting for setting in signature.settings}
    found: dict[str, Value] = {}
    for key, text in given.items():
        if key.startswith(KAFKA):
            if signature.takes_kafka:
                found[key] = text
            elif key != BOOTSTRAP:  # which is always there, asked for or not
                raise PipelineError(f"the pipeline takes no kafka settings, but {key} is given")
            continue
        name = key.replace("-", "_")
        if name not in known:
            raise PipelineError(_unknown(key, signature))
        if known[name].is_required and not text.strip():
            raise PipelineError(f"setting {known[name].option} is empty: {known[name].text}")
        found[name] = convert(known[name], text)
    if missing := [s for s in signature.settings if s.is_required and s.name not in found]:
        what = f" ({missing[0].text})" if missing[0].text else ""
        raise PipelineError(
            f"setting {missing[0].option} is missing{what}: give it with --set"
            f" {missing[0].option}=..."
        )
    _check_given(signature, found)
    return found


def _check_given(signature: Signature, found: Mapping[str, Value]) -> None:
    """Refuses settings that exclude each other, and the lack of all that would do."""
    for names, are_exclusive in (
        (signature.exactly_one_of, True),
        (signature.at_least_one_of, False),
    ):
        given = [name for name in names if found.get(name) is not None]
        if names and (not given or (are_exclusive and len(given) > 1)):
            wanted = "exactly one" if are_exclusive else "at least one"
            raise PipelineError(
                f"give {wanted} of the settings {' and '.join(names)}"
                f" ({' and '.join(given) or 'none'} given)"
            )


def with_checkpoint(
    signature: Signature, given: Mapping[str, str], folder: str, cluster: str | None
) -> dict[str, str]:
    """The settings, with a place for the query's progress where the pipeline asks for one that
    nobody has named. It goes by what is read and written, and on which cluster: what was written
    to one place says nothing of another, and a folder is the same one from wherever it is named.
    """
    if CHECKPOINT in given or not any(s.name == CHECKPOINT for s in signature.settings):
        return dict(given)
    digest = hashlib.sha256(json.dumps([cluster, _places(signature, given)]).encode())
    return {**given, CHECKPOINT: f"{folder}/{digest.hexdigest()[:DIGEST_LENGTH]}"}


def _places(signature: Signature, given: Mapping[str, str]) -> dict[str, str]:
    """What is read and written, by the names of the settings."""
    found = {name: given[name] for name in DESTINATIONS if name in given}
    for setting in signature.settings:
        text = given.get(setting.name, given.get(setting.option))
        if text is None or setting.role is None:
            continue
        if setting.role.is_place and CATALOG not in given:
            found[setting.name] = address_of(text)
        elif setting.role.is_topic or setting.role.is_place or setting.role is Role.CATALOG:
            found[setting.name] = text
    return found


def address_of(place: str) -> str:
    """The folder that is meant, wherever the command is given: an absolute path, or an address."""
    path = place.removeprefix("file://")
    return place.rstrip("/") if "://" in path else os.path.abspath(path)


def convert(setting: Setting, text: str) -> Value:
    """One value, by the setting's type."""
    if setting.may_be_none and text.strip().lower() in ("", "none"):
        return None
    if setting.choices and text not in setting.choices:
        allowed = " or ".join(setting.choices)
        raise PipelineError(f"setting {setting.option} must be {allowed}, not {text!r}")
    if setting.kind is Kind.STR:
        return text
    if setting.kind is Kind.LIST:
        return [part.strip() for part in text.split(",") if part.strip()]
    if setting.kind is Kind.BOOL:
        word = text.strip().lower()
        if word in _TRUE + _FALSE:
            return word in _TRUE
        raise PipelineError(f"setting {setting.option} must be true or false, not {text!r}")
    try:
        return int(text) if setting.kind is Kind.INT else float(text)
    except ValueError:
        wanted = "a whole number" if setting.kind is Kind.INT else "a number"
        raise PipelineError(f"setting {setting.option} must be {wanted}, not {text!r}") from None


def as_text(value: object) -> str:
    """A value of `pipeline.toml` as it would be typed."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value)


def _unknown(key: str, signature: Signature) -> str:
    names = [setting.option for setting in signature.settings]
    if not signature.is_function:
        return f"setting {key} is given, but a plain script takes none: it reads no settings"
    close = difflib.get_close_matches(key.replace("_", "-"), names, n=1, cutoff=0.6)
    hint = f" (did you mean {close[0]}?)" if close else ""
    return f"there is no setting {key}{hint}: the pipeline takes {', '.join(names) or 'none'}"
