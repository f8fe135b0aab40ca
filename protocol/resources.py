"""Which resources a message names, read off its declaration: topics, groups, transactional ids, the cluster.

It is what an authorizer has to ask about a request, and what a transcript calls it. A name whose type is in a field
beside it (of a config resource, of coordinator keys) has the type that this says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from functools import cache
from typing import Any, NamedTuple

from minibroker.protocol.primitives import Meaning
from minibroker.protocol.schema import Array, Field, Message, place_of


class ResourceType(IntEnum):
    """What rights are given for, in Kafka's numbers."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


class Resource(NamedTuple):
    type: ResourceType
    name: str


CLUSTER_NAME = "kafka-cluster"  # the only one there is, whichever broker is named

# The type of a name by its meaning; or the meaning of the field beside it, and the type for each of its values.
TYPES = {
    Meaning.TOPIC: ResourceType.TOPIC,
    Meaning.GROUP: ResourceType.GROUP,
    Meaning.TRANSACTIONAL_ID: ResourceType.TRANSACTIONAL_ID,
}
TYPED_BESIDE: dict[Meaning, tuple[Meaning, Mapping[int, ResourceType]]] = {
    Meaning.RESOURCE_NAME: (Meaning.RESOURCE_TYPE, {2: ResourceType.TOPIC, 4: ResourceType.CLUSTER}),
    Meaning.COORDINATOR_KEY: (
        Meaning.COORDINATOR_TYPE,
        {0: ResourceType.GROUP, 1: ResourceType.TRANSACTIONAL_ID},
    ),
}


class NameField(NamedTuple):
    """A field of names: `rows` leads to its row, array by array; `types` is by the value at `type_place`."""

    rows: tuple[int, ...]
    place: int
    is_array: bool
    type_place: int | None
    types: Mapping[Any, ResourceType]

    def resources(self, body: Any) -> Iterator[Resource]:
        rows = [body]
        for place in self.rows:
            rows = [inner for row in rows for inner in row[place] or ()]
        for row in rows:
            resource_type = self.types.get(None if self.type_place is None else row[self.type_place])
            if resource_type is None:
                continue
            value = row[self.place]
            for name in (value or ()) if self.is_array else (value,):
                if resource_type is ResourceType.CLUSTER:
                    yield Resource(resource_type, CLUSTER_NAME)
                elif name is not None:  # null: named by an id, or not at all
                    yield Resource(resource_type, name)


def resources_named(message: Message, version: int, body: Any) -> Iterator[Resource]:
    """Each as often as it is named. What asks for all there are, by null or by nothing, names none."""
    for field in name_fields(message, version):
        yield from field.resources(body)


def resource_types(message: Message) -> set[ResourceType]:
    """The types that a message can name in one of its versions."""
    versions = range(message.first_version, message.last_version + 1)
    return {each for version in versions for field in name_fields(message, version) for each in field.types.values()}


@cache
def name_fields(message: Message, version: int) -> list[NameField]:
    return list(walk_names(message.fields, version, ()))


def walk_names(fields: Sequence[Field], version: int, rows: tuple[int, ...]) -> Iterator[NameField]:
    for place, field in enumerate(fields):
        if not field.is_in(version):
            continue
        is_array = isinstance(field.kind, Array)
        if field.meaning in TYPES:
            yield NameField(rows, place, is_array, None, {None: TYPES[field.meaning]})
        elif field.meaning in TYPED_BESIDE:
            type_meaning, types = TYPED_BESIDE[field.meaning]
            type_place = place_of(fields, type_meaning)
            if type_place is not None:
                yield NameField(rows, place, is_array, type_place, types)
        elif is_array:
            yield from walk_names(field.kind.fields, version, (*rows, place))
