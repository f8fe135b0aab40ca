"""Error codes for clients that do not know a newer code."""

from __future__ import annotations

from minibroker.protocol.errors import ErrorCode

# The last versions whose clients fail on KAFKA_STORAGE_ERROR (as kafka 2.0.1 FetchResponse and ProduceResponse):
# NOT_LEADER_FOR_PARTITION instead makes them look for another leader, and retry.
FETCH_WITHOUT_STORAGE_ERROR = 5
PRODUCE_WITHOUT_STORAGE_ERROR = 3


def error_for_version(error: ErrorCode, version: int, last_without_storage_error: int) -> ErrorCode:
    if error is ErrorCode.KAFKA_STORAGE_ERROR and version <= last_without_storage_error:
        return ErrorCode.NOT_LEADER_FOR_PARTITION
    return error
