"""Codecs written out as modules equal the generated ones and the constructs, on what Kafka sent and on drawn values."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings

from minibroker.protocol.api import API_TABLE, Api, decode_request, decode_response
from minibroker.protocol.codegen_decoder import generate_decoder
from minibroker.protocol.codegen_encoder import generate_encoder
from minibroker.protocol.codegen_module import families, modules
from minibroker.protocol.schema import Message
from tests.protocol.message_values import interpreted_decode, interpreted_encode, values
from tests.protocol.recordings import key_of, recordings

VERSIONS = [(api, version) for api in API_TABLE.values() for version in range(api.versions[0], api.versions[1] + 1)]
every_version = pytest.mark.parametrize(("api", "version"), VERSIONS, ids=lambda each: getattr(each, "name", None))
QUICK = settings(
    max_examples=5, deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)


RECORDS = [
    (message, version)
    for name in ("consumer_group_records", "consumer_protocol", "group_records", "transaction_records")
    for message in families()[name].decoded
    for version in range(message.first_version, message.last_version + 1)
]


class Codecs(NamedTuple):
    """Functions by message and version."""

    decoders: dict[tuple[str, int], Any]
    encoders: dict[tuple[str, int], Any]


@cache
def written() -> Codecs:
    """Write out the codecs of all modules."""
    codecs = Codecs({}, {})
    for name, text in modules(list(families())).items():
        names: dict[str, Any] = {}
        exec(compile(text, f"{name}.py", "exec"), names)
        codecs.decoders.update(names.get("DECODERS", {}))
        codecs.encoders.update(names.get("ENCODERS", {}))
    return codecs


def joined(chunks: list[Any]) -> bytes:
    return b"".join(bytes(chunk) for chunk in chunks)


def test_every_version_of_every_api_and_of_the_records_in_internal_topics_is_written() -> None:
    records = {(message.name, version) for message, version in RECORDS}

    assert set(written().decoders) == records | {(api.request.name, version) for api, version in VERSIONS}
    assert set(written().encoders) == records | {(api.response.name, version) for api, version in VERSIONS}
    assert {("OffsetCommitValue", 1), ("TransactionLogValue", 0)} < records


def test_a_family_that_is_not_listed_is_not_written() -> None:
    some = modules(["fetch"])

    assert sorted(some) == ["fetch", "index"]
    assert "'ListOffsetsRequest': 'fetch'" in some["index"]
    assert "Metadata" not in some["index"]


def test_versions_of_one_layout_share_a_function() -> None:
    decoders = written().decoders

    assert decoders["ProduceRequest", 3] is decoders["ProduceRequest", 6]
    assert decoders["ProduceRequest", 2] is not decoders["ProduceRequest", 3]


@every_version
def test_written_generated_and_interpreted_codecs_are_equal(api: Api, version: int) -> None:
    check_codecs(api.request, api.response, version)


@pytest.mark.parametrize(("message", "version"), RECORDS, ids=lambda each: getattr(each, "name", None))
def test_codecs_of_records_are_equal_too(message: Message, version: int) -> None:
    check_codecs(message, message, version)


def check_codecs(decoded_message: Message, encoded_message: Message, version: int) -> None:
    """Compare a decoder and an encoder with the generated ones, and with the constructs."""
    decode = written().decoders[decoded_message.name, version]
    encode = written().encoders[encoded_message.name, version]
    generated_decode = generate_decoder(decoded_message, version)
    generated_encode = generate_encoder(encoded_message, version)

    @QUICK
    @given(asked=values(decoded_message, version), answered=values(encoded_message, version))
    def check(asked: Any, answered: Any) -> None:
        frame = bytearray(interpreted_encode(decoded_message, version, asked))
        decoded = decode(frame, 0, len(frame))
        assert decoded == generated_decode(frame, 0, len(frame)) == (asked, len(frame))
        assert decoded[0] == interpreted_decode(decoded_message, version, bytes(frame))

        encoded = joined(encode(answered))
        assert encoded == joined(generated_encode(answered))
        assert encoded == interpreted_encode(encoded_message, version, answered)

    check()


@pytest.mark.parametrize(("name", "version"), sorted(recordings()))
def test_recorded_frames_are_decoded_and_encoded_alike(name: str, version: int) -> None:
    api = API_TABLE[key_of(name)]
    for recording in recordings()[name, version]:
        frame = bytearray.fromhex(recording["request"])
        request = decode_request(frame)
        start = len(frame) - len(interpreted_encode(api.request, version, request.body))
        assert written().decoders[api.request.name, version](frame, start, len(frame)) == (request.body, len(frame))
        if recording["response"]:
            answer = bytes.fromhex(recording["response"])
            _, value = decode_response(api.key, version, answer)
            assert answer.endswith(joined(written().encoders[api.response.name, version](value)))
