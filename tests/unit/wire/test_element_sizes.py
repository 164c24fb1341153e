"""Every element of every array takes bytes, so a count is bounded by what has arrived."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.api.handlers import api_names
from penstock.api.registry import APIS, Api
from penstock.wire.codegen import bytes_min
from penstock.wire.messages.streams_group_describe import (
    DescribedGroup,
    StreamsGroupDescribeResponse,
)
from penstock.wire.schema import Field, Struct

assert api_names(), "importing the handlers fills the registry"


def elements(cls: type[Struct], version: int) -> Iterator[Field]:
    """What the arrays of a structure hold, and those inside them."""
    for field in cls.FIELDS:
        if version not in field.versions:
            continue
        inner = field.element if field.kind == "array" else field
        assert inner is not None
        if field.kind == "array":
            yield inner
        if inner.struct is not None:
            yield from elements(inner.struct, version)


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.key.name)
def test_every_element_of_an_array_takes_bytes(api: Api) -> None:
    for version in api.versions:
        flexible = api.request.is_flexible(version)
        for element in elements(api.request, version):
            assert bytes_min(element, version, flexible) > 0, f"version {version}: {element}"


def test_a_null_structure_in_an_element_is_read() -> None:
    refused = StreamsGroupDescribeResponse(groups=[DescribedGroup(group_id="g", error_code=35)])
    assert StreamsGroupDescribeResponse.decode(refused.encode(0), 0) == refused
