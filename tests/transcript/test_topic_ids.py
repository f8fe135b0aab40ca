"""Topics that requests name by ids have their names in a transcript that has an answer with both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minibroker.protocol.api import API_TABLE, ApiKey, decode_request, encode_request, encode_response
from minibroker.protocol.resources import Resource, ResourceType
from minibroker.transcript.exchanges import read_transcript
from minibroker.transcript.fields import request_body, response_body
from minibroker.transcript.file import TranscriptWriter
from minibroker.transcript.recorder import Recorder

ID = bytes(range(16))


@pytest.mark.parametrize(("is_learnt", "name"), [(True, "orders"), (False, "id:AAECAwQFBgcICQoLDA0ODw")])
def test_a_topic_has_its_name_once_an_answer_had_it(tmp_path: Path, is_learnt: bool, name: str) -> None:
    recorder = Recorder(TranscriptWriter(tmp_path / "t"), max_record_bytes=1000, max_bytes=1 << 20)
    if is_learnt:
        exchange(recorder, ApiKey.METADATA, 12, {"topics": None}, {"topics": [(0, "orders", ID, False, [], 0)]})
    asked = {"topics": [(ID, [(0, -1, 7, -1, -1, 100)])], "forgotten_topics": [(ID, [1])]}
    exchange(recorder, ApiKey.FETCH, 13, asked, {"topics": [(ID, [(0, *[0] * 4, None, -1, b"", None, None)])]})
    recorder.close()

    fetch = list(read_transcript(tmp_path / "t"))[-1]

    assert [fetch.request.topics[0].topic, fetch.request.forgotten_topics[0].topic] == [name] * 2
    assert fetch.response.topics[0].topic == name
    assert request_body(fetch).resources == [Resource(ResourceType.TOPIC, name)] * 2
    assert [row[0].value for row in shaped(response_body(fetch), "topics")] == [name]


def exchange(recorder: Recorder, key: ApiKey, version: int, asked: dict[str, Any], answer: dict[str, Any]) -> None:
    frame = bytearray(encode_request(key, version, 7, "me", API_TABLE[key].request(**asked))[4:])
    recorder.request(1, frame)
    recorder.answered(1, encode_response(decode_request(frame), API_TABLE[key].response(**answer)))


def shaped(body: Any, array: str) -> Any:
    return next(shape.rows for shape in body.fields if shape.name == array)
