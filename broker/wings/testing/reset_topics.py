"""The topics that a reset between tests has just deleted.

Clients that a test has left open ask for their topics again within milliseconds, and Metadata creates what is missing:
the next test would find a topic that it has not made, or could not make its own. For a moment the connections that are
older than the reset do not create these names; newer ones, and CreateTopics, do.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from minibroker.broker.apis.client import Client
from minibroker.broker.apis.metadata import topic_row
from minibroker.broker.apis.routes import Body, Handler
from minibroker.broker.parts import BrokerParts
from minibroker.broker.pending import Pending, then
from minibroker.broker.time.clock import Clock
from minibroker.broker.wing import Wing
from minibroker.protocol.api import TESTS_CLIENT_ID, ApiKey, Request
from minibroker.protocol.errors import ErrorCode

WITHHELD_MS = 1000


class ResetTopics:
    """`number` is a connection's, in the order of acceptance."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._names: frozenset[str] = frozenset()
        self._number = 0
        self._until_ms = 0

    def on_reset(self, names: Iterable[str], number: int) -> None:
        """Note what the reset has deleted that came by this connection."""
        self._names, self._number = frozenset(names), number
        self._until_ms = self._clock.monotonic_ms() + WITHHELD_MS

    @property
    def is_at_work(self) -> bool:
        """Whether there was a reset a moment ago."""
        return self._until_ms > 0 and self._clock.monotonic_ms() < self._until_ms

    def withholds(self, name: str, number: int) -> bool:
        """Whether a connection may not create the name now."""
        return self.is_at_work and name in self._names and number < self._number


class ResetWing(Wing):
    """Leads around the handlers of DeleteTopics and Metadata."""

    def __init__(self, parts: BrokerParts) -> None:
        self._known = parts.metadata_cache
        self._reset_topics = ResetTopics(parts.timers.clock)
        parts.handlers.lead_around(ApiKey.DELETE_TOPICS, self._delete_topics)
        parts.handlers.lead_around(ApiKey.METADATA, self._metadata)

    def _delete_topics(self, delete: Handler, request: Request, client: Client) -> Body | Pending[Body]:
        answer = delete(request, client)
        return then(answer, partial(self._note, client)) if request.client_id == TESTS_CLIENT_ID else answer

    def _note(self, client: Client, answer: Body) -> Body:
        self._reset_topics.on_reset([row.name for row in answer.topics], client.number)
        return answer

    def _metadata(self, ask: Handler, request: Request, client: Client) -> Body | Pending[Body]:
        """Answer LEADER_NOT_AVAILABLE for topics that are withheld: the client asks again."""
        if not self._reset_topics.is_at_work:
            return ask(request, client)
        body, known = request.body, self._known.topics
        names = [row.name for row in body.topics or () if row.name is not None]
        withheld = {name for name in names if name not in known and self._reset_topics.withholds(name, client.number)}
        if not withheld:
            return ask(request, client)
        left = [row for row in body.topics if row.name not in withheld]
        body = body._replace(topics=left) if left else body._replace(allow_auto_topic_creation=False)
        key, version = request.api_key, request.api_version
        narrowed = Request(key, version, request.correlation_id, request.client_id, body, request.size_bytes)
        return then(ask(narrowed, client), partial(with_withheld, withheld, names))


def with_withheld(withheld: set[str], names: list[str], answer: Body) -> Body:
    rows = [row for row in answer.topics if row.name not in withheld]
    rows += [topic_row(name, ErrorCode.LEADER_NOT_AVAILABLE) for name in withheld]
    return answer._replace(topics=sorted(rows, key=lambda row: names.index(row.name) if row.name in names else -1))
