"""Every message in every version: the generated codec says what the interpreted construct says, byte for byte."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from build_tools.compiled_form import listed
from minibroker.protocol.codegen_module import families
from minibroker.protocol.errors import KafkaProtocolError
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.primitives import Sized
from minibroker.protocol.schema import Array, Field, Message
from tests.protocol.memory import no_more_memory_than
from tests.protocol.message_values import (
    VERSIONS,
    as_mapping,
    interpreted_decode,
    interpreted_encode,
    interpreted_rejects,
    name_of,
    sample,
    values,
)

# Those that the compiled form has compiled codecs of; of the others both forms run the same generated Python.
WRITTEN = {
    message.name
    for family in map(families().get, listed().codecs)
    if family is not None
    for message in (*family.decoded, *family.encoded)
}


def cases(of: Sequence[tuple[Message, int]]) -> pytest.MarkDecorator:
    marked = [pytest.param(*case, marks=[] if case[0].name in WRITTEN else [pytest.mark.pure]) for case in of]
    return pytest.mark.parametrize(("message", "version"), marked, ids=name_of)


every_version = cases(VERSIONS)
# The first and last versions, and those at which the encoding changes: between them a field comes or goes, and
# test_codegen_module.py has every version.
at_the_ends = pytest.mark.sample(
    of=lambda message, version: (
        version in (message.first_version, message.last_version)
        or message.is_flexible(version) != message.is_flexible(version - 1)
    )
)
QUICK = settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
LARGEST = 2**31 - 1
# A decoder that believed a count of 2**31 - 1 would ask for gigabytes; refusing one takes a message and a traceback.
REFUSAL_BYTES = 1024 * 1024


def generated_encode(message: Message, version: int, value: Any) -> bytes:
    return b"".join(bytes(chunk) for chunk in message.encode(version, value))


@pytest.mark.pure  # test_codegen_module.py compares compiled codecs with both
@at_the_ends
@every_version
def test_generated_codec_equals_the_interpreted_one(message: Message, version: int) -> None:
    @QUICK
    @given(value=values(message, version), trailing=st.binary(max_size=5))
    def check(value: Any, trailing: bytes) -> None:
        encoded = generated_encode(message, version, value)
        assert encoded == interpreted_encode(message, version, value)

        decoded = message.decode(version, bytearray(encoded + trailing))
        assert decoded == (value, len(encoded))
        assert interpreted_decode(message, version, encoded + trailing) == value

    check()


@at_the_ends
@every_version
def test_message_cut_short_anywhere_is_refused(message: Message, version: int) -> None:
    encoded = generated_encode(message, version, sample(message, version))

    for size in cuts(len(encoded), at_most=400):
        with pytest.raises(KafkaProtocolError, match=f"^{message.name} v{version}: "):
            message.decode(version, bytearray(encoded[:size]))
    for size in cuts(len(encoded), at_most=40):  # the reference is much slower
        assert interpreted_rejects(message, version, encoded[:size])


def cuts(length: int, *, at_most: int) -> range:
    """Return where to cut a message of this length: everywhere, or evenly at so many places."""
    return range(0, length, length // at_most + 1)


@every_version
def test_damaged_message_is_refused_by_both_codecs_or_by_none(message: Message, version: int) -> None:
    encoded = generated_encode(message, version, sample(message, version))
    chance = random.Random(f"{message.name} {version}")

    for _ in range(40):
        damaged = bytearray(encoded)
        for _ in range(chance.randint(1, 3)):
            if damaged:
                damaged[chance.randrange(len(damaged))] = chance.choice((0, 1, 0x7F, 0x80, 0xFE, 0xFF))
        try:
            value, position = message.decode(version, damaged)
        except KafkaProtocolError:
            assert interpreted_rejects(message, version, bytes(damaged)), damaged.hex()
        else:
            assert position <= len(damaged)
            assert interpreted_decode(message, version, bytes(damaged)) == value


def live_fields(fields: Sequence[Field], version: int, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Paths of the fields of a version that have a length or a count; `[]` is an element of an array."""
    for field in fields:
        if not field.is_in(version) or field.tag is not None or not isinstance(field.kind_in(version), Array | Sized):
            continue
        here = (*path, field.name)
        yield here
        if isinstance(field.kind, Array):
            if isinstance(field.kind.element, Sized):
                yield (*here, "[]")
            yield from live_fields(field.kind.fields, version, here)


def bytes_before(message: Message, version: int, path: tuple[str, ...]) -> tuple[bytes, Any]:
    """A message up to the prefix of the field at `path`, in the first row of each array; and that field's kind."""
    is_flexible = message.is_flexible(version)
    one = b"\x02" if is_flexible else b"\0\0\0\1"
    encoded, fields, row = b"", message.fields, sample(message, version)
    for name in path:
        if name == "[]":
            break
        mapping = as_mapping(fields, row)
        names = [field.name for field in fields]
        for field in fields[: names.index(name)]:
            if field.is_in(version) and field.tag is None:
                encoded += field.construct(version, is_flexible=is_flexible).build(mapping[field.name])
        kind, value = fields[names.index(name)].kind_in(version), row[names.index(name)]
        if name != path[-1]:
            encoded += one
            fields, row = kind.fields, value[0]
    return encoded, kind.element if path[-1] == "[]" else kind


def prefixes(message: Message, version: int, kind: Any) -> list[bytes]:
    """Lengths and counts that no honest message of a few bytes has."""
    if message.is_flexible(version):  # length + 1, so 0 is null
        lies = [b"\xff\xff\xff\xff\x07", b"\x80\x80\x80\x80\x08", b"\x7f", b"\xff" * 9]
        return lies if kind.is_nullable else [*lies, b"\0", b"\xff\xff\xff\xff\x0f"]
    size = 2 if isinstance(kind, Sized) and kind.kind == "string" else 4
    largest = (1 << (8 * size - 1)) - 1
    numbers = [largest, 1000]
    if not kind.is_nullable:
        numbers += [-largest - 1, -2, -1]
    return [number.to_bytes(size, "big", signed=True) for number in numbers]


def lying_frames(message: Message, version: int) -> Iterator[bytearray]:
    """Frames in which one length or count lies, for each of those there are."""
    for path in live_fields(message.fields, version):
        before, kind = bytes_before(message, version, path)
        for prefix in prefixes(message, version, kind):
            yield bytearray(before + prefix + b"\0" * 8)


@every_version
def test_length_or_count_beyond_the_frame_is_refused(message: Message, version: int) -> None:
    for frame in lying_frames(message, version):
        with pytest.raises(KafkaProtocolError):
            message.decode(version, frame)
        assert interpreted_rejects(message, version, bytes(frame)), frame.hex()


@cases([case for case in VERSIONS if case[1] == case[0].last_version])
def test_refusing_a_lying_count_takes_no_memory(message: Message, version: int) -> None:
    frames = list(lying_frames(message, version))

    def refuse(some: Sequence[bytes | bytearray]) -> None:
        for frame in some:
            with suppress(KafkaProtocolError):  # pytest.raises would keep each until its cycle is found
                message.decode(version, frame)
                pytest.fail(f"{frame.hex()} is read")

    refuse(frames[:1])  # which makes the decoder
    with no_more_memory_than(REFUSAL_BYTES + 4 * sum(map(len, frames))):
        refuse(frames)


@every_version
def test_text_that_is_not_utf8_is_no_reason_to_refuse_a_message(message: Message, version: int) -> None:
    for path in live_fields(message.fields, version):
        before, kind = bytes_before(message, version, path)
        if isinstance(kind, Sized) and kind.kind == "string":
            prefix = b"\x03" if message.is_flexible(version) else b"\0\2"
            text, wrong = (before + prefix + two + b"\0" * 64 for two in (b"c(", b"\xc3("))
            if interpreted_rejects(message, version, text):
                assert interpreted_rejects(message, version, wrong)
            else:
                value, _ = message.decode(version, wrong)
                assert value == interpreted_decode(message, version, wrong)
                assert "\ufffd(" in repr(value)


@pytest.mark.parametrize(
    ("version", "data", "topics", "may_create"),
    [
        (0, "00000000", [], True),
        (1, "ffffffff", None, True),
        (1, "00000000", [], True),
        (3, "00000000", [], True),
        (4, "00000000 00", [], False),
    ],
)
def test_metadata_request_for_all_topics_is_empty_in_v0_and_null_from_v1_and_forbids_creation_from_v4(
    version: int, data: str, topics: list[str] | None, may_create: bool
) -> None:
    request, _ = MetadataRequest.decode(version, bytes.fromhex(data))

    assert (request.topics, request.allow_auto_topic_creation) == (topics, may_create)


def test_fetch_v0_request_leaves_later_fields_at_their_defaults() -> None:
    frame = bytes.fromhex("ffffffff 000001f4 00000001 00000001 0001 74 00000001 00000002 0000000000000009 00000400")

    request, _ = FetchRequest.decode(0, frame)

    assert request == (-1, 500, 1, LARGEST, 0, 0, -1, [("t", [(2, -1, 9, -1, -1, 1024)])], (), "", None)
    assert request.topics[0].partitions[0].log_start_offset == -1


def test_large_malformed_request_is_not_interpreted_to_explain_it(monkeypatch: pytest.MonkeyPatch) -> None:
    request = FetchRequest(topics=[("t", [(partition, -1, 0, -1, 0, 1) for partition in range(1000)])])
    frame = generated_encode(FetchRequest, 8, request).replace(b"\0\0\3\xe8", b"\0\0\x10\0", 1)
    monkeypatch.setattr(Message, "struct", None)

    with pytest.raises(KafkaProtocolError, match=r"^FetchRequest v8: rows of topics\.partitions$"):
        FetchRequest.decode(8, frame)
