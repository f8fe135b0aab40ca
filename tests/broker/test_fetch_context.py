"""What fetch requests are to their sessions: fetch-path rows 35-44 of kafka 2.0.1. Each test names its row."""

from __future__ import annotations

import pytest

from minibroker.broker.replica.fetch_context import (
    FetchAnswer,
    FetchContext,
    FullFetchContext,
    IncrementalFetchContext,
    SessionErrorContext,
    SessionlessContext,
)
from minibroker.broker.replica.fetch_session import FINAL_EPOCH, INITIAL_EPOCH, MAX_EPOCH, NO_SESSION_ID, next_epoch
from minibroker.broker.replica.partition import FetchedPartition
from minibroker.broker.replica.partition_read import failed_fetch
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import TopicPartition
from tests.broker.conftest import InMemoryBroker
from tests.broker.fetcher import A0, A1, A2, B0, START_MS, Fetcher, read


@pytest.fixture
def fetcher() -> Fetcher:
    return Fetcher()


def names(answer: FetchAnswer) -> list[TopicPartition]:
    return [result.topic_partition for result in answer.partitions]


def rows_of(context: FetchContext) -> list[TopicPartition]:
    return [each.topic_partition for each in context.rows]


def test_row_35_no_id_and_epoch_minus_one_is_no_session(fetcher: Fetcher) -> None:
    assert isinstance(fetcher.open(NO_SESSION_ID, FINAL_EPOCH, A0), SessionlessContext)


async def test_row_35_versions_before_7_begin_no_session(broker: InMemoryBroker) -> None:
    await broker.create_topic("a")

    for version in range(9):
        answer = await broker.fetch(("a", 0, 0), version=version)
        assert answer.session_id == NO_SESSION_ID

    assert broker.parts.fetch_sessions.statistics().sessions == 0


def test_row_36_a_session_begins_when_its_answer_is_built(fetcher: Fetcher) -> None:
    context = fetcher.open(NO_SESSION_ID, INITIAL_EPOCH, A0, A1)
    assert isinstance(context, FullFetchContext)
    assert fetcher.cache.statistics().sessions == 0

    answer = fetcher.answer(context)

    assert answer.error is ErrorCode.NONE
    assert names(answer) == [A0, A1]
    assert fetcher.session(answer.session_id).epoch == 1


def test_row_36_a_session_that_is_refused_has_id_0_and_all_partitions() -> None:
    fetcher = Fetcher(max_sessions=1)
    fetcher.begin(A0)

    answer = fetcher.answer(fetcher.open(NO_SESSION_ID, INITIAL_EPOCH, A0, A1))

    assert (answer.error, answer.session_id, names(answer)) == (ErrorCode.NONE, NO_SESSION_ID, [A0, A1])


def test_row_36_a_session_knows_what_its_first_answer_said(fetcher: Fetcher) -> None:
    context = fetcher.open(NO_SESSION_ID, INITIAL_EPOCH, A0, A1)
    session_id = fetcher.answer(context, read(A0, high_watermark=7, log_start_offset=3)).session_id

    answer = fetcher.answer(fetcher.open(session_id, 1), read(A0, high_watermark=7, log_start_offset=3))

    assert names(answer) == []


def test_row_37_epoch_minus_one_ends_the_session_without_another(fetcher: Fetcher) -> None:
    session_id = fetcher.begin(A0)

    assert isinstance(fetcher.open(session_id, FINAL_EPOCH, A0), SessionlessContext)

    assert fetcher.cache.statistics().sessions == 0


def test_row_38_a_full_request_ends_the_session_it_names_before_it_is_answered(fetcher: Fetcher) -> None:
    first = fetcher.begin(A0)

    context = fetcher.open(first, INITIAL_EPOCH, A1)
    assert fetcher.lives(first) == [False]
    second = fetcher.answer(context).session_id

    assert second not in (first, NO_SESSION_ID)
    assert fetcher.lives(first, second) == [False, True]


@pytest.mark.parametrize(("session_id", "epoch"), [(77, 1), (NO_SESSION_ID, 1), (NO_SESSION_ID, -2)])
def test_row_39_an_unknown_id_is_an_error_with_id_0_and_nothing_to_read(
    fetcher: Fetcher, session_id: int, epoch: int
) -> None:
    context = fetcher.open(session_id, epoch, A0)

    assert isinstance(context, SessionErrorContext)
    assert rows_of(context) == []
    assert fetcher.answer(context) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, NO_SESSION_ID, ())


@pytest.mark.parametrize("epoch", [2, 3, MAX_EPOCH, -2])
def test_row_40_another_epoch_is_an_error_and_changes_nothing(fetcher: Fetcher, epoch: int) -> None:
    session_id = fetcher.begin(A0)

    context = fetcher.open(session_id, epoch, A1, forget=(A0,))

    assert fetcher.answer(context) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, NO_SESSION_ID, ())
    assert list(fetcher.session(session_id).partitions) == [A0]
    assert fetcher.session(session_id).epoch == 1


def test_row_40_each_request_has_the_next_epoch(fetcher: Fetcher) -> None:
    session_id = fetcher.begin(A0)

    for epoch in (1, 2, 3):
        assert fetcher.answer(fetcher.open(session_id, epoch)).error is ErrorCode.NONE

    assert fetcher.session(session_id).epoch == 4


def test_row_40_the_largest_epoch_is_followed_by_1(fetcher: Fetcher) -> None:
    session_id = fetcher.begin(A0)
    fetcher.session(session_id).epoch = MAX_EPOCH

    assert fetcher.answer(fetcher.open(session_id, MAX_EPOCH)).error is ErrorCode.NONE

    assert fetcher.session(session_id).epoch == 1
    assert next_epoch(FINAL_EPOCH) == FINAL_EPOCH


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


def test_row_42_nothing_changed_is_an_empty_answer_with_the_id(fetcher: Fetcher) -> None:
    session_id = fetcher.begin(A0, A1)

    context = fetcher.open(session_id, 1)

    assert isinstance(context, IncrementalFetchContext)
    assert rows_of(context) == [A0, A1]
    assert fetcher.answer(context) == (ErrorCode.NONE, session_id, [])


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


def test_row_43_a_session_that_forgot_everything_is_gone(fetcher: Fetcher) -> None:
    session_id = fetcher.begin(A0, A1)

    assert isinstance(fetcher.open(session_id, 1, forget=(A0, A1)), SessionlessContext)

    assert fetcher.cache.statistics().sessions == 0
    assert isinstance(fetcher.open(session_id, 2), SessionErrorContext)


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
