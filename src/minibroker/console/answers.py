"""JSON in and out: a handler returns what is answered, or raises; each error is one line and a status.

`get` and `change` make routes of handlers. What a client sends is bounded here: numbers, texts and bodies.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar
from urllib.parse import unquote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from minibroker import patience
from minibroker.admin.outcomes import Outcome
from minibroker.any_cluster.shortfalls import noting
from minibroker.errors import BadValue, BrokerError, CommandFailed
from minibroker.protocol.text import json_object

BODY_BYTES_MAX = 8 << 20
TEXT_MAX = 1_000  # characters of a parameter
NAME_MAX = 2**15 - 1  # characters of a name, as Kafka's protocol has it
NUMBER_MAX = 2**63 - 1
# A browser takes `.` and `..` out of a path however they are written, and a name may be empty: such a name has a `~` in
# front, and so has one that looks like it.
GUARDED_NAME = re.compile(r"~+\.{0,2}")

PAGES = {
    "topics": "Topics", "offsets": "Topics", "producers": "Transactions", "groups": "Groups", "configs": "Settings",
    "transactions": "Transactions", "users": "Users", "quotas": "Quotas", "acls": "ACLs", "health": "Overview",
}  # fmt: skip
PAGE_OF_A_COMMAND = re.compile(
    rf"(?P<before>(?:with |in )?)`minibroker (?P<noun>{'|'.join(PAGES)})(?: (?:list|describe|moves)\b[^`]*| [^-` ]+)?`"
)
BESIDE_ADVICE = re.compile(r" \(`minibroker [^()]*\)")  # where it says more
OF_A_COMMAND = re.compile(r"`minibroker |(?<![\w-])--?[A-Za-z]")

logger = logging.getLogger(__name__)

T = TypeVar("T")
Handler = Callable[[Request], Awaitable[Any]]
ChangeHandler = Callable[[Request, dict[str, Any]], Awaitable[Any]]


class Refused(Exception):
    """A request is not served: the reason and the next step in one line, and a status."""

    def __init__(self, status: int, error: str) -> None:
        super().__init__(error)
        self.status = status


def advice_of_a_page(error: str) -> str:
    """The error of a command as a page shows it: without commands and options, with the page that has the same."""

    def page(found: re.Match[str]) -> str:
        return f"{found['before'] and 'on '}the page {PAGES[found['noun']]}"

    reason, *advice = PAGE_OF_A_COMMAND.sub(page, BESIDE_ADVICE.sub("", error)).split("; ")
    for clause in advice:
        kept = "or ".join(each for each in re.split(r"\bor ", clause) if not OF_A_COMMAND.search(each)).strip(" ,")
        reason += kept and f"; {kept}"
    return reason


def get(path: str, handler: Handler) -> Route:
    """A route that answers with the handler's value as JSON; `lacks` names the missing parts, and why."""

    async def handle(request: Request) -> Any:
        value, lacking = await looked(lambda: handler(request))
        return value | {"lacks": lacking} if lacking else value

    async def endpoint(request: Request) -> Response:
        return await answered(lambda: handle(request))

    return Route(path, endpoint, methods=["GET"])


async def looked(handle: Callable[[], Awaitable[T]]) -> tuple[T, list[str]]:
    """The result of a handler before the deadline of a page, and a line of each thing that it lacks."""
    with patience.limited(), noting() as lines:
        found = await handle()
    return found, [advice_of_a_page(line) for line in lines]


def change(method: str, path: str, handler: ChangeHandler) -> Route:
    """A route that changes something: `safety` has checked the token. The handler gets the object in the body."""

    async def endpoint(request: Request) -> Response:
        async def handle() -> Any:
            body = await json_body(request)
            result = await handler(request, body)
            logger.info("%s %s from %s", method, request.url.path, request.client.host if request.client else "?")
            return result

        return await answered(handle)

    return Route(path, endpoint, methods=[method])


def json_response(value: Any, status: int = 200) -> Response:
    body = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")
    return Response(body, status, {"cache-control": "no-store"}, "application/json")


async def answered(
    handle: Callable[[], Awaitable[Any]], response_of: Callable[[Any], Response] = json_response
) -> Response:
    """The response to the handler's value, or to its error."""
    try:
        return response_of(await handle())
    except Exception as error:
        return refusal_response(error)


def refusal_response(error: Exception) -> Response:
    """The response for an exception; one that nothing here expects is a defect, and logged."""
    if isinstance(error, Refused):
        return json_response({"error": str(error)}, error.status)
    if isinstance(error, (CommandFailed, BrokerError)):
        return json_response({"error": advice_of_a_page(str(error))}, 502)
    if isinstance(error, BadValue):
        return json_response({"error": advice_of_a_page(str(error))}, 400)
    if isinstance(error, ClientDisconnect):
        return Response(status_code=400)
    logger.error("a request failed", exc_info=error)
    return json_response({"error": f"a defect of the console, see its log: {error!r}"}, 500)


def outcome_of(outcomes: Sequence[Outcome], called: str = "name") -> dict[str, str]:
    """The only outcome, under the name that it is called by. Raises Refused with the broker's refusal."""
    (outcome,) = outcomes
    if outcome.error is not None:
        raise Refused(404 if outcome.outcome == "absent" else 409, advice_of_a_page(outcome.error))
    return {called: outcome.name, "outcome": outcome.outcome}


async def json_body(request: Request) -> dict[str, Any]:
    """The object in the body. Raises Refused."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_BYTES_MAX:
            raise Refused(413, f"a request may have {BODY_BYTES_MAX:,} bytes; send less")
    try:
        return json_object(body, '{"value": "hello"}')
    except ValueError as error:
        raise Refused(400, str(error)) from None


def in_path(request: Request, name: str) -> str:
    """A name in the path, which routes see as it was sent; router.js makes it."""
    text = unquote(request.path_params[name])
    if len(text) > NAME_MAX:
        raise Refused(400, f"{name} has more than {NAME_MAX:,} characters; correct it")
    return text[1:] if GUARDED_NAME.fullmatch(text) else text


def in_query(request: Request, name: str, default: str = "") -> str:
    text = request.query_params.get(name, default)
    if len(text) > TEXT_MAX:
        raise Refused(400, f"{name} has more than {TEXT_MAX} characters; correct it")
    return text


def number_in_query(request: Request, name: str, default: int, *, most: int = NUMBER_MAX) -> int:
    """A number from 0 to `most`. Raises Refused."""
    text = request.query_params.get(name)
    return default if text is None else number_of(text, name, most=most)


def number_of(text: str, name: str, *, most: int = NUMBER_MAX) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 20) or int(text) > most:
        raise Refused(400, f"{name}={text[:30]} is not a number from 0 to {most}; correct it")
    return int(text)
