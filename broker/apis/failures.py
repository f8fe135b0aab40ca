"""The answer of each API to a request that fails as a whole: the error code in all its fields.

As kafka's getErrorResponse, but derived from the messages. Error codes and messages are those of the failure; a row
with an error code repeats the request's row for the same thing (a topic, a group ...), by the meaning of the fields;
all other fields have their defaults. `OVERRIDES` has the exceptions.

An API's answer is derived when it first fails: a broker without failures pays nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

from minibroker.protocol.api import API_TABLE, ApiKey, Request
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.messages.groups import OffsetFetchResponse
from minibroker.protocol.primitives import Meaning
from minibroker.protocol.schema import Array, Field, Message, contains, place_of

# Fields that name the subject of a row: a row of the answer repeats them from the request.
NAMING = {
    Meaning.TOPIC,
    Meaning.TOPIC_ID,
    Meaning.PARTITION,
    Meaning.GROUP,
    Meaning.TRANSACTIONAL_ID,
    Meaning.PRODUCER_ID,
    Meaning.COORDINATOR_KEY,
    Meaning.RESOURCE_TYPE,
    Meaning.RESOURCE_NAME,
    Meaning.CLIENT_ENTITY,
    Meaning.USER,
}
OFFSET_FETCH_ERROR = OffsetFetchResponse.field("error_code")
ERRORS = {Meaning.ERROR_CODE, Meaning.ERROR_MESSAGE}
NO_ACKS = 0
LAST_INIT_PRODUCER_ID_OF_2_0 = 1

Body = Any
# Makes a value of the answer from a row of the request (the whole body outside of repeated rows) and the error.
Make = Callable[[Any, KafkaError], Any]


def failure_of(request: Request, error: KafkaError) -> Body | None:
    """Return the answer to a failed request; None if it has no answer."""
    answer = answer_to_all(request, error)
    override = OVERRIDES.get(request.api_key)
    return answer if override is None else override(request, answer)


def answer_to_all(request: Request, error: KafkaError) -> Body:
    """Make the answer with the error for the request and for each of its rows."""
    joined = JOINED.get(request.api_key)
    body = request.body if joined is None else joined(request.body)
    return maker_of(request.api_key, request.api_version)(body, error)


# -- rows in several arrays -----------------------------------------------------------------------------------


def users_once(body: Body) -> Body:
    """The users of both arrays of AlterUserScramCredentials, each once: the answer has a row for each user."""
    users = dict.fromkeys(row.name for row in (*body.deletions, *body.upsertions))
    make = API_TABLE[ApiKey.ALTER_USER_SCRAM_CREDENTIALS].request.row("deletions")
    return body._replace(deletions=[make(name, 0) for name in users])


# Joins the rows that an answer repeats into the first array that names its subject.
JOINED: dict[int, Callable[[Body], Body]] = {ApiKey.ALTER_USER_SCRAM_CREDENTIALS: users_once}


# -- overrides ------------------------------------------------------------------------------------------------


def produce_without_acks(request: Request, answer: Body) -> Body | None:
    """A request with acks=0 has no answer."""
    return None if request.body.acks == NO_ACKS else answer


def metadata_with_names(request: Request, answer: Body) -> Body:
    """A topic that was named by its id has an empty name, also in the versions that allow null."""
    return answer._replace(topics=[topic._replace(name=topic.name or "") for topic in answer.topics])


def join_group_of_member(request: Request, answer: Body) -> Body:
    """The answer repeats the member id. Other APIs repeat only rows: a failed InitProducerId has no producer id."""
    return answer._replace(member_id=request.body.member_id)


def offset_fetch_without_rows(request: Request, answer: Body) -> Body:
    """Since OffsetFetch has an error code of its own, it has no rows then."""
    return answer._replace(topics=[]) if OFFSET_FETCH_ERROR.is_in(request.api_version) else answer


def init_producer_id_of_2_0(request: Request, answer: Body) -> Body:
    """The versions of kafka 2.0.1 have epoch 0, later ones -1."""
    is_later = request.api_version > LAST_INIT_PRODUCER_ID_OF_2_0
    return answer if is_later else answer._replace(producer_epoch=0)


def offset_delete_without_rows(request: Request, answer: Body) -> Body:
    """OffsetDelete has an error code of its own, and then no rows."""
    return answer._replace(topics=[])


OVERRIDES: dict[int, Callable[[Request, Body], Body | None]] = {
    ApiKey.PRODUCE: produce_without_acks,
    ApiKey.METADATA: metadata_with_names,
    ApiKey.JOIN_GROUP: join_group_of_member,
    ApiKey.OFFSET_FETCH: offset_fetch_without_rows,
    ApiKey.INIT_PRODUCER_ID: init_producer_id_of_2_0,
    ApiKey.OFFSET_DELETE: offset_delete_without_rows,
}


# -- answers derived from the messages ------------------------------------------------------------------------


@cache
def maker_of(api_key: int, version: int) -> Make:
    api = API_TABLE[api_key]
    asked = Array(api.request.fields, None, is_nullable=False)
    return row_maker(api.response, "", api.response.fields, asked, version)


def row_maker(response: Message, path: str, fields: Sequence[Field], asked: Array, version: int) -> Make:
    """Make the maker of the answer's row at `path`, which repeats a row of `asked`."""
    make = response.row(path)._make
    makers = [value_maker(response, path, field, asked, version) for field in fields]
    return lambda row, error: make([value(row, error) for value in makers])


def value_maker(response: Message, path: str, field: Field, asked: Array, version: int) -> Make:
    kind, default = field.kind, field.default
    if field.meaning is Meaning.ERROR_CODE:
        return lambda row, error: error.code
    if field.meaning is Meaning.ERROR_MESSAGE:
        return lambda row, error: error.message
    if isinstance(kind, Array) and field.is_in(version) and contains(kind.fields, Meaning.ERROR_CODE):
        found = rows_repeated(kind, asked, version)
        if found is not None:
            inner = f"{path}.{field.name}" if path else field.name
            make = row_maker(response, inner, kind.fields, found.array, version)
            return lambda row, error: [make(each, error) for each in found.of(row)]
    elif path and field.meaning in NAMING:
        return repeater(field.meaning, asked) or (lambda row, error: default)
    return lambda row, error: default


def repeater(meaning: Meaning, asked: Array) -> Make | None:
    """Make the maker that repeats the field of this meaning from the request's row; None if the row has none."""
    if asked.meaning is meaning:  # the row is the value
        return lambda row, error: row
    place = place_of(asked.fields, meaning)
    return None if place is None else lambda row, error: row[place]


class NamedRows(NamedTuple):
    """An array of the request, with the places of the arrays around it, outermost first."""

    places: tuple[int, ...]
    array: Array

    def of(self, row: Any) -> Sequence[Any]:
        """The rows; none if the array is null."""
        rows: list[Any] = [row]
        for place in self.places:
            rows = [each for row in rows for each in row[place] or ()]
        return rows


def rows_repeated(answered: Array, asked: Array, version: int) -> NamedRows | None:
    """Find the rows of the request that the answer repeats: with the same names, or by their order if the answer has
    nothing but errors in its rows, as that of CreateAcls."""
    named = {each.meaning for each in answered.fields} & NAMING
    if all(isinstance(each.kind, Array) or each.meaning in ERRORS for each in answered.fields):
        arrays = (NamedRows((place,), each.kind) for place, each in enumerate(asked.fields) if is_array(each))
        return next(arrays, None)
    return rows_named(named, asked.fields, version)


def is_array(field: Field) -> bool:
    return isinstance(field.kind, Array)


def rows_named(meanings: set[Meaning | None], fields: Sequence[Field], version: int) -> NamedRows | None:
    """Find the first array of the request whose rows have a field of these meanings, at any depth: AlterReplicaLogDirs
    has its topics under directories. A Fetch names its forgotten topics after those to read."""
    for place, field in enumerate(fields):
        if not isinstance(field.kind, Array) or not field.is_in(version):
            continue
        if not meanings.isdisjoint({field.meaning, *(each.meaning for each in field.kind.fields)}):
            return NamedRows((place,), field.kind)
        inner = rows_named(meanings, field.kind.fields, version)
        if inner is not None:
            return NamedRows((place, *inner.places), inner.array)
    return None
