"""Answers a request that faults fail, in whole or for some of its topics and partitions, exactly as Kafka would.

What is struck as a whole is answered by the API's own failure (apis/failures.py). What is struck in part is served but
for that part, and the answer gets rows with the error. A Fetch names, besides its own partitions, those of its session:
an error among them is told at once, it does not wait for records. Metadata fails for topics only after they were looked
up: it must tell the brokers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minibroker.broker.apis.client import Client, CloseConnectionError
from minibroker.broker.apis.failures import failure_of
from minibroker.broker.apis.registry import ApiRegistry
from minibroker.broker.faults.fault import Fault, When
from minibroker.broker.faults.rows import (
    EVERY_PARTITION,
    ROWS,
    Place,
    asked_places,
    with_failed_rows,
    with_failed_topics,
    without,
)
from minibroker.broker.pending import Pending
from minibroker.broker.replica.fetch_session import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    UNKNOWN_OFFSET,
    FetchSession,
    FetchSessionCache,
)
from minibroker.protocol.api import ApiKey, Request
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.fetch import FetchResponse
from minibroker.protocol.primitives import TopicPartition

# What a Fetch answer says of itself; all other errors it has in its rows.
SESSION_ERRORS = {ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH}

Body = Any
Struck = dict[Place, Fault]


class Failing:
    """Makes the answers of requests that faults of kind `error` fit."""

    def __init__(self, registry: ApiRegistry, fetch_sessions: FetchSessionCache) -> None:
        self._registry = registry
        self._fetch_sessions = fetch_sessions

    def places(self, request: Request) -> list[Place] | None:
        """The topics and partitions a request asks for, those of its fetch session too; None for all there are."""
        if request.api_key not in ROWS or request.body is None:
            return []
        named = asked_places(request.api_key, request.api_version, request.body)
        if request.api_key != ApiKey.FETCH or request.body.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            return named
        session = self._session(request.body)
        if session is None:
            return []  # it will be told so, and nothing is read
        forgotten = {(topic, each) for topic, partitions in request.body.forgotten_topics for each in partitions}
        return list(dict.fromkeys((*(each for each in session.partitions if each not in forgotten), *(named or ()))))

    async def answer(self, request: Request, client: Client, faults: Sequence[Fault]) -> Body:
        """Raises CloseConnectionError where there is no answer that could say so."""
        if not faults or request.body is None:  # ApiVersions of a version nobody knows
            return await answered(self._registry, request, client)
        if request.api_key == ApiKey.FETCH:
            return await self._fetch(request, client, faults)
        if request.api_key == ApiKey.METADATA:
            return await self._metadata(request, client, faults)
        for fault in faults:
            if fault.match.topic is None and fault.strikes():
                return await self._as_a_whole(request, client, fault)
        faults = [fault for fault in faults if fault.match.topic is not None]
        if self.places(request) is None:
            return await self._answered_first(request, client, faults)
        return await self._in_part(request, client, faults)

    async def _as_a_whole(self, request: Request, client: Client, fault: Fault) -> Body:
        if fault.when is When.AFTER:
            await answered(self._registry, request, client)
        return failed(request, fault)

    async def _in_part(self, request: Request, client: Client, faults: Sequence[Fault]) -> Body:
        struck = assigned(self.places(request) or [], faults)
        unserved = [place for place, fault in struck.items() if fault.when is When.BEFORE]
        if unserved and request.api_key == ApiKey.ADD_PARTITIONS_TO_TXN:  # it adds all or none
            served = failure_of(request, KafkaError(ErrorCode.OPERATION_NOT_ATTEMPTED))
        else:
            rest = without_places(request, unserved) if unserved else request
            served = await answered(self._registry, rest, client)
        return with_failures(request, served, struck)

    async def _answered_first(self, request: Request, client: Client, faults: Sequence[Fault]) -> Body:
        """What asks for everything is struck in what there was to answer."""
        served = await answered(self._registry, request, client)
        return with_failures(request, served, assigned(ROWS[request.api_key].places(served), faults))

    async def _metadata(self, request: Request, client: Client, faults: Sequence[Fault]) -> Body:
        served = await answered(self._registry, request, client)
        topics = [(topic.name or "", EVERY_PARTITION) for topic in served.topics]
        struck = assigned(topics, [fault for fault in faults if fault.match.partition is None])
        partitions = ROWS[ApiKey.METADATA].places(served)
        struck |= assigned(partitions, [fault for fault in faults if fault.match.partition is not None])
        return with_failed_topics(served, {place: fault.code for place, fault in struck.items()})

    async def _fetch(self, request: Request, client: Client, faults: Sequence[Fault]) -> Body:
        """Read as always, so that the session goes on; what is struck is told instead of what was read."""
        if FetchResponse.field("error_code").is_in(request.api_version):
            for fault in faults:
                if fault.code in SESSION_ERRORS and fault.strikes():
                    return FetchResponse(error_code=fault.code)
        struck = assigned(self.places(request) or [], [each for each in faults if each.code not in SESSION_ERRORS])
        if struck:
            request = with_body(request, request.body._replace(max_wait_ms=0))
        served = await answered(self._registry, request, client)
        if served.error_code in SESSION_ERRORS or not struck:
            return served
        self._forget_what_was_told(served.session_id, struck)
        return with_failures(request, served, struck)

    def _forget_what_was_told(self, session_id: int, struck: Struck) -> None:
        """An error tells no high watermark: the end of the error is a change that the session must tell."""
        session = self._fetch_sessions.get(session_id)
        if session is not None:
            for place in struck:
                session.partitions[TopicPartition(*place)].high_watermark = UNKNOWN_OFFSET

    def _session(self, body: Body) -> FetchSession | None:
        session = self._fetch_sessions.get(body.session_id)
        return session if session is not None and session.epoch == body.session_epoch else None


async def answered(registry: ApiRegistry, request: Request, client: Client) -> Body:
    """The answer of the registry, waited for."""
    body = registry.answer(request, client)
    return await body.wait() if isinstance(body, Pending) else body


def assigned(places: Sequence[Place], faults: Sequence[Fault]) -> Struck:
    """Which fault strikes which place: the first made wins, and is counted once a request."""
    struck: Struck = {}
    for fault in faults:
        mine = [place for place in places if place not in struck and fault.match.covers(place)]
        if mine and fault.strikes():
            struck.update(dict.fromkeys(mine, fault))
    return struck


def failed(request: Request, fault: Fault) -> Body:
    """Raises CloseConnectionError for acks=0, which has no answer: all that its client can notice."""
    if request.api_key == ApiKey.API_VERSIONS and fault.code is ErrorCode.UNSUPPORTED_VERSION:
        request.api_version = 0  # as Kafka says it: in the version every client can read
    body = failure_of(request, KafkaError(fault.code))
    if body is None:
        raise unanswered(fault)
    return body


def with_failures(request: Request, served: Body, struck: Struck) -> Body:
    """The answer, with errors for what is struck. Raises CloseConnectionError if there is none to have them."""
    if served is None and struck:
        raise unanswered(next(iter(struck.values())))
    codes = {place: fault.code for place, fault in struck.items()}
    return with_failed_rows(request.api_key, served, codes) if codes else served


def unanswered(fault: Fault) -> CloseConnectionError:
    return CloseConnectionError(f"a fault of a test: {fault.code.name}, and no answer to say so")


def without_places(request: Request, places: Sequence[Place]) -> Request:
    return with_body(request, without(request.api_key, request.api_version, request.body, places))


def with_body(request: Request, body: Body) -> Request:
    return Request(request.api_key, request.api_version, request.correlation_id, request.client_id, body)
