"""What an append to one partition came to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import TopicPartition
from minibroker.storage.log import LogAppendInfo

NO_OFFSET = -1


class AppendResult(NamedTuple):
    """One partition's answer to a produce; `info` is None exactly when `error` is not NONE."""

    error: ErrorCode
    info: LogAppendInfo | None
    log_start_offset: int
    message: str | None = None


def failed_append(code: ErrorCode) -> AppendResult:
    return AppendResult(code, None, NO_OFFSET)


def with_errors(
    results: dict[TopicPartition, AppendResult], errors: Mapping[TopicPartition, ErrorCode]
) -> dict[TopicPartition, AppendResult]:
    """What replication said of each append that had gone well."""
    return {
        topic_partition: failed_append(errors[topic_partition]) if errors.get(topic_partition) else result
        for topic_partition, result in results.items()
    }
