"""The masks hide what depends on the run, and nothing else."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest

from minibroker.conformance.answers import Masks, Plain, differences
from minibroker.conformance.conversation import Transcript
from minibroker.conformance.recordings import Delta, patched
from minibroker.conformance.steps import call
from minibroker.protocol.messages.fetch import FetchResponse
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import TimestampType, build_batch
from tests.conformance.comparing import deltas_between
from tests.protocol.batch_bytes import commit_marker

NOW_MS = 1_700_000_000_000


def appended_at(time_ms: int, value: bytes = b"value") -> bytes:
    kind = TimestampType.LOG_APPEND_TIME
    return bytes(build_batch([Record(0, 5, None, value)], timestamp_type=kind, log_append_time_ms=time_ms))


def fetched(records: bytes, *, drawn: Sequence[int] = (), session_id: int = 0) -> Plain:
    """The masked answer to a fetch, of a broker that drew these ids of producers."""
    masks = Masks("run1-", NOW_MS)
    for producer_id in drawn:
        masks.learn_producer(producer_id)
    aborted = [
        FetchResponse.row("topics.partitions.aborted_transactions")(producer_id, 0) for producer_id in drawn[-1:]
    ]
    row = FetchResponse.row("topics.partitions")(partition=0, records=records, aborted_transactions=aborted)
    topics = [FetchResponse.row("topics")(topic="run1-a", partitions=[row])]
    return masks.apply("Fetch", FetchResponse(session_id=session_id, topics=topics))


def test_a_brokers_time_is_masked_and_a_value_is_not() -> None:
    early = fetched(appended_at(NOW_MS))

    assert differences(early, fetched(appended_at(NOW_MS + 1000))) == []
    assert len(differences(early, fetched(appended_at(NOW_MS, b"other")))) == 1


@pytest.mark.parametrize("kept", [80, 60, 42, 24, 18])
def test_a_brokers_time_is_masked_in_a_batch_that_is_cut_off(kept: int) -> None:
    early, late = appended_at(NOW_MS)[:kept], appended_at(NOW_MS + 1000)[:kept]

    assert early != late
    assert differences(fetched(early), fetched(late)) == []
    assert differences(fetched(early), fetched(late[:-1]))


def test_a_wrong_crc_shows() -> None:
    damaged = bytearray(appended_at(NOW_MS))
    struct.pack_into(">I", damaged, 17, 0)

    assert differences(fetched(appended_at(NOW_MS)), fetched(bytes(damaged)))


def test_a_time_of_long_ago_is_compared() -> None:
    assert differences(fetched(appended_at(1_500_000_000_000)), fetched(appended_at(1_500_000_000_001)))


def test_session_ids_are_numbered_and_topics_have_no_prefix() -> None:
    answer = fetched(b"", session_id=991)

    assert answer["session_id"] == 1
    assert answer["topics"][0]["topic"] == "@a"


def test_a_difference_names_its_field() -> None:
    kafkas, ours = {"topics": [{"error_code": 0, "rows": []}]}, {"topics": [{"error_code": 3, "rows": None}]}

    found = differences(kafkas, ours)

    assert [each.split(":")[0] for each in found] == ["topics[0].error_code", "topics[0].rows"]


def written_by(producer_id: int, *, is_marker: bool = False, time_ms: int = NOW_MS) -> bytes:
    if is_marker:
        return bytes(commit_marker(producer_id=producer_id, timestamp_ms=time_ms))
    return bytes(build_batch([Record(0, 5, None, b"value")], producer_id=producer_id, is_transactional=True))


@pytest.mark.parametrize("is_marker", [False, True])
def test_producer_ids_are_numbered_in_the_order_in_which_they_were_drawn(is_marker: bool) -> None:
    first = fetched(written_by(1, is_marker=is_marker), drawn=[0, 1])

    assert differences(first, fetched(written_by(80, is_marker=is_marker), drawn=[70, 80])) == []
    assert differences(first, fetched(written_by(70, is_marker=is_marker), drawn=[70, 80])) != []
    assert differences(first, fetched(written_by(90, is_marker=is_marker), drawn=[70, 80])) != []


def test_the_time_of_a_marker_is_masked() -> None:
    early, late = (written_by(5, is_marker=True, time_ms=NOW_MS + delta) for delta in (0, 1000))

    assert early != late
    assert differences(fetched(early), fetched(late)) == []
    assert differences(fetched(early), fetched(written_by(6, is_marker=True))) != []


def test_an_answer_of_apache_kafka_is_made_of_ours_and_the_fields_that_differ() -> None:
    kafkas = {"topics": [{"name": "@a", "rows": [{"error": 3}, {"error": 0}]}], "message": "NONE"}
    ours = {"topics": [{"name": "@a", "rows": [{"error": 0}, {"error": 0}]}], "message": None}

    found = deltas_between([kafkas], [ours])

    assert found == [Delta(0, "topics[0].rows[0].error", 3), Delta(0, "message", "NONE")]
    answer: object = ours
    for each in found:
        answer = patched(answer, each.path, each.value)
    assert answer == kafkas
    assert patched("closed", "message", "NONE") == "closed"
    assert patched({"topics": []}, "topics[0].rows[0].error", 3) == {"topics": []}


def test_a_row_that_is_missing_is_a_difference() -> None:
    assert differences({"rows": [1, 2]}, {"rows": [1]}) == ["rows: Apache Kafka [1, 2], minibroker [1]"]


def test_an_answer_that_cannot_be_read_is_not_asked_for_again() -> None:
    step, cut_short = call("FindCoordinator", 1, retry=(15,), key="g"), (77).to_bytes(4, "big") + bytes(8)
    transcript = Transcript("r000001-")

    assert not transcript.wants_again(step, cut_short)
    transcript.add(step, cut_short)
    assert transcript.answers[0].startswith("undecodable: FindCoordinatorResponse v1")
