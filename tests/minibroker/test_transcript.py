"""Transcripts from Python: typed exchanges, in the order in which they ended, with what became of each."""

from __future__ import annotations

import pytest

from minibroker import Broker, BrokerError
from minibroker.protocol.api import ApiKey, Request, encode_request
from minibroker.protocol.errors import KafkaProtocolError
from minibroker.protocol.messages.fetch import FetchRequest, FetchResponse
from minibroker.protocol.messages.groups import HeartbeatRequest, HeartbeatResponse
from minibroker.protocol.messages.metadata import ApiVersionsResponse
from minibroker.transcript.exchanges import Transcript, read_transcript
from minibroker.transcript.file import Kind, TranscriptError
from tests.minibroker.conversations import Conversation

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=3)


def test_an_exchange_has_both_messages_as_their_fields(conversation: Conversation) -> None:
    conversation.answer(conversation.ask(ApiKey.HEARTBEAT, 3, HEARTBEAT), HeartbeatResponse(error_code=27))

    (exchange,) = read_transcript(conversation.close())

    assert (exchange.api, exchange.version, exchange.client_id) == ("Heartbeat", 3, "tower")
    assert (exchange.connection, exchange.address, exchange.correlation_id) == (1, "127.0.0.1:50000", 1)
    assert exchange.request.generation_id == 3
    assert exchange.response.error_code == 27
    assert exchange.outcome == "answered"
    assert exchange.latency_ms == 1.0
    assert (exchange.request_bytes, exchange.response_bytes) == (26, 10)


def test_a_long_poll_comes_when_it_is_over(conversation: Conversation) -> None:
    poll = conversation.ask(ApiKey.FETCH, 11, FetchRequest())
    conversation.tell(Kind.OPENED, "127.0.0.1:50001", connection=2)
    beat = conversation.ask(ApiKey.HEARTBEAT, 3, HEARTBEAT, connection=2)
    conversation.answer(beat, HeartbeatResponse(), connection=2)
    conversation.answer(poll, FetchResponse())

    exchanges = list(Transcript(conversation.close()).exchanges())

    assert [each.api for each in exchanges] == ["Heartbeat", "Fetch"]
    assert [each.latency_ms for each in exchanges] == [1.0, 4.0]


def test_requests_without_a_response_tell_why(conversation: Conversation) -> None:
    conversation.ask(ApiKey.HEARTBEAT, 0, HEARTBEAT)
    conversation.tell(Kind.NO_RESPONSE)
    conversation.ask(ApiKey.HEARTBEAT, 1, HEARTBEAT)
    conversation.tell(Kind.REFUSED, "no such thing")
    conversation.ask(ApiKey.HEARTBEAT, 2, HEARTBEAT)
    conversation.tell(Kind.CLOSED)
    conversation.ask(ApiKey.HEARTBEAT, 3, HEARTBEAT, connection=2)

    exchanges = list(read_transcript(conversation.close()))

    assert [each.outcome for each in exchanges] == ["no response", "refused", "closed", "pending"]
    assert [each.reason for each in exchanges] == ["", "no such thing", "", ""]
    assert {each.response for each in exchanges} == {None}


def test_a_broker_that_was_killed_leaves_its_requests_unanswered(conversation: Conversation) -> None:
    conversation.ask(ApiKey.HEARTBEAT, 3, HEARTBEAT)
    conversation.tell(Kind.STARTED, connection=0)

    (exchange,) = read_transcript(conversation.close())

    assert exchange.outcome == "closed"


def test_a_message_that_cannot_be_decoded_is_an_error_of_its_own(conversation: Conversation) -> None:
    conversation.ask_bytes(encode_request(ApiKey.HEARTBEAT, 3, 1, "me", HEARTBEAT)[4:-3])
    conversation.answer_bytes(b"\0\0\0\x63torn")
    conversation.ask_bytes(b"??")
    conversation.tell(Kind.REFUSED, "a request of 2 bytes has no header")
    conversation.ask_bytes(b"\x7f\xff" + bytes(8))
    conversation.tell(Kind.REFUSED, "unknown")

    torn, headless, unknown = read_transcript(conversation.close())

    assert (torn.api, torn.client_id) == ("Heartbeat", "me")
    with pytest.raises(KafkaProtocolError, match="HeartbeatRequest v3"):
        assert torn.request
    with pytest.raises(KafkaProtocolError, match="a torn response: 4 of 99 bytes"):
        assert torn.response
    assert headless.api == "unreadable"
    assert unknown.api == "ApiKey 32767"


@pytest.mark.parametrize(("header", "version"), [(b"\0\x12\0\x63", 99), (b"\0\x12\0\x02", 2)])
def test_a_version_of_api_versions_that_a_broker_does_not_have_is_refused_in_version_0(
    conversation: Conversation, header: bytes, version: int
) -> None:
    conversation.ask_bytes(header + b"\0\0\0\x01\xff\xff")  # version 2 is one that an older release refuses
    conversation.answer(Request(ApiKey.API_VERSIONS, 0, 1, None, None), ApiVersionsResponse(error_code=35))

    (exchange,) = read_transcript(conversation.close())

    assert exchange.version == version
    assert (exchange.request is None) == (version == 99)
    assert exchange.response.error_code == 35


def test_a_connection_has_one_request_in_hand(conversation: Conversation) -> None:
    conversation.ask(ApiKey.HEARTBEAT, 3, HEARTBEAT)
    conversation.ask(ApiKey.HEARTBEAT, 3, HEARTBEAT)

    with pytest.raises(TranscriptError, match="connection 1 has two pending requests"):
        list(read_transcript(conversation.close()))


@pytest.mark.parametrize("kind", [Kind.OPENED, Kind.ENDED])
def test_what_cannot_follow_a_request_is_damage(conversation: Conversation, kind: Kind) -> None:
    conversation.ask(ApiKey.HEARTBEAT, 3, HEARTBEAT)
    conversation.tell(kind)

    with pytest.raises(TranscriptError, match=f"connection 1 has a pending request, and {kind.name.lower()} follows"):
        list(read_transcript(conversation.close()))


def test_a_broker_without_a_transcript_fails_with_the_option_for_one() -> None:
    broker = Broker()

    with pytest.raises(BrokerError, match=r"start it with Broker\(transcript=True\)"):
        assert broker.transcript
    broker.close()
