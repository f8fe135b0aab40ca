"""Finds the first error code in a response, by its declaration: that of any API, at any depth."""

from __future__ import annotations

from typing import Any

from minibroker.protocol.api import API_TABLE
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.message_rows import columns
from minibroker.protocol.primitives import Meaning


def first_error(api_key: int, body: Any) -> str:
    """Return Kafka's name of the first error in a response, an outer one before those in its rows; empty if it has
    none."""
    if body is None:
        return ""
    for column in columns(API_TABLE[api_key].response, Meaning.ERROR_CODE):
        codes = column.values(body)
        if any(codes):
            return name_of(next(filter(None, codes)))
    return ""


def name_of(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
