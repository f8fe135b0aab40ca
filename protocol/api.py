"""Decodes a frame to a Request, and encodes a response to a frame, by the table of APIs."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from minibroker.protocol.api_table import API_TABLE, ASKED_TABLE, Api, ApiKey
from minibroker.protocol.codegen import records_size, skip_tagged_fields
from minibroker.protocol.errors import KafkaProtocolError
from minibroker.protocol.primitives import TEXT_ERRORS

__all__ = [
    "API_TABLE", "ASKED_TABLE", "HEADER", "Api", "ApiKey", "Request", "decode_request", "decode_response",
    "encode_request", "encode_response", "has_client_id", "joined", "response_has_tags", "skip_header_tags",
]  # fmt: skip

TESTS_CLIENT_ID = "minibroker-tests"  # of the requests that tests make through `Broker`
HEADER = struct.Struct(">hhih")  # api key, version, correlation id, length of the client id
_unpack_header: Callable[..., tuple[int, int, int, int]] = HEADER.unpack_from
SIZE_AND_CORRELATION = struct.Struct(">ii")
CORRELATION_BYTES = 4
HEADER_WITHOUT_CLIENT_ID = struct.Struct(">hhi")
CONTROLLED_SHUTDOWN = int(ApiKey.CONTROLLED_SHUTDOWN)


class Request:
    """A decoded request; `size_bytes` are those of its frame, without the length before it.

    `body` is None for an ApiVersions request of an unknown version.
    """

    __slots__ = ("api_key", "api_version", "body", "client_id", "correlation_id", "size_bytes")

    def __init__(
        self,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        body: Any,
        size_bytes: int = 0,
    ) -> None:
        self.size_bytes = size_bytes
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.body = body

    def answer_in(self, version: int) -> None:
        """Have its answer encoded in this version: that of an unknown version is in one that all clients can read."""
        self.api_version = version


def decode_request(frame: bytearray | bytes, apis: Mapping[int, Api] = API_TABLE) -> Request:
    """Decode a request of one of `apis`; ignore trailing bytes, as kafka 2.0.1 does. Raises KafkaProtocolError."""
    try:
        key, version, correlation_id, size = _unpack_header(frame)
    except struct.error:
        raise KafkaProtocolError(f"a request of {len(frame)} bytes has no header") from None
    position = HEADER.size
    client_id = None
    if version == 0 and not has_client_id(key, version):
        position = HEADER_WITHOUT_CLIENT_ID.size
    elif size >= 0:
        if size > len(frame) - position:
            raise KafkaProtocolError(f"a client id of {size} bytes, {len(frame) - position} left")
        try:
            client_id = str(frame[position : position + size], "utf-8", TEXT_ERRORS)
        except UnicodeDecodeError:
            raise KafkaProtocolError(f"the client id of {size} bytes is not UTF-8") from None
        position += size
    api = apis.get(key)
    if api is None:
        known = f"{API_TABLE[key].name} is not served" if key in API_TABLE else f"unknown API key {key}"
        raise KafkaProtocolError(f"{known} (version {version})")
    message = api.request
    if not message.first_version <= version <= message.last_version:
        if key == ApiKey.API_VERSIONS:
            return Request(key, version, correlation_id, client_id, None, len(frame))
        raise KafkaProtocolError(f"{api.name} has no version {version}, the last is {message.last_version}")
    if version >= message.first_flexible:
        position = skip_header_tags(frame, position)
    return Request(key, version, correlation_id, client_id, message.decode(version, frame, position)[0], len(frame))


def has_client_id(api_key: int, version: int) -> bool:
    """Whether the request header has a client id: all but that of ControlledShutdown v0 do."""
    return api_key != CONTROLLED_SHUTDOWN or version != 0


def skip_header_tags(frame: bytearray | bytes, position: int) -> int:
    try:
        return skip_tagged_fields(frame, position, len(frame))
    except Exception as error:
        raise KafkaProtocolError(f"the request header's tagged fields are malformed: {error}") from None


def response_has_tags(api: Api, version: int) -> bool:
    """Whether the response header is v1. ApiVersions' never is: a client reads it before it knows the version."""
    return version >= api.response.first_flexible and api.key != ApiKey.API_VERSIONS


def encode_response(request: Request, body: Any) -> list[Any]:
    """Encode a frame with its size: bytes, and between them the Records objects that are not bytes."""
    api = API_TABLE[request.api_key]
    chunks = api.response.encode(request.api_version, body)
    head = b"\0" if response_has_tags(api, request.api_version) else b""
    if len(chunks) == 1:
        first = chunks[0]
        return [
            SIZE_AND_CORRELATION.pack(CORRELATION_BYTES + len(head) + len(first), request.correlation_id) + head + first
        ]
    size = CORRELATION_BYTES + len(head) + sum(map(records_size, chunks))
    chunks[0] = SIZE_AND_CORRELATION.pack(size, request.correlation_id) + head + chunks[0]
    return chunks


# -- the client's side, for tests and benchmarks --------------------------------------------------------------


def encode_request(api_key: int, version: int, correlation_id: int, client_id: str | None, body: Any) -> bytes:
    """Encode a whole frame with its size."""
    api = ASKED_TABLE[api_key]
    if not has_client_id(api_key, version):
        header = HEADER_WITHOUT_CLIENT_ID.pack(api_key, version, correlation_id)
    else:
        name = b"" if client_id is None else client_id.encode()
        header = HEADER.pack(api_key, version, correlation_id, -1 if client_id is None else len(name)) + name
    if version >= api.request.first_flexible:
        header += b"\0"
    payload = header + joined(api.request.encode(version, body))
    return struct.pack(">i", len(payload)) + payload


def decode_response(api_key: int, version: int, frame: bytes | bytearray) -> tuple[int, Any]:
    """Decode a frame without its size to correlation id and body."""
    api = ASKED_TABLE[api_key]
    (correlation_id,) = struct.unpack_from(">i", frame)
    position = CORRELATION_BYTES
    if response_has_tags(api, version):
        position = skip_header_tags(frame, position)
    return correlation_id, api.response.decode(version, frame, position)[0]


def joined(chunks: Sequence[Any]) -> bytes:
    return b"".join(bytes(chunk) for chunk in chunks)
