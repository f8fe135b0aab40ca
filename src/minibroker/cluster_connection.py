"""A connection to a whole cluster for a test's own requests: each goes to the brokers that can answer it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from minibroker.administration import VERSIONS, Connection
from minibroker.protocol.api import API_TABLE, ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.message_values import NO_LEADER

TO_THE_CONTROLLER = frozenset({ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS})
TO_LEADERS = frozenset({ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS})
WHILE_LEADERS_CHANGE = frozenset(
    {
        ErrorCode.NOT_LEADER_FOR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_CONTROLLER,
    }
)
ELECTION_SECONDS = 10.0
POLL_SECONDS = 0.01
SHARED_WAIT_MS = 50  # of a long poll at several leaders, in turn


class ClusterConnection(Connection):
    """Asks the brokers of these connections, by broker id; while leaders change, again for a while."""

    def __init__(self, connections: Mapping[int, Connection]) -> None:
        self._connections = connections

    def each_broker(self) -> Iterator[Connection]:
        yield from self._connections.values()

    def ask(self, api_key: ApiKey, version: int | None = None, /, **body: Any) -> Any:
        """The decoded response, or those of several leaders as one. Raises OSError as `Connection.ask`."""
        deadline = time.monotonic() + ELECTION_SECONDS
        while True:
            answer = self._asked(api_key, version, body)
            if time.monotonic() > deadline or WHILE_LEADERS_CHANGE.isdisjoint(errors_of(answer)):
                return answer
            time.sleep(POLL_SECONDS)

    def _asked(self, api_key: ApiKey, version: int | None, body: dict[str, Any]) -> Any:
        if api_key in TO_THE_CONTROLLER:
            return self._of(self._any.ask(ApiKey.METADATA, topics=[]).controller_id).ask(api_key, version, **body)
        if api_key not in TO_LEADERS:
            return self._any.ask(api_key, version, **body)
        by_leader = self._by_leader(api_key, body["topics"])
        if "max_wait_ms" in body and len(by_leader) > 1:
            body = {**body, "max_wait_ms": min(body["max_wait_ms"], SHARED_WAIT_MS)}
        answers = [
            self._of(leader).ask(api_key, version, **{**body, "topics": topics}) for leader, topics in by_leader.items()
        ]
        return answers[0] if len(answers) == 1 else merged(api_key, answers)

    def _by_leader(self, api_key: ApiKey, topics: Iterable[Any]) -> dict[int, list[Any]]:
        """The topics of a request, with the partitions of each leader."""
        rows = API_TABLE[ApiKey.METADATA].request.row("topics")
        topic_row = API_TABLE[api_key].request.row("topics")
        answer = self._any.ask(
            ApiKey.METADATA, VERSIONS[ApiKey.METADATA], topics=[rows(name=topic.topic) for topic in topics]
        )
        leaders = {(topic.name, each.partition): each.leader_id for topic in answer.topics for each in topic.partitions}
        found: dict[int, list[Any]] = {}
        for topic in topics:
            parts: dict[int, list[Any]] = {}
            for each in topic.partitions:
                parts.setdefault(leaders.get((topic.topic, each.partition), NO_LEADER), []).append(each)
            for leader, its_own in parts.items():
                found.setdefault(leader, []).append(topic_row(topic=topic.topic, partitions=its_own))
        return found

    @property
    def _any(self) -> Connection:
        return next(iter(self._connections.values()))

    def _of(self, broker_id: int) -> Connection:
        """The connection to a broker; any, which answers with an error, to one that is not there."""
        return self._connections.get(broker_id, self._any)


def merged(api_key: ApiKey, answers: list[Any]) -> Any:
    """One answer with the rows of all: those of a topic together."""
    by_topic: dict[str, list[Any]] = {}
    for answer in answers:
        for topic in answer.topics:
            by_topic.setdefault(topic.topic, []).extend(topic.partitions)
    rows = API_TABLE[api_key].response.row("topics")
    return SimpleNamespace(topics=[rows(topic=name, partitions=parts) for name, parts in by_topic.items()])


def errors_of(answer: Any) -> set[int]:
    """The error codes of an answer's topics and partitions."""
    found = set()
    for topic in getattr(answer, "topics", ()):
        for row in (topic, *getattr(topic, "partitions", ())):
            found.add(getattr(row, "error_code", 0))
    return found
