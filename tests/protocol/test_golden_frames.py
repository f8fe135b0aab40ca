"""Frames that Apache Kafka 2.0.1 sent and answered decode, and encode to the very same bytes."""

from __future__ import annotations

import pytest

from minibroker.protocol.api import ApiKey, decode_request, decode_response, encode_request, encode_response
from tests.protocol.recordings import Recording, key_of, recordings

FRAME_SIZE_BYTES = 4
RECORDED = 416 + 166 + 1105 + 40

every_recorded_version = pytest.mark.parametrize(("api", "version"), sorted(recordings()))


def name_of(recording: Recording) -> str:
    return str(recording.get("scenario") or recording["event"])


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

        assert (request.api_key, request.api_version) == (key_of(api), version), name_of(recording)
        assert encoded[FRAME_SIZE_BYTES:] == frame, name_of(recording)


@every_recorded_version
def test_recorded_responses_decode_and_encode_to_the_same_bytes(api: str, version: int) -> None:
    for recording in recordings()[api, version]:
        frame = bytes.fromhex(recording["response"] or "")
        if not frame:  # acks=0, or the connection was closed
            continue
        request = decode_request(bytes.fromhex(recording["request"]))

        correlation_id, body = decode_response(key_of(api), version, frame)
        encoded = b"".join(encode_response(request, body))

        assert correlation_id == request.correlation_id, name_of(recording)
        assert encoded == len(frame).to_bytes(FRAME_SIZE_BYTES, "big") + frame, name_of(recording)


def test_fetch_answers_of_kafka_hold_views_of_the_frame() -> None:
    recording = next(recording for recording in recordings()["Fetch", 8] if len(recording["response"]) > 400)
    frame = bytearray.fromhex(recording["response"])

    _, body = decode_response(ApiKey.FETCH, 8, frame)
    views = [row.records for topic in body.topics for row in topic.partitions if row.records]

    assert views
    assert all(view.obj is frame for view in views)
