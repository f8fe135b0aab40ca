"""Answers requests that error faults strike, as a whole or for some of their topics and partitions, as Kafka would.

A request struck as a whole gets the API's own failure (apis/failures.py). A request struck in part is served without
that part, and its answer gets rows with the error. A Fetch also covers the partitions of its session; with an error
among them it is answered at once, and does not wait for records. Metadata is served first, and then fails for topics:
its answer must have the brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from minibroker.broker.apis.client import CloseConnectionError
from minibroker.broker.apis.failures import failure_of
from minibroker.broker.pending import unchanged
from minibroker.broker.replica.fetch_session import FINAL_EPOCH, INITIAL_EPOCH, FetchSession, FetchSessionCache
from minibroker.broker.way.exchange import Body, Exchange
from minibroker.broker.way.stage import GO_ON
from minibroker.broker.wings.testing.faults.fault import Fault, When
from minibroker.broker.wings.testing.faults.rows import (
    EVERY_PARTITION,
    ROWS,
    Place,
    answered_rows,
    requested_places,
    with_failed_rows,
    with_failed_topics,
    without,
)
from minibroker.protocol.api import ApiKey, Request
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.fetch import FetchResponse
from minibroker.protocol.primitives import TopicPartition

# The errors of a Fetch answer as a whole; all others are in its rows.
SESSION_ERRORS = {ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH}

Struck = dict[Place, Fault]
Finish = Callable[[Body], Body]  # makes the final answer
# APIs whose answers describe topics with their leaders, and whose requests name no partitions.
TOPICS_WITH_LEADERS = (ApiKey.METADATA, ApiKey.DESCRIBE_TOPIC_PARTITIONS)


class ErrorFaults:
    """Answers the requests that faults of kind `error` match."""

    def __init__(self, fetch_sessions: FetchSessionCache) -> None:
        self._fetch_sessions = fetch_sessions

    def places(self, request: Request) -> list[Place] | None:
        """The topics and partitions of a request, with those of its fetch session; None for all."""
        if request.api_key not in ROWS or request.body is None:
            return []
        named = requested_places(request.api_key, request.api_version, request.body)
        if request.api_key != ApiKey.FETCH or request.body.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            return named
        session = self._session(request.body)
        if session is None:
            return []  # the answer is a session error, and nothing is read
        forgotten = {(topic, each) for topic, partitions in request.body.forgotten_topics for each in partitions}
        return list(dict.fromkeys((*(each for each in session.partitions if each not in forgotten), *(named or ()))))

    def strike(self, exchange: Exchange, faults: Sequence[Fault]) -> tuple[Any, Finish]:
        """Return the answer of a request that is struck as a whole, else GO_ON; and what its answer gets in the end.

        Raises CloseConnectionError for a request without an answer that could have the error.
        """
        request = exchange.request
        assert request is not None
        if not faults or request.body is None:  # ApiVersions of an unknown version
            return GO_ON, unchanged
        if request.api_key == ApiKey.FETCH:
            return self._strike_fetch(exchange, request, faults)
        if request.api_key in TOPICS_WITH_LEADERS:
            return GO_ON, partial(with_failed_places, request.api_key, faults)
        for fault in faults:
            if fault.match.topic is None and fault.strikes():
                if fault.when is When.BEFORE:
                    return failed(request, fault), unchanged
                return GO_ON, lambda _, fault=fault: failed(request, fault)
        faults = [fault for fault in faults if fault.match.topic is not None]
        if self.places(request) is None:
            of_answer = answered_rows(request.api_key, request.api_version).places
            return GO_ON, lambda served: with_failures(request, assigned(of_answer(served), faults), served)
        return self._strike_part(exchange, request, faults)

    def _strike_part(self, exchange: Exchange, request: Request, faults: Sequence[Fault]) -> tuple[Any, Finish]:
        struck = assigned(self.places(request) or [], faults)
        unserved = [place for place, fault in struck.items() if fault.when is When.BEFORE]
        finish = partial(with_failures, request, struck)
        if not unserved:
            return GO_ON, finish
        if request.api_key == ApiKey.ADD_PARTITIONS_TO_TXN and request.body.topics:  # it adds all or none
            return failure_of(request, KafkaError(ErrorCode.OPERATION_NOT_ATTEMPTED)), finish
        exchange.narrow(without(request.api_key, request.api_version, request.body, unserved))
        return GO_ON, finish

    def _strike_fetch(self, exchange: Exchange, request: Request, faults: Sequence[Fault]) -> tuple[Any, Finish]:
        """Have the Fetch served, so that its session goes on; then replace the rows of struck partitions by errors."""
        if FetchResponse.field("error_code").is_in(request.api_version):
            for fault in faults:
                if fault.code in SESSION_ERRORS and fault.strikes():
                    return FetchResponse(error_code=fault.code), unchanged
        struck = assigned(self.places(request) or [], [each for each in faults if each.code not in SESSION_ERRORS])
        if not struck:
            return GO_ON, unchanged
        exchange.narrow(request.body._replace(max_wait_ms=0))
        return GO_ON, partial(self._finish_fetch, request, struck)

    def _finish_fetch(self, request: Request, struck: Struck, served: Body) -> Body:
        if served.error_code in SESSION_ERRORS:
            return served
        self._forget_high_watermarks(served.session_id, struck)
        return with_failures(request, struck, served)

    def _forget_high_watermarks(self, session_id: int, struck: Struck) -> None:
        """Let the end of an error count as a change in the session: a row with an error has no high watermark."""
        session = self._fetch_sessions.get(session_id)
        if session is not None:
            for place in struck:
                session.forget_high_watermark(TopicPartition(*place))

    def _session(self, body: Body) -> FetchSession | None:
        session = self._fetch_sessions.get(body.session_id)
        return session if session is not None and session.epoch == body.session_epoch else None


def assigned(places: Sequence[Place], faults: Sequence[Fault]) -> Struck:
    """Assign faults to places: the oldest fault of a place wins, and counts once a request."""
    struck: Struck = {}
    for fault in faults:
        mine = [place for place in places if place not in struck and fault.match.covers(place)]
        if mine and fault.strikes():
            struck.update(dict.fromkeys(mine, fault))
    return struck


def failed(request: Request, fault: Fault) -> Body:
    """Return the API's failure. Raises CloseConnectionError for acks=0, which has no answer."""
    if request.api_key == ApiKey.API_VERSIONS and fault.code is ErrorCode.UNSUPPORTED_VERSION:
        request.answer_in(0)  # as Kafka
    body = failure_of(request, KafkaError(fault.code))
    if body is None:
        raise unanswered(fault)
    return body


def with_failed_places(api_key: int, faults: Sequence[Fault], served: Body) -> Body:
    """Return an answer of TOPICS_WITH_LEADERS with errors for the topics and partitions that the faults match."""
    topics = [(topic.name or "", EVERY_PARTITION) for topic in served.topics]
    struck = assigned(topics, [fault for fault in faults if fault.match.partition is None])
    partitions = ROWS[api_key].places(served)
    struck |= assigned(partitions, [fault for fault in faults if fault.match.partition is not None])
    return with_failed_topics(served, {place: fault.code for place, fault in struck.items()})


def with_failures(request: Request, struck: Struck, served: Body) -> Body:
    """Return the answer with errors for struck places. Raises CloseConnectionError if the request has no answer."""
    if served is None and struck:
        raise unanswered(next(iter(struck.values())))
    codes = {place: fault.code for place, fault in struck.items()}
    if not codes:
        return served
    return with_failed_rows(request.api_key, request.api_version, request.body, served, codes)


def unanswered(fault: Fault) -> CloseConnectionError:
    return CloseConnectionError(f"a fault of a test: {fault.code.name}, for a request without an answer")
