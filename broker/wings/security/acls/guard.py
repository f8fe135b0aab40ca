"""Asks the authorizer before the handlers; a broker without an authorizer has no guard.

From the rights of an API (`protocol/api_table.py`) and the declarations of its messages follow the resources that are
asked for, and what a request gets without the right:

- a group, a transactional id or the cluster, not in rows: the request fails as a whole, with the API's own failure
  (`failures.py`);
- rows with topics, groups and the like: the handler answers the other rows, and the answer gets those of the failure
  behind its own;
- resources that only the answer names, also because the request asks for all: the answer goes without them.

Handlers ask for some rights by themselves (`Right.by_handler`): batches decide on those of Produce, sessions and
replicas on those of Fetch; Metadata creates topics; InitProducerId needs the cluster only without a transactional id;
AddPartitionsToTxn adds all or none; OffsetFetch has groups with topics of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

from minibroker.broker.apis.client import Client
from minibroker.broker.apis.failures import answer_to_all, failure_of
from minibroker.broker.apis.rights import Decisions, Rights, Who
from minibroker.broker.way.exchange import Body, Exchange
from minibroker.broker.way.stage import GO_ON, Stage
from minibroker.broker.wings.security.acls.authorizer import Authorizer
from minibroker.protocol.api import API_TABLE, Api, ApiKey, Request
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.message_rows import changed, columns, rows
from minibroker.protocol.primitives import Meaning, UnknownTopicById
from minibroker.protocol.resources import CLUSTER_NAME, NameField, ResourceType, name_fields
from minibroker.protocol.rights import Operation, Right

# The messages for a lack of rights in the versions that kafka 2.0.1 lacks, where an API has no `denials` of its own.
LATER_MESSAGES = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
}

# What before KAFKA-5547 the right to describe a topic is asked for first, and the APIs that ask so.
IN_VIEW = {Operation.READ, Operation.WRITE, Operation.DELETE}
HIDING = {
    ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.METADATA, ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH,
    ApiKey.DELETE_TOPICS, ApiKey.DELETE_RECORDS, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.DESCRIBE_CONFIGS, ApiKey.ALTER_CONFIGS,
}  # fmt: skip
# Those that say what a client lacks before they look for a topic; Metadata would create it.
DENIED_WHERE_MISSING = {ApiKey.METADATA, ApiKey.DESCRIBE_CONFIGS, ApiKey.ALTER_CONFIGS}

May = Callable[[str], bool]  # whether a client has a right on the resource of this name
Hidden = Sequence[tuple[NameField, May]]  # fields of an answer, with the resources that may be named there


class Ask(NamedTuple):
    """A right in the form in which it is asked for: `elsewhere` are rights on the cluster that are enough instead."""

    right: Right
    elsewhere: Sequence[Right]
    operation: Operation
    subject: ResourceType


class Plan(NamedTuple):
    """The rights that one version of an API needs.

    `whole`: rights for the whole request, with the field of the resource, None for the cluster. `rows`: rights on the
    resources in an array of the request, with the fields of the answer that name such resources if the array is null.
    `listed`: rights on resources that only the answer names.
    """

    whole: list[tuple[Ask, NameField | None]]
    rows: list[tuple[Ask, NameField, Sequence[NameField]]]
    listed: list[tuple[Ask, NameField]]


class Denied(NamedTuple):
    """The parts that the guard leaves out of a request: the answers of denied rows, and fields with more resources."""

    answers: Sequence[Body]
    hidden: Hidden


class Guard(Stage):
    """Leaves out of a request what its client may not ask for, and completes its answer."""

    def __init__(self, authorizer: Rights) -> None:
        self._authorizer = authorizer
        self._plans = {
            key: {version: plan_of(api, version) for version in range(api.versions[0], api.versions[1] + 1)}
            for key, api in API_TABLE.items()
            if not all(right.by_handler_since == 0 for right in api.rights)
        }

    def enter(self, exchange: Exchange) -> Any:
        request, client = exchange.served, exchange.client
        assert request is not None
        client.entitle(self._authorizer)
        plans = self._plans.get(request.api_key)
        if plans is None:
            return GO_ON
        body = request.body
        whole, rows, listed = plans[request.api_version]
        for ask, field in whole:
            name = CLUSTER_NAME if field is None else name_for(field, ask.subject, body, body)
            if name is not None and not self._may(client, ask)(name):
                return refusal(request, ask.right)
        if not rows and not listed:
            return GO_ON
        hidden = [(field, self._may(client, ask)) for ask, field in listed]
        denials = []
        for ask, field, in_answer in rows:
            may = self._may(client, ask)
            place = field.path[0]  # each right in rows is on an array of the request
            if body[place] is None:
                hidden += [(each, may) for each in in_answer]
                continue
            served: list[Any] = []
            denied: list[Any] = []
            for row in body[place]:
                name = name_for(field, ask.subject, body, row)
                is_known = not isinstance(name, UnknownTopicById)
                (denied if name is not None and is_known and not may(name) else served).append(row)
            if denied:
                denials.append(refusal_of_rows(request, place, denied, ask.right))
                body = with_rows(body, place, served)
        if denials:
            exchange.narrow(body)
        if denials or hidden:
            exchange.note(self, Denied(denials, hidden))
        return GO_ON

    def leave(self, exchange: Exchange, answer: Body) -> Body:
        denied: Denied | None = exchange.noted(self)
        if denied is None or exchange.has_failed:
            return answer
        assert exchange.request is not None
        return completed(exchange.request.api_key, denied.answers, denied.hidden, answer)

    def _may(self, client: Client, ask: Ask) -> May:
        """Return on which resources a client has a right, or one that is enough in its place."""
        for each in ask.elsewhere:
            if client.may(each.operation, each.resource_type, CLUSTER_NAME):
                return lambda name: True
        return client.decisions(ask.operation, ask.subject).__getitem__


class HiddenTopics(Stage, Rights):
    """In front of the guard, for releases before KAFKA-5547: a client that may not describe a topic may do nothing with
    it, and hears that there is no such topic; one that may describe it hears of a topic that is missing, whatever else
    it lacks. As kafka 0.11 KafkaApis. The guard asks for rights through it."""

    def __init__(self, authorizer: Authorizer, topics: Mapping[str, Any]) -> None:
        self._authorizer = authorizer
        self._topics = topics

    def decisions(self, who: Who, operation: Operation, resource_type: ResourceType) -> Decisions:
        decisions = self._authorizer.decisions(who, operation, resource_type)
        if resource_type is ResourceType.TOPIC and operation in IN_VIEW:
            return InView(decisions, self._authorizer.decisions(who, Operation.DESCRIBE, resource_type))
        return decisions

    def allowed(self, who: Who, operations: Iterable[Operation], resource: tuple[ResourceType, str]) -> list[Operation]:
        return self._authorizer.allowed(who, operations, resource)

    def leave(self, exchange: Exchange, answer: Body) -> Body:
        request = exchange.request
        assert request is not None
        if answer is None or request.api_key not in HIDING:
            return answer
        response = API_TABLE[request.api_key].response
        named = [each for each in rows(response) if each.meaning in (Meaning.TOPIC, Meaning.RESOURCE_NAME)]
        denied = [
            column
            for column in columns(response, Meaning.ERROR_CODE)
            if ErrorCode.TOPIC_AUTHORIZATION_FAILED in column.values(answer)
        ]
        if not denied:
            return answer
        may_describe = exchange.client.decisions(Operation.DESCRIBE, ResourceType.TOPIC)
        may_be_missing = request.api_key in DENIED_WHERE_MISSING

        def seen(name_place: int, places: Sequence[int], row: Any) -> Any:
            name = row[name_place]
            is_seen = may_describe[name] and (may_be_missing or name in self._topics)
            return row if is_seen else changed(row, places, hidden_error)

        for column in denied:
            around, name_place = next(each[:2] for each in named if column.path[: len(each.path)] == each.path)
            assert column.place is not None and name_place is not None
            places = (*column.path, column.place)[len(around) :]
            answer = changed(answer, around, partial(mapped, partial(seen, name_place, places)))
        return answer


def mapped(change: Callable[[Any], Any], rows: Iterable[Any]) -> list[Any]:
    return [*map(change, rows)]


class InView(Decisions):
    """The decisions on topics of a release that asks first whether a client may describe them."""

    def __init__(self, decisions: Decisions, may_describe: Decisions) -> None:
        super().__init__()
        self._decisions = decisions
        self._may_describe = may_describe

    def __missing__(self, name: str) -> bool:
        return self._may_describe[name] and self._decisions[name]


def hidden_error(code: int) -> int:
    is_denied = code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_denied else code


# -- plans ----------------------------------------------------------------------------------------------------


def plan_of(api: Api, version: int) -> Plan:
    in_request, in_answer = name_fields(api.request, version), name_fields(api.response, version)
    plan = Plan([], [], [])
    for right in api.rights:
        if not right.is_in(version) or version >= right.by_handler_since:
            continue
        *elsewhere, last = right.alternatives
        ask = Ask(right, tuple(elsewhere), last.operation, last.resource_type)
        named = [field for field in in_request if ask.subject in field.types.values()]
        answered = [field for field in in_answer if ask.subject in field.types.values()]
        in_rows = [field for field in named if field.path]
        if in_rows:
            plan.rows.append((ask, in_rows[0], answered))
        elif named or ask.subject is ResourceType.CLUSTER:
            plan.whole.append((ask, named[0] if named else None))
        else:
            plan.listed.extend((ask, field) for field in answered)
    return plan


def name_for(field: NameField, subject: ResourceType, body: Body, row: Any) -> str | None:
    """Return the resource of type `subject` that a row names, None for none."""
    type_place = field.type_place
    if type_place is not None and field.types.get((body if field.place is None else row)[type_place]) is not subject:
        return None
    if subject is ResourceType.CLUSTER:
        return CLUSTER_NAME
    name: str | None = row if field.place is None else row[field.place]
    return name


# -- refusals -------------------------------------------------------------------------------------------------


def error_of(request: Request, right: Right) -> KafkaError:
    api = API_TABLE[request.api_key]
    denials = api.denials or (None, LATER_MESSAGES[right.refusal])
    return KafkaError(right.refusal, denials[request.api_version > api.last_of_2_0])


def refusal(request: Request, right: Right) -> Any:
    """Return the answer to a request that fails as a whole."""
    error = error_of(request, right)
    if request.api_key == ApiKey.JOIN_GROUP:
        return answer_to_all(request, error)  # without the member's id
    return failure_of(request, error)


def refusal_of_rows(request: Request, place: int, rows: Sequence[Any], right: Right) -> Body:
    """Return the answer that a request with only these rows would get."""
    return answer_to_all(with_body(request, with_rows(request.body, place, rows)), error_of(request, right))


def completed(api_key: int, denials: Sequence[Body], hidden: Hidden, answer: Body) -> Body:
    """Return an answer with the rows of `denials` behind its own, and without hidden resources."""
    if getattr(answer, "error_code", ErrorCode.NONE) != ErrorCode.NONE:
        return answer  # with an error for the whole request
    for denial in denials:
        name = failing_array(api_key)
        answer = answer._replace(**{name: [*getattr(answer, name), *getattr(denial, name)]})
    for field, may in hidden:
        answer = changed(answer, field.path, partial(without_hidden, field.place, may))
    return answer


@cache
def failing_array(api_key: int) -> str:
    """The array of an answer whose rows have error codes."""
    response = API_TABLE[api_key].response
    return next(response.fields[path[0]].name for path, *_ in columns(response, Meaning.ERROR_CODE) if path)


def without_hidden(name_place: int | None, may: May, rows: Sequence[Any] | None) -> Sequence[Any]:
    """Return those rows of an answer whose name may be known."""
    return [row for row in rows or () if may(row if name_place is None else row[name_place])]


# -- requests and rows ----------------------------------------------------------------------------------------


def with_rows(body: Body, place: int, rows: Sequence[Any]) -> Body:
    return changed(body, (place,), lambda _: rows)


def with_body(request: Request, body: Body) -> Request:
    return Request(request.api_key, request.api_version, request.correlation_id, request.client_id, body)
