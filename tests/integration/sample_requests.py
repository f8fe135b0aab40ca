"""A request body for any API and version, made from its schema: one row in each array, and harmless to carry out."""

from __future__ import annotations

from typing import Any

from minibroker.protocol.api import API_TABLE, ApiKey
from minibroker.protocol.primitives import ZERO_UUID, Uuid
from minibroker.protocol.schema import Array, Field, Message
from tests.integration.hostile_batches import valid

NO_SUCH_NAME = "in valid"  # as a topic it exists nowhere and cannot be made


def sample_body(key: ApiKey, version: int) -> Any:
    message = API_TABLE[key].request
    return message.type(**values(message, message.fields, version, ""))


def values(message: Message, fields: tuple[Field, ...], version: int, prefix: str) -> Any:
    return {
        field.name: value_of(message, field, version, f"{prefix}{field.name}")
        for field in fields
        if field.is_in(version)
    }


def value_of(message: Message, field: Field, version: int, path: str) -> Any:
    kind = field.kind_in(version)
    if isinstance(kind, Array):
        if kind.element is not None:
            return [simple_value(kind.element, 0)]
        return [message.row(path)(**values(message, kind.fields, version, f"{path}."))]
    if field.name == "acks":
        return -1  # 0 would not be answered
    return simple_value(kind, field.default)


def simple_value(kind: Any, default: Any) -> Any:
    if kind is Uuid:
        return ZERO_UUID
    what = getattr(kind, "kind", None)
    if what == "records":
        return valid()
    if what == "string":
        return None if kind.is_nullable else NO_SUCH_NAME
    return default
