"""Which records a consumer is too old for: Fetch v0-v1 know magic 0, v2-v3 magic 1.

Whether, and to what; storage/files/converted_slice.py converts while the answer is being sent.
"""

from __future__ import annotations

from typing import NamedTuple

from minibroker.storage.config import LogConfig
from minibroker.storage.files.converted_slice import whole_batches
from minibroker.storage.files.records_file import FileSlice


class WrittenFor(NamedTuple):
    """The newest format that clients of a Fetch version know."""

    last_fetch_version: int
    magic: int


CLIENT_FORMATS = (WrittenFor(1, 0), WrittenFor(3, 1))


def magic_to_convert_to(records: FileSlice, fetch_version: int, config: LogConfig) -> int | None:
    """The format these records must be brought down to; None when the client can read them as they are.

    As kafka 2.0.1 KafkaApis, records are not looked at where the topic's own format is old enough.
    """
    for last_version, magic in CLIENT_FORMATS:
        if fetch_version <= last_version:
            return magic if config.magic > magic and has_newer(records, magic) else None
    return None


def has_newer(records: FileSlice, magic: int) -> bool:
    """Whether there is a whole batch that must be converted for clients who know no magic above this."""
    return any(view.magic > magic for _, view in whole_batches(records))
