"""JSON Schema: checked by the package jsonschema, and compared by the rules of Confluent's registry.

A new schema reads old values if it allows all that the old one allows. Of an object that allows more properties than it
names, a property cannot be added: old values may have anything under its name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jsonschema import Draft7Validator, ValidationError
from jsonschema import SchemaError as NoSchema
from jsonschema.validators import validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT7

from minibroker.schemas.schema import Reason, SchemaError

# What may only grow, and what may only shrink; neither may be added.
UPPER = ("maxLength", "maximum", "exclusiveMaximum", "maxItems", "maxProperties")
LOWER = ("minLength", "minimum", "exclusiveMinimum", "minItems", "minProperties")
SUMS = ("anyOf", "oneOf")
COMBINATIONS = ("allOf", *SUMS)
ANNOTATIONS = {"$id", "$schema", "$comment", "title", "description", "default", "examples", "definitions", "$defs"}
ALL_TYPES = {"null", "boolean", "number", "string", "array", "object"}
WIDER = {"integer": "number"}
MISSING = object()


def parse(text: str, references: Mapping[str, str]) -> JsonSchema:
    """Raises SchemaError."""
    try:
        schema = json.loads(text)
        others = {name: json.loads(each) for name, each in references.items()}
        validator_for(schema, default=Draft7Validator).check_schema(schema)
    except NoSchema as error:
        raise SchemaError(f"{error.message} at {error.json_path}") from error
    except (ValueError, TypeError) as error:
        raise SchemaError(str(error)) from error
    return JsonSchema(schema, others)


class JsonSchema:
    """`others` are the schemas to which it refers, by their names."""

    def __init__(self, schema: Any, others: Mapping[str, Any]) -> None:
        self._schema = schema
        self._others = others

    @property
    def text(self) -> str:
        return json.dumps(self._schema, separators=(",", ":"), ensure_ascii=False)

    @property
    def identity(self) -> str:
        return self.text

    def normalized(self) -> str:
        return json.dumps(self._schema, separators=(",", ":"), ensure_ascii=False, sort_keys=True)

    def unreadable(self, writer: JsonSchema) -> Sequence[Reason]:
        return list(Comparison(writer, self).compare(writer._schema, self._schema, "#"))

    def decode(self, data: memoryview) -> Any:
        try:
            return json.loads(bytes(data))
        except (ValueError, RecursionError) as error:
            raise SchemaError(f"not JSON: {error}") from error

    def encode(self, value: Any) -> bytes:
        resources = [(name, DRAFT7.create_resource(each)) for name, each in self._others.items()]
        kind = validator_for(self._schema, default=Draft7Validator)
        try:
            kind(self._schema, registry=Registry().with_resources(resources)).validate(value)
        except ValidationError as error:
            raise SchemaError(f"{error.message} at {error.json_path}") from error
        except (Unresolvable, RecursionError) as error:  # a $ref to nothing, or to itself
            raise SchemaError(f"not to be checked by this schema: {error}") from error
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()

    def resolved(self, schema: Any) -> Any:
        """The schema behind its `$ref`s, as an object. Raises SchemaError."""
        for _ in range(100):
            if schema is True:
                return {}
            if not isinstance(schema, dict) or "$ref" not in schema:
                return schema
            schema = self._referred(str(schema["$ref"]))
        raise SchemaError("a $ref refers to itself")

    def _referred(self, reference: str) -> Any:
        name, _, pointer = reference.partition("#")
        found = self._others.get(name) if name and name != self._schema.get("$id") else self._schema
        try:
            for step in filter(None, pointer.split("/")):
                found = found[step.replace("~1", "/").replace("~0", "~")]  # type: ignore[index]
        except (KeyError, TypeError):
            found = None
        if found is None:
            raise SchemaError(f"$ref {reference} refers to nothing")
        return found


class Comparison:
    """Finds what a new schema no longer allows; schemas that contain themselves are compared once."""

    def __init__(self, old: JsonSchema, new: JsonSchema) -> None:
        self._old = old
        self._new = new
        self._begun: set[tuple[int, int]] = set()

    def compare(self, old: Any, new: Any, path: str) -> Iterator[Reason]:
        if (id(old), id(new)) in self._begun:
            return
        self._begun.add((id(old), id(new)))
        old, new = self._old.resolved(old), self._new.resolved(new)
        if old is False or is_empty(new):
            return
        if new is False or is_empty(old):
            yield reason("TYPE_CHANGED", path, "it allows less than everything")
            return
        of_old, of_new = combination_of(old), combination_of(new)
        if (of_old, of_new) != (None, None):
            yield from self._combined(old, new, of_old, of_new, path)
            return
        yield from self._allowed(old, new, path)
        for compare in (self._bounds, self._properties, self._items):
            yield from compare(old, new, path)

    def fits(self, old: Any, new: Any) -> bool:
        return next(Comparison(self._old, self._new).compare(old, new, ""), None) is None

    def _combined(self, old: Any, new: Any, of_old: str | None, of_new: str | None, path: str) -> Iterator[Reason]:
        olds, news = old.get(of_old, [old]), new.get(of_new, [new])
        if len(olds) == len(news) == 1:
            yield from self.compare(olds[0], news[0], path)
        elif (of_new in SUMS or len(news) == 1) and of_old in (None, *SUMS):
            for place, each in enumerate(olds):
                if not any(self.fits(each, other) for other in news):
                    yield reason(
                        "SUM_TYPE_NARROWED", f"{path}/{of_old}/{place}" if of_old else path, "no branch reads it"
                    )
        elif of_old == "allOf" and of_new in ("allOf", "anyOf", None):
            wanted = news if of_new == "allOf" else [new]
            for place, other in enumerate(wanted):
                if not any(self.fits(each, other) for each in olds):
                    yield reason("PRODUCT_TYPE_EXTENDED", f"{path}/{of_new}/{place}", "it is one condition more")
        else:
            yield reason("COMBINED_TYPE_CHANGED", path, f"{of_old or 'a type'} became {of_new or 'a type'}")

    def _allowed(self, old: Any, new: Any, path: str) -> Iterator[Reason]:
        lost = sorted(types_of(old) - types_of(new) - {each for each, wider in WIDER.items() if wider in types_of(new)})
        if lost:
            yield reason(
                "TYPE_CHANGED" if types_of(new) else "TYPE_NARROWED", path, f"it is no {' or '.join(lost)} any more"
            )
        before, after = values_of(old), values_of(new)
        if after is not None and (before is None or any(each not in after for each in before)):
            yield reason("ENUM_ARRAY_NARROWED" if before else "ENUM_ARRAY_ADDED", path, "it allows fewer values")
        if "not" in new and not ("not" in old and Comparison(self._new, self._old).fits(new["not"], old["not"])):
            yield reason("NOT_TYPE_EXTENDED", path, "it forbids more")

    def _bounds(self, old: Any, new: Any, path: str) -> Iterator[Reason]:
        for name in (*UPPER, *LOWER):
            before, after = old.get(name), new.get(name)
            if isinstance(after, bool):  # exclusiveMaximum of draft 4
                continue
            if after is not None and (before is None or (after < before if name in UPPER else after > before)):
                change = "ADDED" if before is None else "DECREASED" if name in UPPER else "INCREASED"
                yield reason(f"{in_capitals(name)}_{change}", f"{path}/{name}", f"{name} is {after} now")
        for name in ("pattern", "multipleOf", "uniqueItems"):
            before, after = old.get(name), new.get(name)
            if not after or after == before:
                continue
            if name == "multipleOf" and before is not None and before % after == 0:
                continue
            change = "ADDED" if before is None else "CHANGED"
            yield reason(f"{in_capitals(name)}_{change}", f"{path}/{name}", f"{name} is {after} now")

    def _properties(self, old: Any, new: Any, path: str) -> Iterator[Reason]:
        before, after = old.get("properties", {}), new.get("properties", {})
        for name in sorted({*before, *after}):
            at = f"{path}/properties/{name}"
            if name not in after:
                yield from self._removed(new, name, before[name], at)
            elif name not in before:
                yield from self._added(old, new, name, at)
            else:
                yield from self.compare(before[name], after[name], at)
                if is_required(new, name) and not is_required(old, name) and not has_default(after[name]):
                    yield reason(
                        "REQUIRED_ATTRIBUTE_ADDED", f"{path}/required/{name}", f"property {name} is required now"
                    )
        yield from self._rest(old, new, "additionalProperties", f"{path}/additionalProperties")
        for name, wanted in dependencies(new).items():
            if not set(wanted) <= set(dependencies(old).get(name, ())):
                yield reason("DEPENDENCY_ARRAY_EXTENDED", f"{path}/dependencies/{name}", f"with {name} it needs more")

    def _removed(self, new: Any, name: str, old: Any, at: str) -> Iterator[Reason]:
        """A property that the new schema no longer names: it must allow it all the same."""
        if is_open(new) or old is False:
            return
        rest = rest_for(new, name)
        if rest is False:
            yield reason("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", at, f"property {name} is not allowed any more")
        elif not self.fits(old, rest):
            yield reason(
                "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", at, f"property {name} does not fit"
            )

    def _added(self, old: Any, new: Any, name: str, at: str) -> Iterator[Reason]:
        """A property that the old schema did not name: what it allowed under its name must be allowed."""
        added = new["properties"][name]
        if is_open(old):
            if not is_empty(self._new.resolved(added)):
                yield reason("PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", at, f"property {name} could be anything before")
            return
        rest = rest_for(old, name)
        if rest is not False and not self.fits(rest, added):
            yield reason(
                "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", at, f"property {name} is narrower"
            )
        if is_required(new, name) and not has_default(added):
            yield reason(
                "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL", at, f"property {name} is required, without default"
            )

    def _items(self, old: Any, new: Any, path: str) -> Iterator[Reason]:
        before, after = old.get("items", MISSING), new.get("items", MISSING)
        first, second = self._tuple(old), self._tuple(new)
        if first or second:
            for place in range(max(len(first), len(second))):
                was = first[place] if place < len(first) else rest_of_items(old) if first else True
                now = second[place] if place < len(second) else rest_of_items(new)
                yield from self.compare(was, now, f"{path}/items/{place}")
            before, after = rest_of_items(old), rest_of_items(new)
        if after is MISSING or after is True:
            return
        yield from self.compare(True if before is MISSING else before, after, f"{path}/items")

    @staticmethod
    def _tuple(schema: Any) -> list[Any]:
        items = schema.get("prefixItems", schema.get("items"))
        return items if isinstance(items, list) else []

    def _rest(self, old: Any, new: Any, name: str, at: str) -> Iterator[Reason]:
        """Compare the schemas of all other properties, which may only allow more."""
        before, after = old.get(name, True), new.get(name, True)
        if after is True or before is False or (before == after):
            return
        if after is False:
            yield reason("ADDITIONAL_PROPERTIES_REMOVED", at, "it allows no other properties any more")
        elif before is True:
            yield reason("ADDITIONAL_PROPERTIES_NARROWED", at, "it allows fewer other properties")
        else:
            yield from self.compare(before, after, at)


def reason(kind: str, path: str, what: str) -> Reason:
    return Reason(kind, f"{what} (at {path})")


def in_capitals(name: str) -> str:
    return re.sub(r"([A-Z])", r"_\1", name).upper()


def combination_of(schema: Any) -> str | None:
    return next((each for each in COMBINATIONS if each in schema), None)


def is_empty(schema: Any) -> bool:
    """Whether it allows everything."""
    return schema is True or (isinstance(schema, dict) and not schema.keys() - ANNOTATIONS)


def is_open(schema: Any) -> bool:
    """Whether it allows any property beside the named ones."""
    return schema.get("additionalProperties", True) is True and not schema.get("patternProperties")


def rest_for(schema: Any, name: str) -> Any:
    """The schema for a property that is not named: of its pattern, or of all others."""
    for pattern, each in schema.get("patternProperties", {}).items():
        if re.search(pattern, name):
            return each
    return schema.get("additionalProperties", True)


def rest_of_items(schema: Any) -> Any:
    """The schema for the items behind the listed ones."""
    items = schema.get("items", True)
    return schema.get("additionalItems", True) if isinstance(items, list) else items


def is_required(schema: Any, name: str) -> bool:
    return name in schema.get("required", ())


def has_default(schema: Any) -> bool:
    return isinstance(schema, dict) and "default" in schema


def types_of(schema: Any) -> set[str]:
    types = schema.get("type", ALL_TYPES)
    return {types} if isinstance(types, str) else set(types)


def values_of(schema: Any) -> Sequence[Any] | None:
    return [schema["const"]] if "const" in schema else schema.get("enum")


def dependencies(schema: Any) -> dict[str, list[str]]:
    """The properties that others need beside them."""
    found = {**schema.get("dependencies", {}), **schema.get("dependentRequired", {})}
    return {name: each for name, each in found.items() if isinstance(each, list)}
