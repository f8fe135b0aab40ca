"""Names of topics in place of the ids by which later versions of Fetch, Produce, OffsetCommit and OffsetFetch name them
(KIP-516), and back.

A request gets the names when it is decoded, and an answer the ids before it is encoded, so that everything between sees
names, in each version. The id goes with its name (`TopicById`): also an answer about a topic that was deleted, or made
anew, has the id that was asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from minibroker.protocol.api import API_TABLE
from minibroker.protocol.message_rows import changed, rows_at
from minibroker.protocol.primitives import TopicById, UnknownTopicById
from minibroker.protocol.schema import FOREVER, Array, Field

Body = Any
Path = tuple[int, ...]  # of an array in a message: the places of the arrays around it, and its own


class IdPlaces(NamedTuple):
    """The first version of an API that names topics by ids, and the arrays of them in a request and in its answer."""

    first: int
    asked: Sequence[Path]
    answered: Sequence[Path]


def arrays_by_id(fields: Sequence[Field], path: Path = ()) -> dict[Path, int]:
    """The arrays whose topics have ids in place of names, with the first version of those. A row begins with its topic;
    one of an answer has the topic's partitions besides, and nothing else."""
    firsts: dict[Path, int] = {}
    for place, field in enumerate(fields):
        if field.later[0] < FOREVER:
            assert place == 0, field.name
            firsts[path] = field.later[0]
        elif isinstance(field.kind, Array):
            firsts |= arrays_by_id(field.kind.fields, (*path, place))
    return firsts


BY_ID: dict[int, IdPlaces] = {
    key: IdPlaces(min(asked.values()), list(asked), list(arrays_by_id(api.response.fields)))
    for key, api in API_TABLE.items()
    if (asked := arrays_by_id(api.request.fields))
}


def name_topics(body: Body, paths: Sequence[Path], topics: Mapping[bytes, TopicById]) -> None:
    """Put names in place of the ids in a decoded message; an id that is not in `topics` has one that no topic has."""
    for *around, place in paths:
        for each in rows_at(body, around):
            rows: list[Any] = each[place] or []
            for number, row in enumerate(rows):
                rows[number] = row._make((topics.get(row[0]) or UnknownTopicById(row[0]), *row[1:]))


def with_ids(body: Body, paths: Sequence[Path]) -> Body:
    """Return an answer with the ids of its topics."""
    for path in paths:
        body = changed(body, path, ids_of)
    return body


def ids_of(topics: Sequence[Any]) -> list[tuple[bytes, Any]]:
    return [(topic.topic_id, partitions) for topic, partitions in topics]
