"""What an append to one partition came to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import TopicPartition
from minibroker.storage.log.log import LogAppendInfo

NO_OFFSET = -1


class AppendResult(NamedTuple):
    """One partition's answer to a produce. `info` is None when nothing was appended; with an error it says what was
    appended and not replicated."""

    error: ErrorCode
    info: LogAppendInfo | None
    log_start_offset: int
    message: str | None = None
    record_errors: Sequence[tuple[int, str]] = ()  # the place of each refused record in its batch, and why


def failed_append(code: ErrorCode) -> AppendResult:
    return AppendResult(code, None, NO_OFFSET)


def with_errors(
    results: dict[TopicPartition, AppendResult], errors: Mapping[TopicPartition, ErrorCode]
) -> dict[TopicPartition, AppendResult]:
    """What replication said of each append that had gone well; its offsets stay (as kafka 2.0.1 DelayedProduce)."""
    return {
        topic_partition: result._replace(error=errors[topic_partition]) if errors.get(topic_partition) else result
        for topic_partition, result in results.items()
    }
