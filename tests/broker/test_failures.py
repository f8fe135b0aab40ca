"""The answer of each API to a request that fails as a whole, in every version: recorded from handwritten answers.

`whole-request-failures*.jsonl.gz` have requests of each API and version: with two rows in every array ("full"), with
null in place of all that may be null ("null", "nameless": strings only), with empty arrays; and the answers that a
function for each API gave, when the answers were not yet read off the messages. Versions that came since are not there.
"""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.broker.apis.failures import failure_of
from minibroker.conformance.requests import frame
from minibroker.protocol.api import (
    API_TABLE,
    Api,
    ApiKey,
    Request,
    decode_request,
    encode_response,
    joined,
)
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.message_rows import columns
from minibroker.protocol.messages.newer_groups import failed_share
from minibroker.protocol.primitives import Meaning
from minibroker.protocol.resources import resources_named
from tests.broker.recorded_failures import recorded
from tests.integration.sample_requests import sample_body

CODE = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
RECORDED = {frame["api"] for frame in recorded()}


def answer_to(request_frame: bytes, message: str | None) -> str | None:
    request = decode_request(request_frame)
    body = failure_of(request, KafkaError(CODE, message))
    return None if body is None else joined(encode_response(request, body)).hex()


@pytest.mark.parametrize("api", [api for api in API_TABLE.values() if api.name in RECORDED], ids=lambda api: api.name)
def test_a_failure_is_answered_as_recorded(api: Api) -> None:
    rows = [row for row in recorded() if row["api"] == api.name]

    recorded_versions = {row["version"] for row in rows}
    assert recorded_versions == set(range(api.versions[0], max(recorded_versions) + 1))
    for row in rows:
        answer = answer_to(bytes.fromhex(row["request"]), row["message"])
        assert answer == row["answer"], f"{api.name} v{row['version']} {row['shape']}"


@pytest.mark.parametrize("api", API_TABLE.values(), ids=lambda api: api.name)
def test_a_failure_has_the_error_in_all_its_codes_and_names_only_requested_rows(api: Api) -> None:
    for version in range(api.versions[1] + 1):
        request = Request(api.key, version, 1, None, sample_body(api.key, version))

        answer = failure_of(request, KafkaError(CODE))

        codes = [code for column in columns(api.response, Meaning.ERROR_CODE) for code in column.values(answer)]
        assert set(codes) == {CODE}
        answered = {each for each in resources_named(api.response, version, answer) if each.name}
        assert answered <= set(resources_named(api.request, version, request.body))


# The book share_groups has those of share groups.
@pytest.mark.parametrize(
    "api", [api for api in API_TABLE.values() if api.failed not in (None, failed_share)], ids=lambda api: api.name
)
def test_each_change_of_an_apis_failure_is_needed(monkeypatch: pytest.MonkeyPatch, api: Api) -> None:
    frames = [each for each in recorded() if each["api"] == api.name]
    last = max(each["version"] for each in frames)
    frames = [each for each in frames if each["version"] in (api.last_of_2_0, last)]

    monkeypatch.setitem(API_TABLE, api.key, api._replace(failed=None))

    assert any(answer_to(bytes.fromhex(each["request"]), each["message"]) != each["answer"] for each in frames)


def test_a_user_in_both_arrays_of_alter_user_scram_credentials_has_one_row() -> None:
    rows = {"deletions": [("a", 1), ("b", 2)], "upsertions": [("c", 1, 4096, b"", b""), ("a", 2, 4096, b"", b"")]}

    failed = failure(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, **rows)

    assert [(row.user, row.error_code) for row in failed.results] == [("a", CODE), ("b", CODE), ("c", CODE)]


def test_produce_without_acks_has_no_answer() -> None:
    assert failure(ApiKey.PRODUCE, 3, acks=0) is None


def failure(key: ApiKey, version: int, **body: Any) -> Any:
    """The answer to a request whose handler fails."""
    return failure_of(decode_request(frame(key, version, **body)[4:]), KafkaError(CODE))


def test_a_fetch_fails_for_requested_partitions_and_not_for_forgotten_ones() -> None:
    asked = [("asked", [(3, -1, 0, -1, -1, 100)])]

    failed = failure(ApiKey.FETCH, 11, topics=asked, forgotten_topics=[("forgotten", [1])])

    assert [topic.topic for topic in failed.topics] == ["asked"]
    assert [(row.partition, row.error_code) for row in failed.topics[0].partitions] == [(3, CODE)]


def test_rows_that_the_request_does_not_name_are_not_made() -> None:
    failed = failure(ApiKey.LEAVE_GROUP, 3, group_id="g", members=[("m", None, None)])

    assert (failed.error_code, list(failed.members)) == (CODE, [])
