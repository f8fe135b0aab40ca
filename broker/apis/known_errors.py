"""Replaces error codes that a client does not know with codes that it does.

Some codes came with a version of their API (`Api.later_codes`), which its handler asks for. Those that came with a
release are a stage of their own (`way/codec.py`).
"""

from __future__ import annotations

from minibroker.protocol.api import API_TABLE
from minibroker.protocol.errors import ErrorCode


def known_code(api_key: int, version: int, code: ErrorCode) -> ErrorCode:
    """Return the code, or the one that stands for it in a version that does not know it."""
    if code is not ErrorCode.NONE:
        for later in API_TABLE[api_key].later_codes:
            if code is later.code and version < later.first:
                return later.before
    return code
