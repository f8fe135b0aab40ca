"""What fetch requests are to their sessions: fetch-path rows 35-44 of kafka 2.0.1. Each test names its row."""

from __future__ import annotations

import pytest

from minibroker.broker.replica.fetch_context import (
    FetchAnswer,
    FetchContext,
)
from minibroker.broker.replica.fetch_session import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION_ID
from minibroker.broker.replica.partition import FetchedPartition
from minibroker.broker.replica.partition_read import failed_fetch
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import TopicPartition
from tests.broker.fetcher import A0, A1, A2, B0, START_MS, Fetcher, read


@pytest.fixture
def fetcher() -> Fetcher:
    return Fetcher()


def names(answer: FetchAnswer) -> list[TopicPartition]:
    return [result.topic_partition for result in answer.partitions]


def rows_of(context: FetchContext) -> list[TopicPartition]:
    return [each.topic_partition for each in context.rows]


def test_row_36_a_session_knows_what_its_first_answer_said(fetcher: Fetcher) -> None:
    context = fetcher.open(NO_SESSION_ID, INITIAL_EPOCH, A0, A1)
    session_id = fetcher.answer(context, read(A0, high_watermark=7, log_start_offset=3)).session_id

    answer = fetcher.answer(fetcher.open(session_id, 1), read(A0, high_watermark=7, log_start_offset=3))

    assert names(answer) == []


def test_row_41_a_request_that_was_overtaken_is_an_error_with_the_session_id(fetcher: Fetcher) -> None:
    session_id = fetcher.begin(A0)
    overtaken = fetcher.open(session_id, 1)
    fetcher.answer(fetcher.open(session_id, 2))

    answer = fetcher.answer(overtaken, read(A0, high_watermark=9))

    assert answer == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id, ())
    assert fetcher.session(session_id).partitions[A0].high_watermark == 0


def test_row_41_a_session_that_ended_meanwhile_still_answers(fetcher: Fetcher) -> None:
    session_id = fetcher.begin(A0)
    context = fetcher.open(session_id, 1)
    fetcher.open(session_id, FINAL_EPOCH)

    answer = fetcher.answer(context, read(A0, high_watermark=9))

    assert (answer.error, answer.session_id, names(answer)) == (ErrorCode.NONE, session_id, [A0])


@pytest.mark.parametrize(
    "change", [read(A1, high_watermark=1), read(A1, log_start_offset=1)], ids=["high watermark", "log start"]
)
def test_row_42_a_changed_offset_is_told_once(fetcher: Fetcher, change: FetchedPartition) -> None:
    session_id = fetcher.begin(A0, A1, B0)

    answers = [fetcher.answer(fetcher.open(session_id, epoch), change) for epoch in (1, 2)]

    assert [names(answer) for answer in answers] == [[A1], []]


def test_row_42_records_are_sent_however_often(fetcher: Fetcher) -> None:
    session_id = fetcher.begin(A0, A1)

    answers = [fetcher.answer(fetcher.open(session_id, epoch), read(A1, size_bytes=70)) for epoch in (1, 2)]

    assert [names(answer) for answer in answers] == [[A1], [A1]]


def test_row_42_an_error_is_told_every_time_and_so_is_its_end(fetcher: Fetcher) -> None:
    session_id = fetcher.begin(A0, A1)
    error = failed_fetch(A1, ErrorCode.OFFSET_OUT_OF_RANGE)

    answers = [
        fetcher.answer(fetcher.open(session_id, epoch), *results)
        for epoch, results in enumerate([[error], [error], [], []], start=1)
    ]

    assert [names(answer) for answer in answers] == [[A1], [A1], [A1], []]


def test_row_42_an_error_forgets_the_high_watermark_even_if_it_has_one(fetcher: Fetcher) -> None:
    session_id = fetcher.begin(A0)
    error = read(A0, high_watermark=0)._replace(error=ErrorCode.KAFKA_STORAGE_ERROR)

    fetcher.answer(fetcher.open(session_id, 1), error)

    assert fetcher.session(session_id).partitions[A0].high_watermark == -1
    assert names(fetcher.answer(fetcher.open(session_id, 2))) == [A0]


def test_row_42_a_partition_added_is_told_and_one_changed_is_read_from_its_new_offset(fetcher: Fetcher) -> None:
    session_id = fetcher.begin(A0, A1)

    context = fetcher.open(session_id, 1, A0, B0, offset=5)

    assert [(each.topic_partition, each.fetch_offset) for each in context.rows] == [(A0, 5), (A1, 0), (B0, 5)]
    assert names(fetcher.answer(context)) == [B0]


def test_row_43_forgotten_partitions_are_not_read_and_unknown_ones_are_ignored(fetcher: Fetcher) -> None:
    session_id = fetcher.begin(A0, A1, B0)

    assert rows_of(fetcher.open(session_id, 1, forget=(A1, A2))) == [A0, B0]


def test_row_43_a_partition_named_and_forgotten_is_forgotten(fetcher: Fetcher) -> None:
    session_id = fetcher.begin(A0, A1)

    assert rows_of(fetcher.open(session_id, 1, A1, B0, forget=(A1, B0))) == [A0]


def test_row_44_partitions_are_read_in_the_order_they_came(fetcher: Fetcher) -> None:
    session_id = fetcher.begin(B0, A2, A0)

    assert rows_of(fetcher.open(session_id, 1, A1, A2)) == [B0, A2, A0, A1]


def test_row_44_the_first_order_is_that_of_the_answer(fetcher: Fetcher) -> None:
    context = fetcher.open(NO_SESSION_ID, INITIAL_EPOCH, A0, A1, B0)

    session_id = context.answer([read(A1), read(B0), read(A0)], START_MS).session_id

    assert rows_of(fetcher.open(session_id, 1)) == [A1, B0, A0]


def test_row_44_answered_partitions_go_to_the_end(fetcher: Fetcher) -> None:
    session_id = fetcher.begin(A0, A1, A2, B0)

    fetcher.answer(fetcher.open(session_id, 1), read(A0, size_bytes=70), read(A2, high_watermark=1))

    assert rows_of(fetcher.open(session_id, 2)) == [A1, B0, A0, A2]
