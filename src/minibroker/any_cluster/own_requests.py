"""Requests in our own codec, over the connections of kafka-python: where it lacks a message, or a value of one.

kafka-python sends what has the attributes of its requests, over connections that it has opened and logged in.
"""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

from minibroker.any_cluster.cluster import answer_to
from minibroker.protocol.api import ASKED_TABLE, Api, ApiKey, decode_response, encode_request
from minibroker.protocol.errors import KafkaProtocolError


def asked(client: Any, api_key: ApiKey, *, broker: int | None = None, **body: Any) -> Any:
    """A broker's answer, that of any without an id, in the newest version that both sides have.

    Raises errors of kafka-python: IncompatibleBrokerVersion where there is none.
    """
    api = ASKED_TABLE[api_key]
    return answer_to(client, OwnRequest(api, api.request(**body)), broker=broker)


class OwnRequest:
    """A request as kafka-python takes it, which chooses the version."""

    API_VERSION: int | None = None
    _min_version = _max_version = None  # it may be any that the codec has

    def __init__(self, api: Api, body: Any) -> None:
        self.API_KEY = int(api.key)
        self.name = api.request.name
        self.min_version, self.max_version = api.versions
        self._body = body
        self.header: OwnHeader | None = None

    def with_header(self, correlation_id: int, client_id: str) -> None:
        assert self.API_VERSION is not None
        self.header = OwnHeader(self.API_KEY, self.API_VERSION, correlation_id)
        self._frame: bytes = encode_request(self.API_KEY, self.API_VERSION, correlation_id, client_id, self._body)

    def encode(self, *, framed: bool, header: bool) -> bytes:
        """The whole frame, which kafka-python asks for."""
        return self._frame

    def expect_response(self) -> bool:
        return True


class OwnHeader:
    """The header of a request that is sent, and the class of its response, as kafka-python takes them."""

    def __init__(self, api_key: int, version: int, correlation_id: int) -> None:
        self.correlation_id = correlation_id
        self._api_key = api_key
        self._version = version

    def get_response_class(self) -> OwnHeader:
        return self

    def parse_header(self, frame: bytearray) -> SimpleNamespace:
        return SimpleNamespace(correlation_id=struct.unpack_from(">i", frame)[0])

    def decode(self, frame: bytearray) -> Any:
        """The body. Raises ValueError, for which kafka-python has an error of its own."""
        try:
            return decode_response(self._api_key, self._version, frame)[1]
        except KafkaProtocolError as error:
            raise ValueError(str(error)) from error
