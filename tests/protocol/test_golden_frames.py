"""What Apache Kafka 2.0.1 sent and answered decodes, and encodes to the very same bytes."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from minibroker.protocol.api import API_TABLE, ApiKey, decode_request, decode_response, encode_request, encode_response

GOLDEN = Path(__file__).parent.parent / "golden"
FILES = ("kafka-2.0.1-frames.jsonl.gz", "kafka-2.0.1-acl-frames.jsonl.gz")  # the second of a broker with ACLs
FRAME_SIZE_BYTES = 4
RECORDED = 416 + 166

Recording = dict[str, Any]


@cache
def recordings() -> dict[tuple[str, int], list[Recording]]:
    """By API and version, in the order of sending."""
    by_version = defaultdict(list)
    for file in FILES:
        with gzip.open(GOLDEN / file, "rt") as lines:
            for line in lines:
                recording = json.loads(line)
                by_version[recording["api"], recording["version"]].append(recording)
    return by_version


every_recorded_version = pytest.mark.parametrize(("api", "version"), sorted(recordings()))


def key_of(api: str) -> int:
    (key,) = (key for key, row in API_TABLE.items() if row.name == api)
    return key


def test_every_recording_is_looked_at() -> None:
    assert sum(map(len, recordings().values())) == RECORDED


@every_recorded_version
def test_recorded_requests_decode_and_encode_to_the_same_bytes(api: str, version: int) -> None:
    for recording in recordings()[api, version]:
        frame = bytes.fromhex(recording["request"])

        request = decode_request(bytearray(frame))
        encoded = encode_request(
            request.api_key, request.api_version, request.correlation_id, request.client_id, request.body
        )

        assert (request.api_key, request.api_version) == (key_of(api), version), recording["scenario"]
        assert encoded[FRAME_SIZE_BYTES:] == frame, recording["scenario"]


@every_recorded_version
def test_recorded_responses_decode_and_encode_to_the_same_bytes(api: str, version: int) -> None:
    for recording in recordings()[api, version]:
        frame = bytes.fromhex(recording["response"])
        if not frame:  # acks=0
            continue
        request = decode_request(bytes.fromhex(recording["request"]))

        correlation_id, body = decode_response(key_of(api), version, frame)
        encoded = b"".join(encode_response(request, body))

        assert correlation_id == request.correlation_id, recording["scenario"]
        assert encoded == len(frame).to_bytes(FRAME_SIZE_BYTES, "big") + frame, recording["scenario"]


def test_fetch_answers_of_kafka_hold_views_of_the_frame() -> None:
    recording = next(recording for recording in recordings()["Fetch", 8] if len(recording["response"]) > 400)
    frame = bytearray.fromhex(recording["response"])

    _, body = decode_response(ApiKey.FETCH, 8, frame)
    views = [row.records for topic in body.topics for row in topic.partitions if row.records]

    assert views
    assert all(view.obj is frame for view in views)
