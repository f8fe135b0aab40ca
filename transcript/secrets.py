"""Hides secrets from a transcript: fields that are declared as such, secret settings, and tokens without a header.

The rest of a message, and its size, stay as they were on the wire. Before a client has authenticated, a request that is
not understood may be a token in the wrong place: then only its size is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from minibroker.protocol.api import (
    API_TABLE,
    HEADER,
    ApiKey,
    decode_request,
    decode_response,
    encode_request,
    joined,
    response_has_tags,
)
from minibroker.protocol.errors import KafkaProtocolError
from minibroker.protocol.primitives import Meaning
from minibroker.protocol.schema import Array, Field, contains
from minibroker.transcript.file import Frame

HIDING = b"*"
# The ends of settings whose values are secret, of brokers and of clients (kafka's type PASSWORD).
SECRET_SETTINGS = (
    "password",
    "sasl.jaas.config",
    "password.encoder.secret",
    "password.encoder.old.secret",
    "ssl.keystore.key",
    "delegation.token.master.key",
)
SETTINGS_OF = (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS)
SIZE_BYTES = 4


class Asked(NamedTuple):
    """The API and version of a request whose response has secrets; both are None for a token."""

    api_key: int | None
    version: int


TOKEN = Asked(None, 0)


@cache
def secret_apis() -> frozenset[int]:
    """The APIs with secrets in a request or response."""
    return frozenset(
        key for key, api in API_TABLE.items() if contains((*api.request.fields, *api.response.fields), Meaning.SECRET)
    )


def asked_by(frame: bytearray) -> Asked | None:
    """The API of a request, if it has secrets."""
    key = int.from_bytes(frame[:2], "big", signed=True)
    is_secret = key in secret_apis() or (key in SETTINGS_OF and any(name.encode() in frame for name in SECRET_SETTINGS))
    return Asked(key, int.from_bytes(frame[2:4], "big", signed=True)) if is_secret else None


def is_understood(frame: bytearray) -> bool:
    try:
        decode_request(frame)
    except KafkaProtocolError:
        return False
    return True


def hidden_request(frame: bytearray) -> Frame:
    """The request with its secrets hidden; only its header if it is malformed."""
    try:
        request = decode_request(frame)
    except KafkaProtocolError:
        return Frame(len(frame), bytes(frame[: HEADER.size]), is_end_missing=True)
    body = hidden(API_TABLE[request.api_key].request.fields, request.body)
    encoded = encode_request(request.api_key, request.api_version, request.correlation_id, request.client_id, body)
    return Frame(len(encoded) - SIZE_BYTES, encoded[SIZE_BYTES:])


def hidden_response(chunks: Sequence[Any], asked: Asked) -> Frame:
    """The response, with its size in front, with its secrets hidden."""
    data = joined(chunks)
    if asked.api_key is None:
        return only_size(len(data))
    api = API_TABLE[asked.api_key]
    correlation_id, body = decode_response(api.key, asked.version, data[SIZE_BYTES:])
    tags = b"\0" if response_has_tags(api, asked.version) else b""
    rest = joined(api.response.encode(asked.version, hidden(api.response.fields, body)))
    encoded = correlation_id.to_bytes(4, "big", signed=True) + tags + rest
    data = len(encoded).to_bytes(SIZE_BYTES, "big") + encoded
    return Frame(len(data), data)


def only_size(size_bytes: int) -> Frame:
    return Frame(size_bytes, b"", is_end_missing=True)


def hidden(fields: Sequence[Field], body: Any) -> Any:
    """The body with as many asterisks as each secret has bytes."""
    values = list(body)
    names = [field.name for field in fields]
    if "value" in names and "name" in names and str(values[names.index("name")]).endswith(SECRET_SETTINGS):
        place = names.index("value")
        values[place] = None if values[place] is None else HIDING.decode() * len(values[place])
    for place, field in enumerate(fields):
        value = values[place]
        if value is None:
            continue
        if field.meaning is Meaning.SECRET:
            values[place] = HIDING * len(value)
        elif isinstance(field.kind, Array) and field.kind.element is None:
            values[place] = [hidden(field.kind.fields, row) for row in value]
    return type(body)(*values)
