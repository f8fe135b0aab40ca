"""Replaces error codes that a client does not know with codes that it does.

By the version of the API: some codes came with one (`Api.later_codes`), which its handler asks for. By the release that
the broker acts as: `KnownErrors` works on finished answers, on the fields that their messages declare as error codes;
without `--act-as` it is not used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minibroker.protocol.api import API_TABLE
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.message_rows import columns
from minibroker.protocol.primitives import Meaning

Body = Any


def known_code(api_key: int, version: int, code: ErrorCode) -> ErrorCode:
    """Return the code, or the one that stands for it in a version that does not know it."""
    if code is not ErrorCode.NONE:
        for later in API_TABLE[api_key].later_codes:
            if code is later.code and version < later.first:
                return later.before
    return code


class KnownErrors:
    """Replaces each error code of an answer by `error_code_for`."""

    def __init__(self, error_code_for: Callable[[int], int]) -> None:
        self._error_code_for = error_code_for

    def replaced(self, api_key: int, body: Body) -> Body:
        for column in columns(API_TABLE[api_key].response, Meaning.ERROR_CODE):
            if any(column.values(body)):
                body = column.replaced(body, self._error_code_for)
        return body
