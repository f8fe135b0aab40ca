"""Exchanges between clients and a broker, read from the transcript that the broker recorded.

    with Broker(transcript=True) as broker:
        ...
        fetches = [each for each in broker.transcript.exchanges() if each.api == "Fetch"]
        assert [each.request.max_bytes for each in fetches] == [1024]

An exchange is a request with its response. It is listed when it ends, so a long poll comes after the exchanges that
ended before it. Requests and responses are NamedTuples with Kafka's fields (protocol/messages/), decoded on access.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from minibroker.protocol.api import API_TABLE, HEADER, ApiKey, decode_request, decode_response, has_client_id
from minibroker.protocol.errors import ErrorCode, KafkaProtocolError
from minibroker.protocol.primitives import ZERO_UUID, TopicById
from minibroker.protocol.topic_ids import BY_ID, name_topics
from minibroker.transcript.file import Entry, Frame, Kind, TranscriptError, TranscriptReader

SIZE = struct.Struct(">i")
# It follows size and correlation id in every version: the client does not know the version yet.
ERROR_OF_API_VERSIONS = slice(8, 10)
ANSWERS_WITH_IDS = (ApiKey.METADATA, ApiKey.CREATE_TOPICS)
# What ends an exchange.
OUTCOMES = {
    Kind.RESPONSE: "answered",
    Kind.NO_RESPONSE: "no response",
    Kind.REFUSED: "refused",
    Kind.CLOSED: "closed",
}
NO_TOPICS: Mapping[bytes, TopicById] = {}
REFUSED_VERSION = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")


class Event(NamedTuple):
    """An event between exchanges; `text` names the broker that started, or why a connection or the recording ended."""

    what: str  # "started", "opened", "closed" or "ended"
    time_ns: int
    connection: int
    address: str
    text: str


class Head(NamedTuple):
    """A request's header, as far as it can be read."""

    api_key: int | None
    version: int
    correlation_id: int
    client_id: str | None


class Exchange:
    """One request and its outcome.

    `outcome` is "answered", "no response" (a produce with acks=0), "refused" (the broker closed the connection, for
    `reason`), "closed" (the connection ended before the answer) or "pending" (the transcript ended before it).
    Sizes are in bytes on the wire, without the frame's four-byte size.
    """

    def __init__(self, request: Entry, address: str, topics_by_id: Mapping[bytes, TopicById] = NO_TOPICS) -> None:
        assert request.frame is not None
        self._topics_by_id = topics_by_id
        self.time_ns = request.time_ns
        self.connection = request.connection
        self.address = address
        self.outcome = "pending"
        self.reason = ""
        self.latency_ms: float | None = None  # until the response was ready to be sent
        self.request_frame: Frame = request.frame
        self.response_frame: Frame | None = None
        self.head = read_head(request.frame.kept)

    def __repr__(self) -> str:
        return f"<{self.api} v{self.version} of {self.client_id!r}, {self.outcome}>"

    @property
    def api(self) -> str:
        """Kafka's name, such as "Fetch"."""
        key = self.head.api_key
        return API_TABLE[key].name if key in API_TABLE else "unreadable" if key is None else f"ApiKey {key}"

    @property
    def version(self) -> int:
        """The request's version of the API."""
        return self.head.version

    @property
    def correlation_id(self) -> int:
        """The number by which the client recognises the response."""
        return self.head.correlation_id

    @property
    def client_id(self) -> str | None:
        """The client's `client.id`; None without one."""
        return self.head.client_id

    @property
    def request_bytes(self) -> int:
        """The size of the request."""
        return self.request_frame.size_bytes

    @property
    def response_bytes(self) -> int | None:
        """The size of the response; None without one."""
        return None if self.response_frame is None else self.response_frame.size_bytes - SIZE.size

    @property
    def response_version(self) -> int:
        """The request's version; but 0 for the refusal of an unsupported version of ApiVersions."""
        if self.head.api_key != ApiKey.API_VERSIONS or self.response_frame is None:
            return self.version
        return 0 if self.response_frame.kept[ERROR_OF_API_VERSIONS] == REFUSED_VERSION else self.version

    @cached_property
    def request(self) -> Any:
        """The request's fields; None for ApiVersions of an unsupported version. Raises KafkaProtocolError.

        Records that were not recorded are zeros. Topics have names also in versions in which they have ids, if the
        transcript has an answer with both.
        """
        request = decode_request(filled(self.request_frame))
        ids = BY_ID.get(request.api_key)
        if ids is not None and request.api_version >= ids.first:
            name_topics(request.body, ids.asked, self._topics_by_id)
        return request.body

    @cached_property
    def response(self) -> Any:
        """The response's fields; None without a response. Raises KafkaProtocolError."""
        if self.response_frame is None or self.head.api_key is None:
            return None
        data = filled(self.response_frame)
        announced = SIZE.unpack_from(data)[0] if len(data) >= SIZE.size else 0
        if announced != len(data) - SIZE.size:
            raise KafkaProtocolError(f"a torn response: {len(data) - SIZE.size} of {announced} bytes")
        try:
            answer = decode_response(self.head.api_key, self.response_version, data[SIZE.size :])[1]
            ids = BY_ID.get(self.head.api_key)
            if ids is not None and self.response_version >= ids.first:
                name_topics(answer, ids.answered, self._topics_by_id)
            return answer
        except (struct.error, KeyError) as error:
            raise KafkaProtocolError(f"not a response: {error}") from None

    def end(self, entry: Entry) -> Exchange:
        """Set the outcome, from the entry that ends this exchange."""
        self.outcome = OUTCOMES[entry.kind]
        self.reason = entry.text
        self.response_frame = entry.frame
        self.latency_ms = (entry.time_ns - self.time_ns) / 1e6
        return self


class Transcript:
    """A transcript's file, which a broker may still write to."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def exchanges(self) -> Iterator[Exchange]:
        """Every exchange in the order in which they ended, then the pending ones. Raises OSError, and TranscriptError
        for a file that is not a transcript, or is damaged."""
        reading = ExchangeReader(self.path)
        try:
            yield from (each for each in reading.rest(is_end=True) if isinstance(each, Exchange))
        finally:
            reading.close()


def read_transcript(path: str | os.PathLike[str]) -> Iterator[Exchange]:
    """The exchanges of a transcript's file; see `Transcript.exchanges`."""
    return Transcript(path).exchanges()


class ExchangeReader:
    """Reads a transcript to its present end, and later the rest. Close it."""

    def __init__(self, path: Path) -> None:
        """Raises OSError and TranscriptError."""
        self._reader = TranscriptReader(path)
        self._addresses: dict[int, str] = {}
        self._pending: dict[int, Exchange] = {}
        self._topics_by_id: dict[bytes, TopicById] = {}

    @property
    def torn_bytes(self) -> int:
        return self._reader.torn_bytes

    @property
    def position(self) -> int:
        """The number of bytes read."""
        return self._reader.position

    def rest(self, *, is_end: bool = False) -> Iterator[Exchange | Event]:
        """The exchanges written since the last call; with `is_end`, also the pending ones. Raises TranscriptError."""
        for entry in self._reader.entries():
            yield from self._read(entry)
        if is_end:
            yield from self._pending.values()

    def close(self) -> None:
        self._reader.close()

    def _read(self, entry: Entry) -> Iterator[Exchange | Event]:
        number = entry.connection
        if entry.kind is Kind.REQUEST:
            if number in self._pending:
                raise TranscriptError(f"connection {number} has two pending requests")
            self._pending[number] = Exchange(entry, self._addresses.get(number, ""), self._topics_by_id)
            return
        ended = [self._pending.pop(number)] if number in self._pending else []
        if entry.kind is Kind.STARTED:  # the connections of the broker before it are gone
            ended = list(self._pending.values())
            self._pending.clear()
            self._addresses.clear()
            yield from (each.end(entry._replace(kind=Kind.CLOSED, text="")) for each in ended)
            yield Event("started", entry.time_ns, 0, "", entry.text)
            return
        if ended and entry.kind not in OUTCOMES:
            raise TranscriptError(f"connection {number} has a pending request, and {entry.kind.name.lower()} follows")
        for each in ended:
            self._learn_names(each.end(entry))
            yield each
        if entry.kind is Kind.OPENED:
            self._addresses[number] = entry.text
            yield Event("opened", entry.time_ns, number, entry.text, "")
        elif entry.kind is Kind.CLOSED:
            yield Event("closed", entry.time_ns, number, self._addresses.pop(number, ""), entry.text)
        elif entry.kind is Kind.ENDED:
            yield Event("ended", entry.time_ns, 0, "", entry.text)

    def _learn_names(self, exchange: Exchange) -> None:
        """Learn the names of topics from an answer that has them beside the ids."""
        if exchange.head.api_key not in ANSWERS_WITH_IDS or exchange.response_frame is None:
            return
        try:
            topics = exchange.response.topics
        except KafkaProtocolError:
            return  # the reader of this exchange gets the error
        for topic in topics:
            if topic.name is not None and topic.topic_id != ZERO_UUID:
                self._topics_by_id[topic.topic_id] = TopicById(topic.name, topic.topic_id)


def read_head(frame: bytes) -> Head:
    try:
        key, version, correlation_id, size = HEADER.unpack_from(frame)
    except struct.error:
        return Head(None, 0, 0, None)
    if not has_client_id(key, version):
        return Head(key, version, correlation_id, None)
    name = frame[HEADER.size : HEADER.size + max(0, size)].decode(errors="replace")
    return Head(key, version, correlation_id, name if size >= 0 else None)


def filled(frame: Frame) -> bytearray:
    """Raises KafkaProtocolError."""
    try:
        return frame.filled()
    except TranscriptError as error:
        raise KafkaProtocolError(str(error)) from None
