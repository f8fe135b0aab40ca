"""Protobuf: .proto text, read by proto-schema-parser, or a FileDescriptorProto in base64, as clients of Python send it.

A text is kept as it was written. Two schemas are the same if they describe the same file, without comments and spaces.
The rules of compatibility are those of Confluent's registry: of the wire, less what programs would notice.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any

from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from minibroker.schemas import proto_file
from minibroker.schemas.schema import Reason, SchemaError

NAME = "default.proto"
Field = descriptor_pb2.FieldDescriptorProto
WELL_KNOWN = "any source_context type api descriptor duration empty field_mask struct timestamp wrappers".split()
# The types that are alike on the wire; an enum is a number there.
ALIKE = [
    {Field.TYPE_INT32, Field.TYPE_INT64, Field.TYPE_UINT32, Field.TYPE_UINT64, Field.TYPE_BOOL, Field.TYPE_ENUM},
    {Field.TYPE_SINT32, Field.TYPE_SINT64},
    {Field.TYPE_STRING, Field.TYPE_BYTES},
    {Field.TYPE_FIXED32, Field.TYPE_SFIXED32},
    {Field.TYPE_FIXED64, Field.TYPE_SFIXED64},
]
MESSAGES = (Field.TYPE_MESSAGE, Field.TYPE_GROUP)
WITH_LENGTH = (Field.TYPE_STRING, Field.TYPE_BYTES, *MESSAGES)
NESTING_MAX = 32  # of messages in each other; as protoc
NOT_HERE = ("google/", "confluent/")  # imports that Confluent's registry has itself


def parse(text: str, references: Mapping[str, str]) -> ProtobufSchema:
    """Raises SchemaError."""
    pool = DescriptorPool()
    for name, each in references.items():
        if not is_well_known(name):
            built(pool, name, file_of(each)[0])
    file, is_text = file_of(text)
    complete = built(pool, NAME, file)
    return ProtobufSchema(text.strip() if is_text else proto_file.text_of(complete), complete, pool)


def file_of(text: str) -> tuple[Any, bool]:
    """Read a schema, and whether it was a text. Raises SchemaError."""
    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
        if file.ByteSize():
            return file, False
    except (binascii.Error, DecodeError, ValueError):
        pass
    return proto_file.read(text), True


def depth_of(message: Any) -> int:
    return 1 + max(map(depth_of, message.nested_type), default=0)


def built(pool: Any, name: str, file: Any) -> Any:
    """Add a file to the pool; return it with complete names of types. Raises SchemaError."""
    file.MergeFrom(descriptor_pb2.FileDescriptorProto(name=name))
    for each in file.message_type:
        if depth_of(each) > NESTING_MAX:
            raise SchemaError(f"messages are nested deeper than {NESTING_MAX}")
        proto_file.put_entries_last(each)
    if any(each.startswith(NOT_HERE) and not is_well_known(each) for each in file.dependency):
        return file
    try:
        add_imported(pool, file)
        pool.Add(file)
        found = descriptor_pb2.FileDescriptorProto()
        pool.FindFileByName(name).CopyToProto(found)
    except (TypeError, KeyError) as error:
        raise SchemaError(" ".join(str(error).split())) from error
    return found


def add_imported(pool: Any, file: Any) -> None:
    """Add the well-known files that a file imports."""
    for name in file.dependency:
        if is_well_known(name):
            add_imported(pool, well_known(name))
            pool.Add(well_known(name))


def is_well_known(name: str) -> bool:
    """Whether every schema may import the file of this name."""
    return name.removeprefix("google/protobuf/").removesuffix(".proto") in WELL_KNOWN


@cache
def well_known(name: str) -> Any:
    file = descriptor_pb2.FileDescriptorProto()
    import_module(f"{name.removesuffix('.proto').replace('/', '.')}_pb2").DESCRIPTOR.CopyToProto(file)
    return file


class ProtobufSchema:
    """A file in a pool with the files that it imports."""

    def __init__(self, text: str, file: Any, pool: Any) -> None:
        self._text = text
        self._file = file
        self._pool = pool

    @property
    def text(self) -> str:
        return self._text

    @property
    def identity(self) -> str:
        return self.serialized()

    def serialized(self) -> str:
        """The file in base64, for clients that have no parser."""
        return base64.b64encode(self._file.SerializeToString(deterministic=True)).decode()

    def normalized(self) -> str:
        file = descriptor_pb2.FileDescriptorProto()
        file.CopyFrom(self._file)
        proto_file.sort(file)
        return proto_file.text_of(file)

    def unreadable(self, writer: ProtobufSchema) -> Sequence[Reason]:
        old, new = writer._file, self._file
        found = list(compare_messages(old.message_type, new.message_type, "#"))
        before, after = writer._imported(), self._imported()
        for name in sorted(before.keys() & after.keys()):
            found += compare_messages([before[name]], [after[name]], f"#/{name.rpartition('.')[0]}")
        if old.package != new.package:
            found.insert(0, Reason("PACKAGE_CHANGED", f"package {old.package} became {new.package}"))
        return found

    def _imported(self) -> dict[str, Any]:
        """The messages of other files that fields have, and those in them, by their complete names."""
        found: dict[str, Any] = {}
        try:
            left = list(self._pool.FindFileByName(NAME).message_types_by_name.values())
        except KeyError:  # it imports what is not here
            return found
        while left:
            message = left.pop()
            left += message.nested_types
            for each in [field.message_type for field in message.fields if field.message_type is not None]:
                if each.file.name != NAME and each.full_name not in found:
                    found[each.full_name] = descriptor_pb2.DescriptorProto()
                    each.CopyToProto(found[each.full_name])
                    left.append(each)
        return found

    def decode(self, data: memoryview) -> Any:
        from google.protobuf import json_format  # which a registry does without

        indexes, start = indexes_of(data)
        try:
            found = self._descriptor(indexes)
            message = message_factory.GetMessageClass(found).FromString(bytes(data[start:]))
            return json_format.MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=self._pool)
        except (DecodeError, IndexError, KeyError, ValueError, json_format.Error) as error:
            raise SchemaError(f"not a message of this schema: {error}") from error

    def encode(self, value: Any) -> bytes:
        """Encode a value as the first message of the file."""
        from google.protobuf import json_format

        try:
            message = message_factory.GetMessageClass(self._descriptor([0]))()
            json_format.ParseDict(value, message, descriptor_pool=self._pool)
            return b"\0" + bytes(message.SerializeToString())
        except (json_format.Error, IndexError, KeyError, TypeError, AttributeError) as error:
            raise SchemaError(str(error)) from error

    def _descriptor(self, indexes: Sequence[int]) -> Any:
        """The message that the indexes lead to, from the file inwards. Raises IndexError."""
        place = self._file.message_type[indexes[0]]
        names = [place.name]
        for each in indexes[1:]:
            place = place.nested_type[each]
            names.append(place.name)
        return self._pool.FindMessageTypeByName(".".join(filter(None, [self._file.package, *names])))


def indexes_of(data: memoryview) -> tuple[list[int], int]:
    """The way to a record's message, and where the message begins. Raises SchemaError."""
    count, place = number_at(data, 0)
    if count == 0:  # short for the first message
        return [0], place
    indexes = []
    for _ in range(count):
        index, place = number_at(data, place)
        indexes.append(index)
    return indexes, place


def number_at(data: memoryview, place: int) -> tuple[int, int]:
    """A zigzag number of variable length, and the place behind it. Raises SchemaError."""
    number = shift = 0
    for at, byte in enumerate(data[place : place + 5], place):
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return number >> 1 ^ -(number & 1), at + 1
    raise SchemaError("the record ends before its message begins")


# -- compatibility --------------------------------------------------------------------------------------------


def compare_messages(old: Sequence[Any], new: Sequence[Any], path: str) -> Iterator[Reason]:
    """Find what a reader with the new messages cannot read of the old ones."""
    after = {each.name: each for each in new}
    for message in old:
        if message.options.map_entry:
            continue
        at = f"{path}/{message.name}"
        if message.name not in after:
            yield Reason("MESSAGE_REMOVED", f"message {message.name} is gone (at {at})")
            continue
        other = after[message.name]
        yield from compare_fields(message, other, at)
        yield from compare_oneofs(message, other, at)
        yield from compare_messages(message.nested_type, other.nested_type, at)


def compare_fields(old: Any, new: Any, path: str) -> Iterator[Reason]:
    before, after = ({each.number: each for each in message.field} for message in (old, new))
    for number in sorted({*before, *after}):
        was, now = before.get(number), after.get(number)
        at = f"(at {path}/{number})"
        if was is None or now is None:
            field, change = was or now, "ADDED" if was is None else "REMOVED"
            assert field is not None
            if field.label == Field.LABEL_REQUIRED:
                yield Reason(
                    f"REQUIRED_FIELD_{change}", f"field {field.name} is required, and was {change.lower()} {at}"
                )
            continue
        yield from compare_field(old, new, was, now, at)


def compare_field(old: Any, new: Any, was: Any, now: Any, at: str) -> Iterator[Reason]:
    entries = entry_of(old, was), entry_of(new, now)
    if None not in entries:
        for one, other in zip(entries[0].field, entries[1].field, strict=True):
            yield from compare_field(entries[0], entries[1], one, other, at)
    elif was.type != now.type:
        if not any({was.type, now.type} <= each for each in ALIKE):
            is_scalar = was.type not in MESSAGES and now.type not in MESSAGES
            kind = "FIELD_SCALAR_KIND_CHANGED" if is_scalar else "FIELD_KIND_CHANGED"
            yield Reason(kind, f"field {now.name} was {type_name(was)}, and is {type_name(now)} {at}")
    elif was.type_name != now.type_name and was.type in MESSAGES:
        yield Reason("FIELD_NAMED_TYPE_CHANGED", f"field {now.name} was {type_name(was)}, and is {type_name(now)} {at}")
    if was.type not in WITH_LENGTH and (was.label == Field.LABEL_REPEATED) != (now.label == Field.LABEL_REPEATED):
        yield Reason("FIELD_NUMERIC_LABEL_CHANGED", f"field {now.name} is repeated in one of them alone {at}")


def compare_oneofs(old: Any, new: Any, path: str) -> Iterator[Reason]:
    before, after = oneofs_of(old), oneofs_of(new)
    for name in before.keys() & after.keys():
        for field in old.field:
            if field.number in before[name] - after[name]:
                yield Reason("ONEOF_FIELD_REMOVED", f"field {field.name} left its oneof (at {path}/{name})")
    free = {each.number for each in old.field if not in_oneof(each)}
    for name, numbers in after.items():
        moved = sorted(numbers & free)
        if len(moved) > 1 or (moved and name in before):
            fields = ", ".join(each.name for each in new.field if each.number in moved)
            kind = "MULTIPLE_FIELDS_MOVED_TO_ONEOF" if len(moved) > 1 else "FIELD_MOVED_TO_EXISTING_ONEOF"
            yield Reason(kind, f"of the fields {fields} only one may be set now (at {path}/{name})")


def oneofs_of(message: Any) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for field in message.field:
        if in_oneof(field):
            found.setdefault(message.oneof_decl[field.oneof_index].name, set()).add(field.number)
    return found


def in_oneof(field: Any) -> bool:
    return bool(field.HasField("oneof_index")) and not field.proto3_optional


def entry_of(message: Any, field: Any) -> Any:
    """The message type of a map field's entries, None for any other field."""
    name = field.type_name.rpartition(".")[2]
    return next((each for each in message.nested_type if each.options.map_entry and each.name == name), None)


def type_name(field: Any) -> str:
    return str(field.type_name.lstrip(".") or proto_file.TYPE_NAMES[field.type])
