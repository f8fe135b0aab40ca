"""The fields with which a request names topics and partitions, and with which its answer has their error codes.

`ROWS` has the APIs whose answers can fail for a single topic or partition, derived from their messages. A fault splits
such a request: the broker serves the part that is not struck, and its answer gets rows with the error for the struck
part. The other APIs fail as a whole, and so do those of a controller.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from minibroker.protocol.api import API_TABLE
from minibroker.protocol.message_rows import rows
from minibroker.protocol.message_values import NO_LEADER
from minibroker.protocol.primitives import Meaning
from minibroker.protocol.schema import Message

EVERY_PARTITION = -1  # the partition of a place, for an API that names only topics

Body = Any
# A topic and a partition.
Place = tuple[str, int]


class TopicRows(NamedTuple):
    """The array of a message that names topics, and the indexes in its rows. `around` is the array whose rows have it,
    as that of groups, None for the message itself; `topic` is None if a row is the name itself, `partitions` if a row
    has none, `partition` if a partition's row is its number."""

    around: str | None
    field: str
    topic: int | None
    partitions: int | None
    partition: int | None

    @property
    def has_partitions(self) -> bool:
        return self.partitions is not None

    def name_of(self, row: Any) -> str:
        """The topic's name; empty if it is named by its id."""
        return row if self.topic is None else row[self.topic] or ""

    def number_of(self, row: Any) -> int:
        number: int = row if self.partition is None else row[self.partition]
        return number

    def holders(self, body: Body) -> Sequence[Any]:
        """The rows, or the message, that have the array."""
        return (body,) if self.around is None else getattr(body, self.around)

    def with_topics(self, body: Body, topics: Sequence[Any]) -> Body:
        """Return the message with these rows in the array, by holder."""
        if self.around is None:
            return body._replace(**{self.field: topics[0]})
        rows = [row._replace(**{self.field: each}) for row, each in zip(self.holders(body), topics, strict=True)]
        return body._replace(**{self.around: rows})

    def places(self, body: Body) -> list[Place]:
        return [place for holder in self.holders(body) for place in self.places_in(holder)]

    def places_in(self, holder: Any) -> list[Place]:
        found: list[Place] = []
        for topic in getattr(holder, self.field) or ():
            name = self.name_of(topic)
            if self.partitions is None:
                found.append((name, EVERY_PARTITION))
            else:
                found += [(name, self.number_of(row)) for row in topic[self.partitions]]
        return found


def topic_rows(
    message: Message, version: int | None = None, *, failing: bool = False, depth_max: int = 1
) -> TopicRows | None:
    """Describe the first array that names topics, of those with error codes if it is to be `failing`; None if there is
    none in up to `depth_max` arrays."""
    found = rows(message, version)
    arrays = {path[0] for path, _, meaning in found if path and (meaning is Meaning.ERROR_CODE or not failing)}
    for path, topic, meaning in found:
        if meaning is not Meaning.TOPIC or not 0 < len(path) <= depth_max or path[0] not in arrays:
            continue
        inner = (each for each in found if each.meaning is Meaning.PARTITION and each.path[:-1] == path)
        partitions = next(((each.path[-1], each.place) for each in inner), (None, None))
        names = [message.fields[path[0]].name]
        names += [message.fields_at(names[0])[place].name for place in path[1:]]
        return TopicRows(names[0] if names[1:] else None, names[-1], topic, *partitions)
    return None


ROWS: dict[int, TopicRows] = {
    key: found
    for key, api in API_TABLE.items()
    if not api.is_unlisted
    and topic_rows(api.request) is not None
    and (found := topic_rows(api.response, failing=True)) is not None
}


@cache
def answered_rows(api_key: int, version: int) -> TopicRows:
    """Describe the topics with errors of an answer."""
    found = topic_rows(API_TABLE[api_key].response, version, failing=True, depth_max=2)
    assert found is not None
    return found


@cache
def requested_rows(api_key: int, version: int) -> TopicRows:
    """Describe the topics of a request; without its partitions if the answer has none, as that of CreateTopics."""
    found = topic_rows(API_TABLE[api_key].request, version, depth_max=2)
    assert found is not None
    return found if ROWS[api_key].has_partitions else found._replace(partitions=None)


def requested_places(api_key: int, version: int, body: Body) -> list[Place] | None:
    """Return the topics and partitions that a request names; None if it asks for all."""
    asked = requested_rows(api_key, version)
    return None if any(getattr(each, asked.field) is None for each in asked.holders(body)) else asked.places(body)


def without(api_key: int, version: int, body: Body, places: Container[Place]) -> Body:
    """Return the request without `places`."""
    asked = requested_rows(api_key, version)
    return asked.with_topics(body, [kept_topics(asked, holder, places) for holder in asked.holders(body)])


def kept_topics(asked: TopicRows, holder: Any, places: Container[Place]) -> list[Any]:
    topics = []
    for topic in getattr(holder, asked.field):
        name = asked.name_of(topic)
        if asked.partitions is None:
            if (name, EVERY_PARTITION) not in places:
                topics.append(topic)
            continue
        rows = [row for row in topic[asked.partitions] if (name, asked.number_of(row)) not in places]
        if rows:
            topics.append(topic._replace(**{topic._fields[asked.partitions]: rows}))
    return topics


def with_failed_rows(api_key: int, version: int, asked: Body, body: Body, codes: Mapping[Place, int]) -> Body:
    """Return the answer to `asked` with an error row for each place of `codes`, in place of its own row, else at the
    end. A group's topics get those that were asked of it."""
    answered, requested = answered_rows(api_key, version), requested_rows(api_key, version)
    if answered.around is None:
        return answered.with_topics(body, [failed_topics(api_key, answered, body, codes)])
    topics = []
    for holder, asking in zip(answered.holders(body), requested.holders(asked), strict=True):
        named = {*answered.places_in(holder), *requested.places_in(asking)}
        mine = {place: code for place, code in codes.items() if place in named}
        topics.append(failed_topics(api_key, answered, holder, mine))
    return answered.with_topics(body, topics)


def failed_topics(api_key: int, answered: TopicRows, holder: Any, codes: Mapping[Place, int]) -> list[Any]:
    response = API_TABLE[api_key].response
    path = answered.field if answered.around is None else f"{answered.around}.{answered.field}"
    if answered.partitions is None:
        # A deleted topic may have an id, but no name.
        topics = {answered.name_of(topic) or topic: topic for topic in getattr(holder, answered.field)}
        for (name, _), code in codes.items():
            topics[name] = row_of(response, path, {Meaning.TOPIC: name, Meaning.ERROR_CODE: code})
        return list(topics.values())
    partitions: dict[str, dict[int, Any]] = {}
    for topic in getattr(holder, answered.field):
        rows = ((answered.number_of(row), row) for row in topic[answered.partitions])
        partitions.setdefault(answered.name_of(topic), {}).update(rows)
    inner = f"{path}.{response.fields_at(path)[answered.partitions].name}"
    for (name, number), code in codes.items():
        row = row_of(response, inner, {Meaning.PARTITION: number, Meaning.ERROR_CODE: code})
        partitions.setdefault(name, {})[number] = row
    return [(name, list(rows.values())) for name, rows in partitions.items()]


def row_of(response: Message, path: str, values: Mapping[Meaning | None, Any]) -> Any:
    """Make a row of the answer with these values, and defaults in its other fields."""
    named = {field.name: values[field.meaning] for field in response.fields_at(path) if field.meaning in values}
    return response.row(path)(**named)


def with_failed_topics(body: Body, codes: Mapping[Place, int]) -> Body:
    """Return an answer of `TOPICS_WITH_LEADERS` with errors for topics (EVERY_PARTITION) or for partitions, which then
    have no leader."""
    topics = []
    for topic in body.topics:
        code = codes.get((topic.name or "", EVERY_PARTITION))
        if code is not None:
            topics.append(topic._replace(error_code=code, partitions=[]))
            continue
        rows = [
            row
            if (failed := codes.get((topic.name or "", row.partition))) is None
            else row._replace(error_code=failed, leader_id=NO_LEADER)
            for row in topic.partitions
        ]
        topics.append(topic._replace(partitions=rows))
    return body._replace(topics=topics)
