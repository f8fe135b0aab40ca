"""Kafka's wire types as constructs: the types of schemas, and the reference for tests of the generated codecs.

Lengths and counts are checked against the remaining bytes before any allocation: a count of two billion in a frame of
fifty bytes is an error. As in Kafka, any negative one is null where null is allowed, and bytes that are not UTF-8 are
read as U+FFFD; but not in a text that could not be written again then, as it would be too long for its length.

Strings, bytes and arrays change with a message's first flexible version (KIP-482): before it they have fixed-size
prefixes, from it on unsigned varints of length + 1, with 0 for null. Schemas name the type; `schema.py` asks it for the
construct of a version. Tagged fields follow at the end of their struct, and only those that are not at their defaults.

`TopicName`, `ErrorCode16` and the like are wire types with a meaning, such as a String that is the name of a topic. The
meaning does not change the wire format; it names the subject of a message for the code that derives rules from it.
"""

from __future__ import annotations

import base64
import codecs
import io
import re
from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple

from construct import Bytes as FixedBytes
from construct import (
    Construct,
    Flag,
    Float64b,
    FormatField,
    Int8sb,
    Int16sb,
    Int16ub,
    Int32sb,
    Int32ub,
    Int64sb,
    RangeError,
    StreamError,
    StringError,
    stream_read,
    stream_write,
)

__all__ = [
    "ApiKey16", "Boolean", "Bytes", "CoordinatorKey", "CoordinatorType", "ErrorCode16", "ErrorMessage", "Float64",
    "GroupId", "Int8sb", "Int16sb", "Int16ub", "Int32sb", "Int32ub", "Int64sb", "IsolationLevel8", "Meaning",
    "NullableBytes", "NullableString", "NullableTopicName", "NullableTransactionalId", "PartitionIndex", "ProducerId",
    "Records", "ResourceName", "ResourceType8", "SecretBytes", "Semantic", "String", "TopicById",
    "TopicId", "TopicName", "TopicPartition", "TransactionalId", "UnknownTopicById", "UnsignedVarInt", "UserName",
    "Uuid", "topic_id_text",
]  # fmt: skip

Boolean = Flag
Float64 = Float64b
# 16 bytes, as in `uuid.UUID.bytes`.
Uuid = FixedBytes(16)
ZERO_UUID = bytes(16)
LARGEST_VARINT = 2**31
LONGEST_STRING_BYTES = 32_767
SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")


def _replace_rest(error: UnicodeError) -> tuple[str, int]:
    """Replace all that is not UTF-8 from the first error on. Raises it if the text becomes too long."""
    assert isinstance(error, UnicodeDecodeError)
    # Java replaces the three bytes of a surrogate as one, like any other unit that is not allowed.
    rest = SURROGATE.sub(b"\xff", error.object[error.start :]).decode("utf-8", "replace")
    if error.start + len(rest.encode()) > LONGEST_STRING_BYTES:
        raise error
    return rest, len(error.object)


TEXT_ERRORS = "kafka"  # a handler of errors, as "replace" is
codecs.register_error(TEXT_ERRORS, _replace_rest)


# Makes a NamedTuple of a tuple of its fields: of one whose class is made at run time, such as a row of a message, for
# which its own constructor would be a function in Python. The compiled form calls it for `TopicPartition(...)` too.
new = tuple.__new__


class TopicPartition(NamedTuple):
    """The name of a partition."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TopicById(str):
    """The name of a topic that a client names by `topic_id`, which goes with it to the answer."""

    __slots__ = ("topic_id",)
    topic_id: bytes

    def __new__(cls, name: str, topic_id: bytes) -> TopicById:
        topic = super().__new__(cls, name)
        topic.topic_id = topic_id
        return topic


class UnknownTopicById(TopicById):
    """In place of a name that is not known; no topic can be called so."""

    __slots__ = ()

    def __new__(cls, topic_id: bytes) -> UnknownTopicById:
        return super().__new__(cls, f"id:{topic_id_text(topic_id)}", topic_id)  # type: ignore[return-value]


def topic_id_text(topic_id: bytes) -> str:
    """Write an id as Kafka does: 22 characters, base64url."""
    return base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode()


class Sized:
    """A string or bytes, after a length. `kind` is 'string', 'bytes' or 'records'."""

    def __init__(self, kind: str, *, is_nullable: bool) -> None:
        self.kind = kind
        self.is_nullable = is_nullable

    def __rtruediv__(self, name: str) -> tuple[str, Sized]:
        return (name, self)

    def construct(self, *, is_flexible: bool) -> Construct:
        if is_flexible:
            return SizedConstruct(CompactLength(), self)
        return SizedConstruct(Int16sb if self.kind == "string" else Int32sb, self)


String = Sized("string", is_nullable=False)
NullableString = Sized("string", is_nullable=True)
Bytes = Sized("bytes", is_nullable=False)
NullableBytes = Sized("bytes", is_nullable=True)


class Meaning(Enum):
    """The meaning of a field's value, independent of the field's name."""

    ERROR_CODE = "error code"
    ERROR_MESSAGE = "error message"
    TOPIC = "topic"
    TOPIC_ID = "topic id"
    PARTITION = "partition"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional id"
    PRODUCER_ID = "producer id"
    COORDINATOR_TYPE = "coordinator type"  # of the coordinator keys beside it
    COORDINATOR_KEY = "coordinator key"  # a group, or a transactional id
    RESOURCE_TYPE = "resource type"  # of the resource names beside it
    RESOURCE_NAME = "resource name"  # a topic, or a broker's id
    API_KEY = "API key"
    ISOLATION_LEVEL = "isolation level"
    CLIENT_ENTITY = "client entity"  # of quotas: a user, a client id, or both
    USER = "user"
    RECORDS = "records"
    SECRET = "secret"  # never in a transcript, a log or a message


class Semantic:
    """A wire type, or an array, with a meaning, for the declaration of a field."""

    def __init__(self, wire: Any, meaning: Meaning) -> None:
        self.wire = wire
        self.meaning = meaning

    def __rtruediv__(self, name: str) -> tuple[str, Semantic]:
        return (name, self)


# An opaque payload: decoded to a view of the frame, encoded as the given object.
Records = Semantic(Sized("records", is_nullable=True), Meaning.RECORDS)
ErrorCode16 = Semantic(Int16sb, Meaning.ERROR_CODE)
ErrorMessage = Semantic(NullableString, Meaning.ERROR_MESSAGE)
TopicName = Semantic(String, Meaning.TOPIC)
NullableTopicName = Semantic(NullableString, Meaning.TOPIC)
TopicId = Semantic(Uuid, Meaning.TOPIC_ID)
PartitionIndex = Semantic(Int32sb, Meaning.PARTITION)
GroupId = Semantic(String, Meaning.GROUP)
TransactionalId = Semantic(String, Meaning.TRANSACTIONAL_ID)
NullableTransactionalId = Semantic(NullableString, Meaning.TRANSACTIONAL_ID)
ProducerId = Semantic(Int64sb, Meaning.PRODUCER_ID)
CoordinatorType = Semantic(Int8sb, Meaning.COORDINATOR_TYPE)
CoordinatorKey = Semantic(String, Meaning.COORDINATOR_KEY)
ResourceType8 = Semantic(Int8sb, Meaning.RESOURCE_TYPE)
ResourceName = Semantic(String, Meaning.RESOURCE_NAME)
ApiKey16 = Semantic(Int16sb, Meaning.API_KEY)
IsolationLevel8 = Semantic(Int8sb, Meaning.ISOLATION_LEVEL)
UserName = Semantic(String, Meaning.USER)
SecretBytes = Semantic(Bytes, Meaning.SECRET)


def bytes_left(stream: io.BytesIO) -> int:
    return int(stream.getbuffer().nbytes - stream.tell())


def as_int32(value: int) -> int:
    """Return the signed number of the value's low 32 bits."""
    return ((value + 2**31) & 0xFFFFFFFF) - 2**31


def parse_varint(stream: Any, path: str) -> int:
    """Parse seven bits a byte, the lowest first; five bytes at most. Above the greatest length + 1 it is negative."""
    value = 0
    for shift in range(0, 35, 7):
        byte: int = stream_read(stream, 1, path)[0]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value if value <= LARGEST_VARINT else as_int32(value)
    raise RangeError("varint too long", path=path)


class UnsignedVarIntConstruct(Construct):  # type: ignore[misc]
    """A tag, a size or a number of tagged fields, not above the greatest length + 1."""

    def _parse(self, stream: Any, context: Any, path: str) -> int:
        value = parse_varint(stream, path)
        if value < 0:
            raise RangeError(f"varint {value} out of range", path=path)
        return value

    def _build(self, obj: int, stream: Any, context: Any, path: str) -> int:
        left = obj
        while left > 0x7F:
            stream_write(stream, bytes((left & 0x7F | 0x80,)), 1, path)
            left >>= 7
        stream_write(stream, bytes((left,)), 1, path)
        return obj


UnsignedVarInt = UnsignedVarIntConstruct()


class CompactLength(Construct):  # type: ignore[misc]
    """An unsigned varint holding length + 1; 0 is null, here -1, and so is one above the greatest length + 1."""

    def _parse(self, stream: Any, context: Any, path: str) -> int:
        return parse_varint(stream, path) - 1

    def _build(self, obj: int, stream: Any, context: Any, path: str) -> int:
        UnsignedVarInt._build(obj + 1, stream, context, path)
        return obj


class SizedConstruct(Construct):  # type: ignore[misc]
    """Length, then that many bytes."""

    def __init__(self, length: Construct, sized: Sized) -> None:
        super().__init__()
        self._length = length
        self._sized = sized

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        length = self._length._parsereport(stream, context, path)
        if length < 0 and self._sized.is_nullable:
            return None
        if length < 0:
            raise RangeError(f"length {length} is negative", path=path)
        if self._sized.kind == "string" and length > LONGEST_STRING_BYTES:
            raise RangeError(f"a string of {length} bytes", path=path)
        if length > bytes_left(stream):
            raise StreamError(f"length {length} is more than the {bytes_left(stream)} bytes left", path=path)
        data = stream_read(stream, length, path)
        if self._sized.kind != "string":
            return data
        try:
            return data.decode("utf-8", TEXT_ERRORS)
        except UnicodeDecodeError as error:
            raise StringError(f"not UTF-8: {error.reason}", path=path) from error

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        if obj is None:
            if not self._sized.is_nullable:
                raise StringError("null where the schema has none", path=path)
            self._length._build(-1, stream, context, path)
            return None
        data = obj.encode("utf-8") if self._sized.kind == "string" else bytes(obj)
        self._length._build(len(data), stream, context, path)
        stream_write(stream, data, len(data), path)
        return obj


class ArrayConstruct(Construct):  # type: ignore[misc]
    """Count, then that many elements."""

    def __init__(self, count: Construct, element: Construct, *, is_nullable: bool) -> None:
        super().__init__()
        self._count = count
        self._element = element
        self._is_nullable = is_nullable

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        count = self._count._parsereport(stream, context, path)
        if count < 0 and self._is_nullable:
            return None
        if count < 0:
            raise RangeError(f"count {count} is negative", path=path)
        if count > bytes_left(stream):
            raise RangeError(f"count {count} is more than the {bytes_left(stream)} bytes left", path=path)
        return [self._element._parsereport(stream, context, f"{path}[{index}]") for index in range(count)]

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        if obj is None:
            if not self._is_nullable:
                raise RangeError("null where the schema has none", path=path)
            self._count._build(-1, stream, context, path)
            return None
        self._count._build(len(obj), stream, context, path)
        for index, element in enumerate(obj):
            self._element._build(element, stream, context, f"{path}[{index}]")
        return obj


class NullableConstruct(Construct):  # type: ignore[misc]
    """A struct that may be null. The byte in front of it is `null` then, else 1."""

    def __init__(self, struct: Construct, null: int) -> None:
        super().__init__()
        self._struct = struct
        self._null = null

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        return (
            None
            if Int8sb._parsereport(stream, context, path) <= 0
            else self._struct._parsereport(stream, context, path)
        )

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        Int8sb._build(self._null if obj is None else 1, stream, context, path)
        return obj if obj is None else self._struct._build(obj, stream, context, path)


class TaggedField(NamedTuple):
    """A field that is on the wire only if it is not at its default."""

    name: str
    construct: Construct
    default: Any

    def is_at_default(self, value: Any) -> bool:
        """Whether the value is the default; any empty sequence is, for an array."""
        return bool(plain(value) == self.default)


def plain(value: Any) -> Any:
    """A list or a mapping, as construct has an array or a row, as a tuple."""
    if isinstance(value, Mapping):
        return tuple(plain(each) for name, each in value.items() if name != "_tagged_fields")
    return tuple(value) if isinstance(value, list) else value


class TaggedFieldsConstruct(Construct):  # type: ignore[misc]
    """The end of each struct in a flexible version: its tagged fields, by name. Unknown tags are skipped."""

    def __init__(self, fields: Mapping[int, TaggedField]) -> None:
        super().__init__()
        self._fields = fields

    def _parse(self, stream: Any, context: Any, path: str) -> dict[str, Any]:
        values = {field.name: field.default for field in self._fields.values()}
        for _ in range(UnsignedVarInt._parsereport(stream, context, path)):
            tag = UnsignedVarInt._parsereport(stream, context, path)
            size = UnsignedVarInt._parsereport(stream, context, path)
            if size > bytes_left(stream):
                raise StreamError(f"tagged field of {size} bytes, {bytes_left(stream)} left", path=path)
            data = stream_read(stream, size, path)
            field = self._fields.get(tag)
            if field is not None:
                values[field.name] = self._parse_whole(field, data, context, path)
        return values

    def _parse_whole(self, field: TaggedField, data: bytes, context: Any, path: str) -> Any:
        stream = io.BytesIO(data)
        value = field.construct._parsereport(stream, context, f"{path} -> {field.name}")
        if bytes_left(stream):
            raise StreamError(f"{bytes_left(stream)} bytes follow the tagged field {field.name}", path=path)
        return value

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        fields = sorted(self._fields.items())
        given = [(tag, field) for tag, field in fields if not field.is_at_default(obj[field.name])]
        UnsignedVarInt._build(len(given), stream, context, path)
        for tag, field in given:
            data = field.construct.build(obj[field.name])
            UnsignedVarInt._build(tag, stream, context, path)
            UnsignedVarInt._build(len(data), stream, context, path)
            stream_write(stream, data, len(data), path)
        return obj


def format_of(fixed: Construct) -> str | None:
    """The `struct` format of a fixed-size field, or None."""
    if isinstance(fixed, FormatField):
        return str(fixed.fmtstr[1:])
    if fixed is Uuid:
        return "16s"
    return "?" if fixed is Boolean else None
