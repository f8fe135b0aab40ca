"""Names of topics in place of the ids by which later versions of Fetch and Produce name them (KIP-516), and back.

A request gets the names when it is decoded, and an answer the ids before it is encoded, so that everything between sees
names, in each version. The id goes with its name (`TopicById`): also an answer about a topic that was deleted, or made
anew, has the id that was asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from minibroker.protocol.api import API_TABLE
from minibroker.protocol.primitives import TopicById, UnknownTopicById
from minibroker.protocol.schema import FOREVER, Message

Body = Any


class IdPlaces(NamedTuple):
    """The first version of an API that names topics by ids, and the arrays of them in a request and in its answer."""

    first: int
    asked: Sequence[str]
    answered: Sequence[str]


def arrays_by_id(message: Message) -> dict[str, int]:
    """The arrays of a message whose topics have ids in place of names, with the first version of those."""
    firsts = {path.rpartition(".")[0]: field.later[0] for path, field in message.walk() if field.later[0] < FOREVER}
    assert not any("." in path for path in firsts)
    return firsts


BY_ID: dict[int, IdPlaces] = {
    key: IdPlaces(min(asked.values()), list(asked), list(arrays_by_id(api.response)))
    for key, api in API_TABLE.items()
    if (asked := arrays_by_id(api.request))
}


def name_topics(body: Body, arrays: Sequence[str], topics: Mapping[bytes, TopicById]) -> None:
    """Put names in place of the ids in a decoded message; an id that is not in `topics` has one that no topic has."""
    for array in arrays:
        rows = getattr(body, array)
        for place, row in enumerate(rows):
            rows[place] = row._replace(topic=topics.get(row.topic) or UnknownTopicById(row.topic))


def with_ids(body: Body, arrays: Sequence[str]) -> Body:
    """Return an answer with the ids of its topics."""
    return body._replace(**{array: [(row[0].topic_id, row[1]) for row in getattr(body, array)] for array in arrays})
