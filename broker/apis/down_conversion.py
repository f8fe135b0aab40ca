"""Decides on down-conversion for old consumers: Fetch v0-v1 know magic 0, v2-v3 magic 1.

storage/files/converted_slice.py converts, while the response is being sent.
"""

from __future__ import annotations

from minibroker.storage.config import LogConfig
from minibroker.storage.files.converted_slice import whole_batches
from minibroker.storage.files.records_file import FileSlice

CLIENT_FORMATS = ((1, 0), (3, 1))  # the last version of Fetch whose clients know no newer magic than this


def magic_to_convert_to(records: FileSlice, fetch_version: int, config: LogConfig) -> int | None:
    """Return the format to convert these records to; None if the client can read them unchanged.

    As kafka 2.0.1 KafkaApis, which does not scan the records if the topic's own format is old enough.
    """
    for last_version, magic in CLIENT_FORMATS:
        if fetch_version <= last_version:
            is_newer = config.magic > magic and any(view.magic > magic for _, view in whole_batches(records))
            return magic if is_newer else None
    return None
