"""The answer of each API to a request that fails as a whole: the error code in all its fields.

As kafka's getErrorResponse, but derived from the messages. Error codes and messages are those of the failure; a row
with an error code repeats the request's row for the same thing (a topic, a group ...), by the meaning of the fields,
without rows of its own; all other fields have their defaults. The exceptions stand beside the messages, and the table
of APIs names them (`Api.failed`, `Api.joined`).

An API's answer is derived when it first fails: a broker without failures pays nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from minibroker.protocol.api import API_TABLE, Api, Request
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.message_rows import rows, rows_at
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
ERRORS = {Meaning.ERROR_CODE, Meaning.ERROR_MESSAGE}

Body = Any
# Makes a value of the answer from a row of the request (the whole body outside of repeated rows) and the error.
Make = Callable[[Any, KafkaError], Any]
Path = tuple[int, ...]  # of an array in a message: `Column.path`


def failure_of(request: Request, error: KafkaError) -> Body | None:
    """Return the answer to a failed request; None if it has no answer."""
    answer, failed = answer_to_all(request, error), API_TABLE[request.api_key].failed
    return answer if failed is None else failed(request.body, request.api_version, answer)


def answer_to_all(request: Request, error: KafkaError) -> Body:
    """Make the answer with the error for the request and for each of its rows."""
    joined = API_TABLE[request.api_key].joined
    body = request.body if joined is None else joined(request.body)
    return maker_of(request.api_key, request.api_version)(body, error)


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
    if isinstance(field.kind, Array) and has_row_errors(api.response, version, path, field):
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


def has_row_errors(answered: Message, version: int, path: str, field: Field) -> bool:
    """Whether the rows of an array tell of the failure: the array around it does not, as that of a group's topics."""
    if not field.is_in(version) or not contains(field.kind.fields, Meaning.ERROR_CODE):
        return False
    return not path or all(each.meaning is not Meaning.ERROR_CODE for each in answered.fields_at(path))


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
