"""Secrets in a transcript: tokens, salted passwords, secret settings; and what it keeps of their messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minibroker.protocol.api import API_TABLE, ApiKey, decode_request, encode_request, encode_response
from minibroker.protocol.primitives import Meaning
from minibroker.protocol.schema import contains
from minibroker.transcript.exchanges import Exchange, read_transcript
from minibroker.transcript.fields import request_body
from minibroker.transcript.file import TranscriptWriter
from minibroker.transcript.recorder import Recorder

SECRET = "hunter2"
SECRETS = (b"hunter2", b"hunter3", b"hunter4")


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder(TranscriptWriter(tmp_path / "t"), max_record_bytes=1000, max_bytes=1 << 20)


def frame_of(key: ApiKey, version: int, **body: Any) -> bytearray:
    return bytearray(encode_request(key, version, 7, "me", API_TABLE[key].request(**body))[4:])


def exchanged(recorder: Recorder, tmp_path: Path) -> list[Exchange]:
    recorder.close()
    data = (tmp_path / "t").read_bytes()
    assert [secret for secret in SECRETS if secret in data] == []
    return list(read_transcript(tmp_path / "t"))


def answer(recorder: Recorder, frame: bytearray, **body: Any) -> None:
    request = decode_request(frame)
    recorder.answered(1, encode_response(request, API_TABLE[request.api_key].response(**body)))


@pytest.mark.parametrize("version", [0, 1, 2])
def test_tokens_are_hidden_and_the_rest_is_as_it_was(recorder: Recorder, tmp_path: Path, version: int) -> None:
    frame = frame_of(ApiKey.SASL_AUTHENTICATE, version, auth_bytes=SECRETS[0])
    size = len(frame)
    recorder.request(1, frame)
    answer(recorder, frame, error_code=58, error_message="no", auth_bytes=SECRETS[1], session_lifetime_ms=5)

    (exchange,) = exchanged(recorder, tmp_path)

    assert (exchange.api, exchange.version, exchange.correlation_id, exchange.client_id) == (
        *("SaslAuthenticate", version, 7, "me"),
    )
    assert (exchange.request_bytes, exchange.request.auth_bytes) == (size, b"*******")
    assert (exchange.response.error_code, exchange.response.error_message) == (58, "no")
    assert exchange.response.auth_bytes == b"*******"
    assert exchange.response.session_lifetime_ms == (5 if version else 0)


def test_salted_passwords_are_hidden_and_users_are_not(recorder: Recorder, tmp_path: Path) -> None:
    rows = [("alice", 1, 4096, SECRETS[0], SECRETS[1]), ("bob", 2, 5000, b"salt", SECRETS[2])]
    frame = frame_of(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, deletions=[("eve", 1)], upsertions=rows)
    recorder.request(1, frame)
    answer(recorder, frame, results=[])

    (exchange,) = exchanged(recorder, tmp_path)

    assert [tuple(row) for row in exchange.request.upsertions] == [
        ("alice", 1, 4096, b"*******", b"*******"),
        ("bob", 2, 5000, b"****", b"*******"),
    ]
    assert [tuple(row) for row in exchange.request.deletions] == [("eve", 1)]


@pytest.mark.parametrize("key", [ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS])
@pytest.mark.parametrize(
    "name",
    [
        *("ssl.keystore.password", "listener.name.x.ssl.key.password", "listener.name.x.plain.sasl.jaas.config"),
        *("password.encoder.secret", "ssl.keystore.key", "delegation.token.master.key"),
    ],
)
def test_the_values_of_secret_settings_are_hidden(recorder: Recorder, tmp_path: Path, key: ApiKey, name: str) -> None:
    operation = (0,) if key == ApiKey.INCREMENTAL_ALTER_CONFIGS else ()
    rows = [(name, *operation, SECRET), ("num.partitions", *operation, "5"), ("ssl.key.password", *operation, None)]
    frame = frame_of(key, 0, resources=[(4, "0", rows)])
    recorder.request(1, frame)
    answer(recorder, frame, responses=[])

    (exchange,) = exchanged(recorder, tmp_path)

    assert [row.value for row in exchange.request.resources[0].configs] == ["*******", "5", None]


def test_other_settings_stay(recorder: Recorder, tmp_path: Path) -> None:
    recorder.request(1, frame_of(ApiKey.ALTER_CONFIGS, 0, resources=[(2, "t", [("retention.ms", "1")])]))

    (exchange,) = exchanged(recorder, tmp_path)

    assert exchange.request.resources[0].configs[0].value == "1"


def test_of_a_token_without_a_header_only_the_size_is_kept(recorder: Recorder, tmp_path: Path) -> None:
    recorder.request_before_login(1, bytearray(b"\0carol\0hunter2"), is_token=True)
    recorder.answered(1, [b"\0\0\0\7hunter3"])

    (exchange,) = exchanged(recorder, tmp_path)

    assert (exchange.outcome, exchange.request_bytes, exchange.response_bytes) == ("answered", 14, 7)


@pytest.mark.parametrize(
    "frame",
    [
        bytearray(b"\0carol\0hunter2"),
        bytearray(b"\0\x24\0\x09\0\0\0\7\xff\xff\0\0\0\7hunter2"),
        bytearray(b"\0\x24\0\0\0\0\0\7\xff\xff\0\0\0\x70hunter2"),
    ],
)
def test_before_the_login_a_request_that_is_not_understood_may_be_a_token(
    recorder: Recorder, tmp_path: Path, frame: bytearray
) -> None:
    recorder.request_before_login(1, frame, is_token=False)
    recorder.refused(1, "no")

    (exchange,) = exchanged(recorder, tmp_path)

    assert (exchange.outcome, exchange.request_bytes) == ("refused", len(frame))


def test_a_malformed_request_with_secrets_keeps_its_header_only(recorder: Recorder, tmp_path: Path) -> None:
    recorder.request(1, bytearray(b"\0\x24\0\0\0\0\0\7\xff\xff\0\0\0\x70hunter2"))
    recorder.refused(1, "no")

    (exchange,) = exchanged(recorder, tmp_path)

    assert exchange.api == "SaslAuthenticate"
    assert request_body(exchange).problem is not None


def test_the_next_response_of_a_connection_is_recorded_whole(recorder: Recorder, tmp_path: Path) -> None:
    recorder.request(1, frame_of(ApiKey.SASL_AUTHENTICATE, 0, auth_bytes=b"x"))
    recorder.refused(1, "no")
    frame = frame_of(ApiKey.LIST_GROUPS, 0)
    recorder.request(1, frame)
    answer(recorder, frame, groups=[("g", "consumer", "", "")])

    assert exchanged(recorder, tmp_path)[1].response.groups[0].group_id == "g"


def test_every_field_of_bytes_that_may_be_a_secret_is_declared_as_one() -> None:
    secret = {api.name for api in API_TABLE.values() if contains(api.request.fields, Meaning.SECRET)}

    tokens = {"RenewDelegationToken", "ExpireDelegationToken"}
    assert secret == {"SaslAuthenticate", "AlterUserScramCredentials", *tokens}
