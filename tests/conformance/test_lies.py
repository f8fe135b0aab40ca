"""A lie changes one length of a request, or spoils one text."""

from __future__ import annotations

import struct

import pytest

from minibroker.conformance.lies import NOT_UTF8, Lie, prefixes
from minibroker.protocol.api import API_TABLE, Api
from tests.protocol.message_values import sample


@pytest.mark.parametrize("api", API_TABLE.values(), ids=lambda api: api.name)
def test_a_lie_changes_one_length_and_nothing_else(api: Api) -> None:
    message = api.request
    for version in range(min(message.last_version + 1, message.first_flexible)):
        value = sample(message, version)
        honest = b"".join(map(bytes, message.encode(version, value)))
        for place, (position, form, _) in enumerate(prefixes(message, version, value)):
            size = struct.calcsize(form)
            assert 2 <= struct.unpack_from(form, honest, position)[0] <= 6, "two rows, or a short text"

            told = Lie(place, -2).told(message, version, value)

            assert told[position : position + size] == struct.pack(form, -2)
            assert told[:position] + told[position + size :] == honest[:position] + honest[position + size :]
        spoiled = Lie(0, None).told(message, version, value)
        assert sum(one != other for one, other in zip(honest, spoiled, strict=True)) == (NOT_UTF8 in spoiled)
