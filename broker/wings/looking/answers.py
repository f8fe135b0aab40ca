"""Reads answers by their declarations: the first error code at any depth, the places of the values of partitions."""

from __future__ import annotations

from typing import Any

from minibroker.protocol.api import API_TABLE
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.message_rows import columns
from minibroker.protocol.messages.fetch import FetchResponse
from minibroker.protocol.primitives import Meaning

# In the rows of an answered Fetch, read by their places: half the time of reading them by name.
ERROR_CODE, RECORDS = map(FetchResponse.row("topics.partitions")._fields.index, ("error_code", "records"))


def first_error(api_key: int, body: Any) -> str:
    """Return Kafka's name of the first error in a response, an outer one before those in its rows; empty if it has
    none."""
    if body is None:
        return ""
    for column in columns(API_TABLE[api_key].response, Meaning.ERROR_CODE):
        codes = column.values(body)
        if any(codes):
            return error_of(next(filter(None, codes)))
    return ""


def error_of(code: int) -> str:
    """Return Kafka's name of an error code, empty for none."""
    try:
        return ErrorCode(code).name if code else ""
    except ValueError:
        return f"error {code}"
