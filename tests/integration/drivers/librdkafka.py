"""librdkafka's names of the settings that tests give to a client."""

from __future__ import annotations

from typing import Any

OTHER_NAMES = {"fetch_max_wait_ms": "fetch.wait.max.ms", "max_partition_fetch_bytes": "fetch.message.max.bytes"}
SMALLEST_FETCH_MAX_BYTES = 1000  # no less than message.max.bytes, which is no less than this


def translate(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings under librdkafka's names: `_` stands for `.`."""
    translated = {OTHER_NAMES.get(name, name.replace("_", ".")): value for name, value in settings.items()}
    if "fetch.max.bytes" in translated:
        translated["fetch.max.bytes"] = max(translated["fetch.max.bytes"], SMALLEST_FETCH_MAX_BYTES)
        translated["message.max.bytes"] = SMALLEST_FETCH_MAX_BYTES
    return translated
