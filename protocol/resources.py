"""Finds the resources that a message names, by its declaration: topics, groups, transactional ids, the cluster.

An authorizer needs them for a request, and a transcript shows them. Some names have their type in a field beside them:
config resources and coordinator keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from functools import cache
from typing import Any, NamedTuple

from minibroker.protocol.message_rows import rows, rows_at
from minibroker.protocol.primitives import Meaning, topic_id_text
from minibroker.protocol.schema import Message


class ResourceType(IntEnum):
    """The types of resources that have access rights, in Kafka's numbers; ANY is only for filters."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7

    __hash__ = int.__hash__  # faster than that of an enum: every decision of an authorizer is looked up by it

    @property
    def title(self) -> str:
        """The type's name in Kafka's tools and documentation: `TransactionalId`."""
        return self.name.title().replace("_", "")


class Resource(NamedTuple):
    type: ResourceType
    name: str


CLUSTER_NAME = "kafka-cluster"  # for every broker's id: there is only one cluster

# TYPES: the type of a name by its meaning. TYPED_BESIDE: the meaning of the field beside it, and the type by its value.
TYPES = {
    Meaning.TOPIC: ResourceType.TOPIC,
    Meaning.GROUP: ResourceType.GROUP,
    Meaning.TRANSACTIONAL_ID: ResourceType.TRANSACTIONAL_ID,
}
# Of a broker, of its loggers and of client metrics the cluster is asked for.
RESOURCES_WITH_CONFIGS = {
    2: ResourceType.TOPIC, 4: ResourceType.CLUSTER, 8: ResourceType.CLUSTER, 16: ResourceType.CLUSTER,
    32: ResourceType.GROUP,
}  # fmt: skip
TYPED_BESIDE: dict[Meaning, tuple[Meaning, Mapping[int, ResourceType]]] = {
    Meaning.RESOURCE_NAME: (Meaning.RESOURCE_TYPE, RESOURCES_WITH_CONFIGS),
    Meaning.COORDINATOR_KEY: (
        Meaning.COORDINATOR_TYPE,
        {0: ResourceType.GROUP, 1: ResourceType.TRANSACTIONAL_ID},
    ),
}


class NameField(NamedTuple):
    """A field of names, as a column of its message: `types` is by the value at `type_place`, in the row around it."""

    path: tuple[int, ...]
    place: int | None
    type_place: int | None
    types: Mapping[Any, ResourceType]

    def resources(self, body: Any) -> Iterator[Resource]:
        around = self.path[:-1] if self.place is None else self.path
        for row in rows_at(body, around):
            resource_type = self.types.get(None if self.type_place is None else row[self.type_place])
            if resource_type is None:
                continue
            for name in (row[self.path[-1]] or ()) if self.place is None else (row[self.place],):
                if resource_type is ResourceType.CLUSTER:
                    yield Resource(resource_type, CLUSTER_NAME)
                elif isinstance(name, bytes):
                    yield Resource(resource_type, topic_id_text(name))
                elif name is not None:  # null: named by an id, or not named
                    yield Resource(resource_type, name)


def resources_named(message: Message, version: int, body: Any) -> Iterator[Resource]:
    """Yield each resource as often as it is named; none for a request for all of them."""
    for field in name_fields(message, version):
        yield from field.resources(body)


@cache
def name_fields(message: Message, version: int) -> list[NameField]:
    found = []
    for path, place, meaning in rows(message, version):
        if meaning in TYPES:
            found.append(NameField(path, place, None, {None: TYPES[meaning]}))
        elif meaning in TYPED_BESIDE:
            type_meaning, types = TYPED_BESIDE[meaning]
            around = path[:-1] if place is None else path
            found += [
                NameField(path, place, each.place, types)
                for each in rows(message)  # in a version without it, its default counts
                if (each.path, each.meaning) == (around, type_meaning)
            ]
    return found
