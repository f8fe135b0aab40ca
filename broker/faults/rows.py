"""Where a request names topics and partitions, and where its answer has their error codes.

`ROWS` lists the APIs whose answers can fail for one topic or partition alone. A fault splits such a request into the
part that is struck and the rest: the rest is served, the other answered as a failure, and the two answers are merged.
The other APIs fail as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple

from minibroker.broker.apis.topics import FIRST_VERSION_THAT_DELETES_BY_ID
from minibroker.broker.cluster.metadata_cache import NO_LEADER
from minibroker.protocol.api import API_TABLE, ApiKey
from minibroker.protocol.schema import Field

EVERY_PARTITION = -1  # in the place of a partition, where an API names topics only
TOPIC_NAMES = ("topic", "name")

Body = Any
# A topic and a partition of it.
Place = tuple[str, int]


class Rows(NamedTuple):
    """The fields with the topics of an API's request and of its answer; whether there are partitions in them."""

    asked: str
    answered: str
    has_partitions: bool = True


ROWS: dict[int, Rows] = {
    ApiKey.PRODUCE: Rows("topics", "topics"),
    ApiKey.FETCH: Rows("topics", "topics"),
    ApiKey.LIST_OFFSETS: Rows("topics", "topics"),
    ApiKey.METADATA: Rows("topics", "topics"),
    ApiKey.OFFSET_COMMIT: Rows("topics", "topics"),
    ApiKey.OFFSET_FETCH: Rows("topics", "topics"),
    ApiKey.CREATE_TOPICS: Rows("topics", "topics", has_partitions=False),
    ApiKey.DELETE_TOPICS: Rows("topic_names", "topics", has_partitions=False),
    ApiKey.DELETE_RECORDS: Rows("topics", "topics"),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Rows("topics", "topics"),
    ApiKey.ADD_PARTITIONS_TO_TXN: Rows("topics", "topics"),
    ApiKey.TXN_OFFSET_COMMIT: Rows("topics", "topics"),
    ApiKey.CREATE_PARTITIONS: Rows("topics", "results", has_partitions=False),
    ApiKey.ELECT_LEADERS: Rows("topic_partitions", "topics"),
    ApiKey.OFFSET_DELETE: Rows("topics", "topics"),
    ApiKey.DESCRIBE_PRODUCERS: Rows("topics", "topics"),
}


class Columns(NamedTuple):
    """The places of fields in the rows of an answer: its topics, and their partitions (None if it has none)."""

    topic: int
    partitions: int | None
    partition: int


@cache
def columns_of(api_key: int) -> Columns:
    topics = field_named(API_TABLE[api_key].response.fields, ROWS[api_key].answered).kind.fields
    names = [field.name for field in topics]
    topic = next(index for index, name in enumerate(names) if name in TOPIC_NAMES)
    if not ROWS[api_key].has_partitions:
        return Columns(topic, None, 0)
    partitions = field_named(topics, "partitions").kind.fields
    return Columns(topic, names.index("partitions"), [field.name for field in partitions].index("partition"))


def field_named(fields: Sequence[Field], name: str) -> Field:
    return next(field for field in fields if field.name == name)


def asked_field(api_key: int, version: int) -> str:
    """DeleteTopics has had its names in another place since topics have ids."""
    if api_key == ApiKey.DELETE_TOPICS and version >= FIRST_VERSION_THAT_DELETES_BY_ID:
        return "topics"
    return ROWS[api_key].asked


def asked_places(api_key: int, version: int, body: Body) -> list[Place] | None:
    """The topics and partitions a request names; None where it asks for all there are, without a name."""
    topics = getattr(body, asked_field(api_key, version))
    if topics is None:
        return None
    if ROWS[api_key].has_partitions and api_key != ApiKey.METADATA:
        return [(topic[0], partition_of(row)) for topic in topics for row in topic.partitions]
    return [(name_of(topic), EVERY_PARTITION) for topic in topics]


def name_of(topic: Any) -> str:
    """Of a row that is a name, or has one. Empty for a topic that is named by its id."""
    return topic if isinstance(topic, str) else topic.name or ""


def partition_of(row: Any) -> int:
    number: int = row if isinstance(row, int) else row[0]
    return number


def answered_places(api_key: int, body: Body) -> list[Place]:
    """The topics and partitions an answer has rows for."""
    columns = columns_of(api_key)
    places = []
    for topic in getattr(body, ROWS[api_key].answered):
        name = topic[columns.topic] or ""
        if columns.partitions is None:
            places.append((name, EVERY_PARTITION))
        else:
            places += [(name, row[columns.partition]) for row in topic[columns.partitions]]
    return places


def only(api_key: int, version: int, body: Body, places: Iterable[Place], *, is_rest: bool = False) -> Body:
    """The request for `places` alone; `is_rest`: for all but those."""
    chosen = set(places)
    field = asked_field(api_key, version)
    topics = []
    for topic in getattr(body, field):
        if not ROWS[api_key].has_partitions:
            if ((name_of(topic), EVERY_PARTITION) in chosen) != is_rest:
                topics.append(topic)
            continue
        rows = [row for row in topic.partitions if ((topic[0], partition_of(row)) in chosen) != is_rest]
        if rows:
            topics.append(topic._replace(partitions=rows))
    return body._replace(**{field: topics})


def naming(api_key: int, version: int, body: Body, places: Iterable[Place]) -> Body:
    """The request, as if it had named `places`: for an answer that fails for what was not named in so many words."""
    field = asked_field(api_key, version)
    partitions: dict[str, list[Any]] = {}
    for name, partition in places:
        partitions.setdefault(name, []).append((partition,) if api_key == ApiKey.FETCH else partition)
    make_row = API_TABLE[api_key].request.row(field)
    return body._replace(**{field: [make_row(name, rows) for name, rows in partitions.items()]})


def merged(api_key: int, served: Body, failed: Body) -> Body:
    """The answer `served`, with the rows of `failed` in the place of its own for them, or behind these."""
    field, columns = ROWS[api_key].answered, columns_of(api_key)
    topics = [*getattr(served, field), *getattr(failed, field)]
    if columns.partitions is None:
        # A deleted topic may have no name, but an id.
        latest = {topic[columns.topic] or topic: topic for topic in topics}
        return served._replace(**{field: list(latest.values())})
    rows_of: dict[str, dict[int, Any]] = {}
    for name, rows in topics:
        rows_of.setdefault(name, {}).update((row[columns.partition], row) for row in rows)
    return served._replace(**{field: [(name, list(rows.values())) for name, rows in rows_of.items()]})


def with_failed_topics(body: Body, codes: dict[Place, int]) -> Body:
    """A Metadata answer that fails for some topics (EVERY_PARTITION) or partitions: these have no leader then."""
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
