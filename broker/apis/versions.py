"""Error codes for clients that are older than the code."""

from __future__ import annotations

from minibroker.protocol.errors import ErrorCode

# The last versions whose clients take KAFKA_STORAGE_ERROR for a fatal surprise (as kafka 2.0.1 FetchResponse and
# ProduceResponse): they are told to look for another leader, and retry.
FETCH_WITHOUT_STORAGE_ERROR = 5
PRODUCE_WITHOUT_STORAGE_ERROR = 3


def error_for_version(error: ErrorCode, version: int, last_without_storage_error: int) -> ErrorCode:
    if error is ErrorCode.KAFKA_STORAGE_ERROR and version <= last_without_storage_error:
        return ErrorCode.NOT_LEADER_FOR_PARTITION
    return error
