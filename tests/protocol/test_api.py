"""The API table, request and response headers, and whole frames on both sides."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from minibroker.protocol.api import (
    API_TABLE,
    ASKED_TABLE,
    Api,
    ApiKey,
    Request,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    has_client_id,
)
from minibroker.protocol.errors import KafkaProtocolError
from minibroker.protocol.messages.fetch import FetchResponse
from minibroker.protocol.messages.metadata import ApiVersionsRequest, ApiVersionsResponse
from minibroker.protocol.messages.produce import ProduceRequest
from tests.protocol.message_values import Slice, sample

FRAME_SIZE_BYTES = 4
# Their v0 was in a release for early access alone.
WITHOUT_FIRST = {"ShareGroupHeartbeat", "ShareGroupDescribe", "ShareFetch", "ShareAcknowledge"}

every_api = pytest.mark.parametrize("api", API_TABLE.values(), ids=lambda api: api.name)


def versions_of(api: Api) -> range:
    first, last = api.versions
    return range(first, last + 1)


def frame_of(api: Api, version: int, *, client_id: str | None = "me") -> bytes:
    body = sample(api.request, version)
    return encode_request(api.key, version, 77, client_id, body)[FRAME_SIZE_BYTES:]


@every_api
def test_the_halves_of_a_row_have_one_name_and_the_same_versions_from_zero_on(api: Api) -> None:
    assert API_TABLE[api.key] is api
    assert (api.request.name, api.response.name) == (f"{api.name}Request", f"{api.name}Response")
    assert ApiKey(api.key).name.replace("_", "") == api.name.upper()
    for half in (api.request, api.response):
        assert (half.first_version, half.last_version) == api.versions
    assert api.versions[0] == (api.name in WITHOUT_FIRST)
    assert api.request.first_flexible == api.response.first_flexible


def test_every_key_has_a_row() -> None:
    assert set(ASKED_TABLE) == set(ApiKey)


@every_api
@pytest.mark.parametrize("client_id", ["me", "", "é" * 300, None])
def test_request_goes_there_and_back_and_bytes_after_it_are_ignored(api: Api, client_id: str | None) -> None:
    for version in versions_of(api):
        body = sample(api.request, version)
        encoded = encode_request(api.key, version, 77, client_id, body)

        for behind in (b"", b"\xff\xff"):
            request = decode_request(bytearray(encoded[FRAME_SIZE_BYTES:] + behind))

            assert (request.api_key, request.api_version) == (api.key, version)
            sent = client_id if has_client_id(api.key, version) else None
            assert (request.correlation_id, request.client_id, request.body) == (77, sent, body)
        assert struct.unpack_from(">i", encoded) == (len(encoded) - FRAME_SIZE_BYTES,)


@every_api
def test_request_cut_short_is_refused(api: Api) -> None:
    version = api.versions[1]
    frame = frame_of(api, version)
    for size in range(len(frame)):
        with pytest.raises(KafkaProtocolError):
            decode_request(bytearray(frame[:size]))


@pytest.mark.parametrize("key", [-1, 99, 32767, -32768])
def test_unknown_api_is_refused(key: int) -> None:
    with pytest.raises(KafkaProtocolError, match=f"unknown API key {key} "):
        decode_request(struct.pack(">hhihh", key, 0, 1, -1, 0))


@every_api
@pytest.mark.parametrize("beyond", [1, 100])
def test_version_beyond_the_last_is_refused(api: Api, beyond: int) -> None:
    if api.key == ApiKey.API_VERSIONS:
        return
    for version in (api.versions[1] + beyond, -beyond):
        with pytest.raises(KafkaProtocolError, match=f"{api.name} has no version {version}"):
            decode_request(struct.pack(">hhih", api.key, version, 1, -1) + b"\0" * 100)


@pytest.mark.parametrize("version", [6, 99, -1])
def test_api_versions_of_an_unknown_version_is_a_request_without_a_body(version: int) -> None:
    request = decode_request(struct.pack(">hhih", ApiKey.API_VERSIONS, version, 5, 2) + b"me\xff\xff\xff")

    assert (request.api_version, request.correlation_id, request.client_id) == (version, 5, "me")
    assert request.body is None


@pytest.mark.parametrize("client_id", [b"\x00\x05abcd", b"\x7f\xff", b"\x00"])
def test_client_id_of_nonsense_is_refused(client_id: bytes) -> None:
    with pytest.raises(KafkaProtocolError, match=r"client id|no header"):
        decode_request(struct.pack(">hhi", ApiKey.API_VERSIONS, 0, 1) + client_id)


@pytest.mark.parametrize(
    ("sent", "client_id"), [(b"\xff\xfe", None), (b"\x80\x00", None), (b"\x00\x02\xc3\x28", "\ufffd(")]
)
def test_a_client_id_of_a_negative_length_is_null_and_one_that_is_not_utf8_is_read(
    sent: bytes, client_id: str | None
) -> None:
    assert decode_request(struct.pack(">hhi", ApiKey.API_VERSIONS, 0, 1) + sent).client_id == client_id


def test_flexible_request_has_tags_in_its_header_and_they_are_skipped() -> None:
    header = struct.pack(">hhih", ApiKey.API_VERSIONS, 3, 1, 2) + b"me"
    body = bytes.fromhex("03 6162 03 6364 00")

    assert decode_request(header + b"\0" + body).body[:2] == ("ab", "cd")
    assert decode_request(header + b"\1\x05\2xy" + body).body[:2] == ("ab", "cd")
    assert encode_request(ApiKey.API_VERSIONS, 3, 1, "me", ApiVersionsRequest(
        client_software_name="ab", client_software_version="cd"
    ))[FRAME_SIZE_BYTES:] == header + b"\0" + body  # fmt: skip


@pytest.mark.parametrize("tags", [b"", b"\1", b"\1\0\x7f", b"\xff\xff\xff\xff\xff\xff"])
def test_header_tags_of_nonsense_are_refused(tags: bytes) -> None:
    with pytest.raises(KafkaProtocolError, match="tagged fields"):
        decode_request(struct.pack(">hhih", ApiKey.API_VERSIONS, 3, 1, -1) + tags)


def test_records_of_a_produce_request_are_a_writable_view_of_its_frame() -> None:
    body = ProduceRequest(acks=1, topics=[("t", [(0, b"batch")])])
    frame = bytearray(encode_request(ApiKey.PRODUCE, 7, 1, None, body)[FRAME_SIZE_BYTES:])

    records = decode_request(frame).body.topics[0].partitions[0].records
    records[:] = b"BATCH"

    assert frame.endswith(b"BATCH")


@every_api
def test_response_goes_there_and_back(api: Api) -> None:
    for version in versions_of(api):
        body = sample(api.response, version)
        request = Request(api.key, version, 77, None, None)

        frame = b"".join(encode_response(request, body))

        assert struct.unpack_from(">ii", frame) == (len(frame) - FRAME_SIZE_BYTES, 77)
        assert decode_response(api.key, version, frame[FRAME_SIZE_BYTES:]) == (77, body)


@pytest.mark.parametrize(
    ("version", "body", "frame"),
    [
        (3, ApiVersionsResponse(api_keys=[(18, 0, 3)]), "00000013 00000009 0000 02 0012 0000 0003 00 00000000 00"),
        (0, ApiVersionsResponse(error_code=35, api_keys=[]), "0000000a 00000009 0023 00000000"),
    ],
    ids=["no tags in a flexible version either", "to an unknown version as v0"],
)
def test_api_versions_is_answered_with_a_header_that_every_client_reads(version: int, body: Any, frame: str) -> None:
    request = Request(ApiKey.API_VERSIONS, version, 9, None, None)

    assert b"".join(encode_response(request, body)) == bytes.fromhex(frame)


def test_spliced_records_count_in_the_frame_size_and_without_them_a_response_is_one_piece() -> None:
    request = Request(ApiKey.FETCH, 8, 3, None, None)
    first, second = Slice(1_000_000), Slice(7)

    def encoded(*records: object) -> list[Any]:
        rows = [(number, 0, 1, 1, 0, None, -1, each, None, None) for number, each in enumerate(records)]
        return list(encode_response(request, FetchResponse(topics=[("t", rows)])))

    chunks = encoded(first, b"", second)

    assert [chunk for chunk in chunks if isinstance(chunk, Slice)] == [first, second]
    assert [type(chunk) for chunk in chunks] == [bytes, Slice, bytes, Slice]
    total = sum(chunk.size_bytes if isinstance(chunk, Slice) else len(chunk) for chunk in chunks)
    assert struct.unpack_from(">ii", chunks[0]) == (total - FRAME_SIZE_BYTES, 3)
    assert len(encoded(*[b""] * 10)) == 1
