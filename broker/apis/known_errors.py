"""Replaces error codes that a client does not know with codes that it does.

By the version of the API: some codes came with one (`CAME_WITH`), which its handler asks for. By the release that the
broker acts as: `KnownErrors` works on finished answers, on the fields that their messages declare as error codes;
without `--act-as` it is not used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from minibroker.protocol.api import API_TABLE, ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.message_rows import columns
from minibroker.protocol.primitives import Meaning

Body = Any


class CodeOfVersion(NamedTuple):
    """A code that clients know from version `first` on; older ones get the code `before`."""

    first: int
    before: ErrorCode


# A storage error is a fatal surprise to a client that does not know it: it is to look for another leader, and retry
# (as kafka 2.0.1 FetchResponse and ProduceResponse). A fenced producer was one with an old epoch.
CAME_WITH: dict[int, dict[ErrorCode, CodeOfVersion]] = {
    ApiKey.PRODUCE: {ErrorCode.KAFKA_STORAGE_ERROR: CodeOfVersion(4, ErrorCode.NOT_LEADER_FOR_PARTITION)},
    ApiKey.FETCH: {ErrorCode.KAFKA_STORAGE_ERROR: CodeOfVersion(6, ErrorCode.NOT_LEADER_FOR_PARTITION)},
    ApiKey.INIT_PRODUCER_ID: {ErrorCode.PRODUCER_FENCED: CodeOfVersion(4, ErrorCode.INVALID_PRODUCER_EPOCH)},
    ApiKey.ADD_PARTITIONS_TO_TXN: {ErrorCode.PRODUCER_FENCED: CodeOfVersion(2, ErrorCode.INVALID_PRODUCER_EPOCH)},
    ApiKey.ADD_OFFSETS_TO_TXN: {ErrorCode.PRODUCER_FENCED: CodeOfVersion(2, ErrorCode.INVALID_PRODUCER_EPOCH)},
    ApiKey.END_TXN: {ErrorCode.PRODUCER_FENCED: CodeOfVersion(2, ErrorCode.INVALID_PRODUCER_EPOCH)},
}


def known_code(api_key: int, version: int, code: ErrorCode) -> ErrorCode:
    """The code, or the one that stands for it in a version that does not know it. Only for APIs of `CAME_WITH`."""
    if code is ErrorCode.NONE:
        return code
    later = CAME_WITH[api_key].get(code)
    return code if later is None or version >= later.first else later.before


class KnownErrors:
    """Replaces each error code of an answer by `error_code_for`."""

    def __init__(self, error_code_for: Callable[[int], int]) -> None:
        self._error_code_for = error_code_for

    def replaced(self, api_key: int, body: Body) -> Body:
        for column in columns(API_TABLE[api_key].response, Meaning.ERROR_CODE):
            if any(column.values(body)):
                body = column.replaced(body, self._error_code_for)
        return body
