"""The REST interface of Confluent's schema registry: a table of addresses, a method each."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, unquote

from minibroker.broker.wings.registry import refusals
from minibroker.broker.wings.registry.access import Access, Request
from minibroker.broker.wings.registry.records import Version
from minibroker.broker.wings.registry.refusals import Refusal
from minibroker.broker.wings.registry.registry import Registry, given_of, number_of
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.text import json_object
from minibroker.schemas.schema import AVRO, PROTOBUF

if TYPE_CHECKING:  # a broker alone does without
    from minibroker.broker.wings.registry.relay import Relay

JSON_TYPE = "application/vnd.schemaregistry.v1+json"
READING = ("GET", "HEAD")
ALL_COMPATIBLE = {"is_compatible": True}

logger = logging.getLogger(__name__)


class Asked(NamedTuple):
    """A request: the names in its address, its parameters, the object in its body."""

    names: tuple[str, ...]
    parameters: Mapping[str, str]
    body: Mapping[str, Any]

    def says(self, name: str) -> bool:
        return self.parameters.get(name, "").lower() == "true"

    @property
    def subject(self) -> str | None:
        """The subject in the address; None for all."""
        return self.names[0] if self.names else None


Answer = Callable[["Api", Asked], Awaitable[Any]]


class Api:
    """The answers. Each method raises Refusal."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    # -- subjects ---------------------------------------------------------------------------------------------

    async def subjects(self, asked: Asked) -> Any:
        only = asked.says("deletedOnly")
        names: dict[str, bool] = {}
        for each in self._registry.contents().all(deleted=only or asked.says("deleted")):
            names[each.subject] = names.get(each.subject, True) and each.is_deleted
        prefix = asked.parameters.get("subjectPrefix", "")
        return page([name for name, gone in names.items() if name.startswith(prefix) and (gone or not only)], asked)

    async def delete_subject(self, asked: Asked) -> Any:
        return await self._registry.delete_subject(asked.names[0], permanent=asked.says("permanent"))

    async def lookup(self, asked: Asked) -> Any:
        subject, deleted = asked.names[0], asked.says("deleted")
        self._registry.versions(subject, deleted=deleted)  # before the schema is read, as Confluent's
        given = given_of(asked.body)
        found = await self._registry.lookup(subject, given, normalize=asked.says("normalize"), deleted=deleted)
        return await self._shown(found, asked)

    async def versions(self, asked: Asked) -> Any:
        only = asked.says("deletedOnly")
        found = self._registry.versions(asked.names[0], deleted=only or asked.says("deleted"))
        return page([each.version for each in found if each.is_deleted or not only], asked)

    async def register(self, asked: Asked) -> Any:
        normalize = asked.says("normalize")
        made = await self._registry.register(asked.names[0], given_of(asked.body), normalize=normalize)
        return {"id": made.id}

    async def version(self, asked: Asked) -> Any:
        return await self._shown(self._version(asked), asked)

    async def version_schema(self, asked: Asked) -> Any:
        return (await self._shown(self._version(asked), asked))["schema"]

    async def referenced_by(self, asked: Asked) -> Any:
        version = self._registry.version(*asked.names, deleted=True)
        return sorted({each.id for each in self._registry.contents().referring(version.subject, version.version)})

    async def delete_version(self, asked: Asked) -> Any:
        return await self._registry.delete_version(*asked.names, permanent=asked.says("permanent"))

    def _version(self, asked: Asked) -> Version:
        return self._registry.version(*asked.names, deleted=asked.says("deleted"))

    async def _shown(self, version: Version, asked: Asked) -> dict[str, Any]:
        found = version.shown()
        if version.kind == PROTOBUF and asked.parameters.get("format") == "serialized":
            schema: Any = await self._registry.schema(version)
            found["schema"] = schema.serialized()
        if version.kind == AVRO and asked.parameters.get("format") == "resolved":
            schema = await self._registry.schema(version)
            found["schema"] = schema.whole
        return found

    # -- schemas ----------------------------------------------------------------------------------------------

    async def schema_by_id(self, asked: Asked) -> Any:
        version = self._by_id(asked)[0]
        found = await self._shown(version, asked)
        found = {name: each for name, each in found.items() if name not in ("subject", "version", "id")}
        if asked.says("fetchMaxId"):
            found["maxId"] = self._registry.contents().highest_id
        return found

    async def text_by_id(self, asked: Asked) -> Any:
        return (await self.schema_by_id(asked))["schema"]

    async def subjects_of_id(self, asked: Asked) -> Any:
        return sorted({each.subject for each in self._shown_of_id(asked)})

    async def versions_of_id(self, asked: Asked) -> Any:
        return [{"subject": each.subject, "version": each.version} for each in self._shown_of_id(asked)]

    def _by_id(self, asked: Asked) -> list[Version]:
        text = asked.names[0]
        if not (text.isascii() and text.isdecimal()):
            raise Refusal(404, "HTTP 404 Not Found")
        return self._registry.by_id(int(text))

    def _shown_of_id(self, asked: Asked) -> list[Version]:
        subject = asked.parameters.get("subject")
        deleted = asked.says("deleted")
        return [
            each
            for each in self._by_id(asked)
            if (deleted or not each.is_deleted) and subject in (None, "", each.subject)
        ]

    async def schemas(self, asked: Asked) -> Any:
        prefix = asked.parameters.get("subjectPrefix", "")
        found = list(self._registry.contents().all(deleted=asked.says("deleted")))
        if asked.says("latestOnly"):
            found = list({each.subject: each for each in found}.values())
        return page([each.shown() for each in found if each.subject.startswith(prefix)], asked)

    async def types(self, asked: Asked) -> Any:
        return ["JSON", "PROTOBUF", "AVRO"]

    async def contexts(self, asked: Asked) -> Any:
        return ["."]

    # -- settings ---------------------------------------------------------------------------------------------

    async def config(self, asked: Asked) -> Any:
        subject = asked.subject
        configs = self._registry.contents().configs
        if subject is not None and subject not in configs and not asked.says("defaultToGlobal"):
            raise refusals.NO_CONFIG(subject)
        return self._registry.config(subject)

    async def set_config(self, asked: Asked) -> Any:
        await self._registry.set_config(asked.subject, asked.body)
        return asked.body

    async def delete_config(self, asked: Asked) -> Any:
        return await self._registry.delete_config(asked.subject)

    async def mode(self, asked: Asked) -> Any:
        subject = asked.subject
        if subject is not None and subject not in self._registry.contents().modes and not asked.says("defaultToGlobal"):
            raise refusals.NO_MODE(subject)
        return {"mode": self._registry.mode(subject)}

    async def set_mode(self, asked: Asked) -> Any:
        mode = str(asked.body.get("mode")).upper()
        await self._registry.set_mode(asked.subject, mode, force=asked.says("force"))
        return {"mode": mode}

    async def delete_mode(self, asked: Asked) -> Any:
        return {"mode": await self._registry.delete_mode(asked.subject)}

    # -- compatibility ----------------------------------------------------------------------------------------

    async def compatible_with_one(self, asked: Asked) -> Any:
        subject, text = asked.names
        known = self._registry.contents().versions(subject)
        if not known and number_of(text) is None:
            return ALL_COMPATIBLE
        return await self._compatible(asked, [self._registry.version(subject, text)])

    async def compatible_with_all(self, asked: Asked) -> Any:
        return await self._compatible(asked, self._registry.contents().versions(asked.names[0]))

    async def _compatible(self, asked: Asked, previous: list[Version]) -> Any:
        level = self._registry.level(asked.names[0])
        reasons = await self._registry.unlike(level, given_of(asked.body), previous)
        found: dict[str, Any] = {"is_compatible": not reasons}
        return found | {"messages": reasons} if asked.says("verbose") else found

    async def nothing(self, asked: Asked) -> Any:
        return {}


ADDRESSES: dict[str, Mapping[str, Answer]] = {
    "": {"GET": Api.nothing},
    "subjects": {"GET": Api.subjects},
    "subjects/*": {"POST": Api.lookup, "DELETE": Api.delete_subject},
    "subjects/*/versions": {"GET": Api.versions, "POST": Api.register},
    "subjects/*/versions/*": {"GET": Api.version, "DELETE": Api.delete_version},
    "subjects/*/versions/*/schema": {"GET": Api.version_schema},
    "subjects/*/versions/*/referencedby": {"GET": Api.referenced_by},
    "schemas": {"GET": Api.schemas},
    "schemas/types": {"GET": Api.types},
    "schemas/ids/*": {"GET": Api.schema_by_id},
    "schemas/ids/*/schema": {"GET": Api.text_by_id},
    "schemas/ids/*/subjects": {"GET": Api.subjects_of_id},
    "schemas/ids/*/versions": {"GET": Api.versions_of_id},
    "contexts": {"GET": Api.contexts},
    "config": {"GET": Api.config, "PUT": Api.set_config, "DELETE": Api.delete_config},
    "config/*": {"GET": Api.config, "PUT": Api.set_config, "DELETE": Api.delete_config},
    "mode": {"GET": Api.mode, "PUT": Api.set_mode, "DELETE": Api.delete_mode},
    "mode/*": {"GET": Api.mode, "PUT": Api.set_mode, "DELETE": Api.delete_mode},
    "compatibility/subjects/*/versions": {"POST": Api.compatible_with_all},
    "compatibility/subjects/*/versions/*": {"POST": Api.compatible_with_one},
}
BY_PARTS = {tuple(address.split("/")): methods for address, methods in ADDRESSES.items()}


def page(rows: list[Any], asked: Asked) -> list[Any]:
    """The rows from `offset` on, `limit` of them at most if that is positive."""
    offset, limit = (
        int(text) if (text := asked.parameters.get(name, "")).isdecimal() else 0 for name in ("offset", "limit")
    )
    return rows[offset : offset + limit if limit else None]


class RestApi:
    """The answers to requests. `access` refuses those who may not ask; `relay` is that of a cluster."""

    def __init__(self, registry: Registry, access: Access, relay: Relay | None = None) -> None:
        self._api = Api(registry)
        self._access = access
        self._relay = relay

    async def answer(self, request: Request) -> tuple[int, Mapping[str, str], bytes]:
        """The status, headers and body."""
        status, value, headers = await self._answer(request)
        if isinstance(value, bytes):  # of another registry
            body = value
        elif isinstance(value, str):  # of .../schema, which is no JSON
            body = value.encode()
        else:
            body = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")
        return status, {"content-type": JSON_TYPE, **headers}, body

    async def _answer(self, request: Request) -> tuple[int, Any, Mapping[str, str]]:
        try:
            body = await request.body()
            answer, names = found(request)
            value = object_in(body)
            is_change = answer.__name__.startswith(("set_", "delete_", "register"))
            await self._access.check(request, is_change=is_change)
            passed_on = None if self._relay is None else await self._relay.answer(request, body, is_change=is_change)
            if passed_on is not None:
                return *passed_on, {}
            parameters = dict(parse_qsl(request.query, keep_blank_values=True))
            return 200, await answer(self._api, Asked(names, parameters, value)), {}
        except Refusal as refusal:
            return refusal.status, {"error_code": refusal.code, "message": str(refusal)}, self._access.headers(refusal)
        except KafkaError as error:
            timed_out = error.code == ErrorCode.REQUEST_TIMED_OUT
            failure = (refusals.STORE_TIMED_OUT if timed_out else refusals.STORE_FAILED)(error)
            logger.warning("%s %s: %s", request.method, request.path, failure)
            return failure.status, {"error_code": failure.code, "message": str(failure)}, {}
        except Exception as error:
            logger.error("%s %s: a defect of minibroker", request.method, request.path, exc_info=error)
            return 500, {"error_code": 500, "message": f"a defect of minibroker, see its log: {error!r}"}, {}


def found(request: Request) -> tuple[Answer, tuple[str, ...]]:
    """The method for an address, and the names in it. Raises Refusal."""
    given = request.path.strip("/").split("/")
    for parts, methods in BY_PARTS.items():
        if len(parts) == len(given) and all(part in ("*", each) for part, each in zip(parts, given, strict=True)):
            method = "GET" if request.method == "HEAD" else request.method
            if method not in methods:
                raise Refusal(405, "HTTP 405 Method Not Allowed")
            names = (unquote(each) for part, each in zip(parts, given, strict=True) if part == "*")
            return methods[method], tuple(names)
    raise Refusal(404, "HTTP 404 Not Found")


def object_in(body: bytes) -> Mapping[str, Any]:
    """The object in a body, an empty one without. Raises Refusal."""
    try:
        return json_object(body, '{"schema": "..."}')
    except ValueError as error:
        raise Refusal(400, str(error)) from None
