"""Decides on down-conversion for old consumers: Fetch v0-v1 know magic 0, v2-v3 magic 1.

storage/files/converted_slice.py converts, while the response is being sent.
"""

from __future__ import annotations

from typing import NamedTuple

from minibroker.storage.config import LogConfig
from minibroker.storage.files.converted_slice import whole_batches
from minibroker.storage.files.records_file import FileSlice


class ClientFormat(NamedTuple):
    """The newest format that clients of a Fetch version know."""

    last_fetch_version: int
    magic: int


CLIENT_FORMATS = (ClientFormat(1, 0), ClientFormat(3, 1))


def magic_to_convert_to(records: FileSlice, fetch_version: int, config: LogConfig) -> int | None:
    """Return the format to convert these records to; None if the client can read them unchanged.

    As kafka 2.0.1 KafkaApis, which does not scan the records if the topic's own format is old enough.
    """
    for last_version, magic in CLIENT_FORMATS:
        if fetch_version <= last_version:
            return magic if config.magic > magic and has_newer(records, magic) else None
    return None


def has_newer(records: FileSlice, magic: int) -> bool:
    """Whether a whole batch has a magic above that of the client."""
    return any(view.magic > magic for _, view in whole_batches(records))
