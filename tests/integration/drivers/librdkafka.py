"""What librdkafka calls the settings that tests give to a client."""

from __future__ import annotations

from typing import Any

SETTING_NAMES = {
    "fetch_min_bytes": "fetch.min.bytes",
    "fetch_max_bytes": "fetch.max.bytes",
    "fetch_max_wait_ms": "fetch.wait.max.ms",
    "max_partition_fetch_bytes": "fetch.message.max.bytes",
    "enable_idempotence": "enable.idempotence",
    "acks": "acks",
    "linger_ms": "linger.ms",
    "max_request_size": "message.max.bytes",
    "api_version_request": "api.version.request",
    "broker_version_fallback": "broker.version.fallback",
}
SMALLEST_FETCH_MAX_BYTES = 1000  # no less than message.max.bytes, which is no less than this


def translate(settings: dict[str, Any]) -> dict[str, Any]:
    translated = {SETTING_NAMES[name]: value for name, value in settings.items()}
    if "fetch.max.bytes" in translated:
        translated["fetch.max.bytes"] = max(translated["fetch.max.bytes"], SMALLEST_FETCH_MAX_BYTES)
        translated["message.max.bytes"] = SMALLEST_FETCH_MAX_BYTES
    return translated
