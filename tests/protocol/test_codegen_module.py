"""Codecs written out as modules equal the generated ones and the constructs, on what Kafka sent and on drawn values."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from minibroker.protocol.api import API_TABLE, Api, decode_request, decode_response
from minibroker.protocol.codegen_decoder import generate_decoder
from minibroker.protocol.codegen_encoder import generate_encoder
from minibroker.protocol.codegen_module import families, modules
from tests.protocol.message_values import interpreted_decode, interpreted_encode, values
from tests.protocol.recordings import key_of, recordings

VERSIONS = [(api, version) for api in API_TABLE.values() for version in range(api.versions[0], api.versions[1] + 1)]
every_version = pytest.mark.parametrize(("api", "version"), VERSIONS, ids=lambda each: getattr(each, "name", None))
QUICK = settings(
    max_examples=5, deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)


@cache
def written() -> dict[tuple[str, int], Any]:
    """The decoders of requests and the encoders of responses in all modules, by message and version."""
    codecs: dict[tuple[str, int], Any] = {}
    for name, text in modules(list(families())).items():
        names: dict[str, Any] = {}
        exec(compile(text, f"{name}.py", "exec"), names)
        codecs |= names.get("DECODERS", {}) | names.get("ENCODERS", {})
    return codecs


def joined(chunks: list[Any]) -> bytes:
    return b"".join(bytes(chunk) for chunk in chunks)


def test_every_version_of_every_api_is_written() -> None:
    names = {(message.name, version) for api, version in VERSIONS for message in (api.request, api.response)}

    assert set(written()) == names


def test_a_family_that_is_not_listed_is_not_written() -> None:
    some = modules(["fetch"])

    assert sorted(some) == ["fetch", "index"]
    assert "'ListOffsetsRequest': 'fetch'" in some["index"]
    assert "Metadata" not in some["index"]


def test_versions_of_one_layout_share_a_function() -> None:
    assert written()["ProduceRequest", 3] is written()["ProduceRequest", 6]
    assert written()["ProduceRequest", 2] is not written()["ProduceRequest", 3]


@every_version
def test_written_generated_and_interpreted_codecs_are_equal(api: Api, version: int) -> None:
    request, response = api.request, api.response
    decode, encode = written()[request.name, version], written()[response.name, version]

    @QUICK
    @given(asked=values(request, version), answered=values(response, version))
    def check(asked: Any, answered: Any) -> None:
        frame = bytearray(interpreted_encode(request, version, asked))
        decoded = decode(frame, 0, len(frame))
        assert decoded == generate_decoder(request, version)(frame, 0, len(frame)) == (asked, len(frame))
        assert decoded[0] == interpreted_decode(request, version, bytes(frame))

        encoded = joined(encode(answered))
        assert encoded == joined(generate_encoder(response, version)(answered))
        assert encoded == interpreted_encode(response, version, answered)

    check()


@pytest.mark.parametrize(("name", "version"), sorted(recordings()))
def test_what_apache_kafka_recorded_is_decoded_and_encoded_alike(name: str, version: int) -> None:
    api = API_TABLE[key_of(name)]
    for recording in recordings()[name, version]:
        frame = bytearray.fromhex(recording["request"])
        request = decode_request(frame)
        start = len(frame) - len(interpreted_encode(api.request, version, request.body))
        assert written()[api.request.name, version](frame, start, len(frame)) == (request.body, len(frame))
        if recording["response"]:
            answer = bytes.fromhex(recording["response"])
            _, value = decode_response(api.key, version, answer)
            assert answer.endswith(joined(written()[api.response.name, version](value)))
