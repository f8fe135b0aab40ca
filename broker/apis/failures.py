"""The answer of each API to a request that fails as a whole: the error code in all its fields.

As kafka's getErrorResponse, but derived from the messages. Error codes and messages are those of the failure; a row
with an error code repeats the request's row for the same thing (a topic, a group ...), by the meaning of the fields;
all other fields have their defaults. `OVERRIDES` has the exceptions.

An API's answer is derived when it first fails: a broker without failures pays nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from minibroker.broker.apis.configs import known_type, repeats_types
from minibroker.protocol.api import API_TABLE, Api, ApiKey, Request
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.message_rows import rows, rows_at
from minibroker.protocol.messages.groups import OffsetFetchResponse
from minibroker.protocol.primitives import Meaning
from minibroker.protocol.schema import Array, Field, Message, contains

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
Path = tuple[int, ...]  # of an array in a message: `Column.path`


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


def configs_with_known_types(request: Request, answer: Body) -> Body:
    """A resource of an unknown type is answered with type UNKNOWN in the versions of kafka 2.0.1."""
    if repeats_types(request):
        return answer
    *_, field = answer._fields
    rows = [row._replace(resource_type=known_type(row.resource_type)) for row in getattr(answer, field)]
    return answer._replace(**{field: rows})


OVERRIDES: dict[int, Callable[[Request, Body], Body | None]] = {
    ApiKey.PRODUCE: produce_without_acks,
    ApiKey.METADATA: metadata_with_names,
    ApiKey.JOIN_GROUP: join_group_of_member,
    ApiKey.OFFSET_FETCH: offset_fetch_without_rows,
    ApiKey.INIT_PRODUCER_ID: init_producer_id_of_2_0,
    ApiKey.OFFSET_DELETE: offset_delete_without_rows,
    ApiKey.DESCRIBE_CONFIGS: configs_with_known_types,
    ApiKey.ALTER_CONFIGS: configs_with_known_types,
}


# -- answers derived from the messages ------------------------------------------------------------------------


@cache
def maker_of(api_key: int, version: int) -> Make:
    return row_maker(API_TABLE[api_key], version, "", ())


def row_maker(api: Api, version: int, path: str, asked: Path) -> Make:
    """Make the maker of the answer's row at `path`, which repeats a row of the request at `asked`."""
    make = api.response.row(path)._make
    makers = [value_maker(api, version, path, asked, field) for field in api.response.fields_at(path)]
    return lambda row, error: make([value(row, error) for value in makers])


def value_maker(api: Api, version: int, path: str, asked: Path, field: Field) -> Make:
    default = field.default
    if field.meaning is Meaning.ERROR_CODE:
        return lambda row, error: error.code
    if field.meaning is Meaning.ERROR_MESSAGE:
        return lambda row, error: error.message
    if isinstance(field.kind, Array) and field.is_in(version) and contains(field.kind.fields, Meaning.ERROR_CODE):
        found = array_repeated(api.request, version, field.kind, asked)
        if found is not None:
            make, inner = row_maker(api, version, f"{path}.{field.name}".lstrip("."), found), found[len(asked) :]
            return lambda row, error: [make(each, error) for each in rows_at(row, inner)]
    elif path and field.meaning in NAMING:
        for column in rows(api.request):
            if (column.path, column.meaning) == (asked, field.meaning):
                place = column.place
                return lambda row, error: row if place is None else row[place]
    return lambda row, error: default


def array_repeated(request: Message, version: int, answered: Array, asked: Path) -> Path | None:
    """Find the array of the request whose rows the answer repeats: the first one with the same names, at any depth, as
    AlterReplicaLogDirs has its topics under directories; a Fetch names its forgotten topics after those to read. If the
    answer has nothing but errors in its rows, as that of CreateAcls, it is the first array."""
    if all(isinstance(each.kind, Array) or each.meaning in ERRORS for each in answered.fields):
        return next(((place,) for place, each in enumerate(request.fields) if isinstance(each.kind, Array)), None)
    named = {each.meaning for each in answered.fields} & NAMING
    depth = len(asked)
    inside = (path for path, _, meaning in rows(request, version) if meaning in named and path[:depth] == asked)
    return next((path for path in inside if len(path) > depth), None)
