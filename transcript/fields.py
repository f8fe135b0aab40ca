"""A request or response as its declaration has it: its fields in their order, its records, the resources it names.

Pure, and the same for every API: it knows only the kind and the meaning of a field. Text and JSON are both made from
`Shape`: a field with its value, and the rows of fields below it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from minibroker.protocol.api import API_TABLE, ApiKey
from minibroker.protocol.batches import BatchView, batch_is_valid, iter_all_records, scan_batches
from minibroker.protocol.errors import ErrorCode, KafkaError, KafkaProtocolError
from minibroker.protocol.facts import Row, batch_row, crc_of, record_row
from minibroker.protocol.message_rows import columns
from minibroker.protocol.primitives import Meaning, Uuid, topic_id_text
from minibroker.protocol.record_batch import RECORD_BATCH_OVERHEAD
from minibroker.protocol.resources import Resource, ResourceType, resources_named
from minibroker.protocol.schema import Array, Field, Message
from minibroker.protocol.schema import Row as RowKind
from minibroker.protocol.text import counted, shown
from minibroker.transcript.exchanges import Exchange

MAX_DECOMPRESSED_BYTES = 16 * 1024 * 1024
# The names of numbers, by what the field means.
NUMBER_NAMES: dict[Meaning, Mapping[int, str]] = {
    Meaning.ERROR_CODE: {code.value: code.name for code in ErrorCode},
    Meaning.API_KEY: {key: api.name for key, api in API_TABLE.items()},
    Meaning.ISOLATION_LEVEL: {0: "read_uncommitted", 1: "read_committed"},
    Meaning.COORDINATOR_TYPE: {0: "group", 1: "transaction"},
    Meaning.RESOURCE_TYPE: {2: "topic", 4: "broker"},
}


class Shape(NamedTuple):
    """A field: a plain value, or `rows` of fields; `is_list` if the number of rows varies."""

    name: str
    value: Any
    meaning: Meaning | None = None
    rows: Sequence[Sequence[Shape]] = ()
    is_list: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether its value is all of it, as of a null or empty field."""
        return not self.rows and not (isinstance(self.value, RecordsValue) and self.value.data)

    @property
    def number_name(self) -> str | None:
        """The name that stands for a number, if its field has such names."""
        if self.meaning not in NUMBER_NAMES or not isinstance(self.value, int):
            return None
        return NUMBER_NAMES[self.meaning].get(self.value, "UNKNOWN")


class RecordsValue(NamedTuple):
    """A field's records; the last `missing_bytes` were not recorded and are zeros."""

    data: memoryview
    missing_bytes: int


class BatchShape(NamedTuple):
    """A batch: its facts, its first records, the number of `more` records, and its damage."""

    facts: Row
    records: list[Row]
    more: int
    problem: str | None


class Body(NamedTuple):
    """A request or a response: its fields and the resources they name, or the reason why it has none."""

    fields: Sequence[Shape]
    problem: str | None
    resources: Sequence[Resource] = ()


NOTHING = Body((), None)


def request_body(exchange: Exchange) -> Body:
    """Never raises: an undecodable message has a `problem`."""
    try:
        value = exchange.request
    except KafkaProtocolError as error:
        return Body((), str(error))
    if value is None:
        return Body((), f"version {exchange.version} of {exchange.api} is unknown")
    message = API_TABLE[exchange.head.api_key or 0].request
    return body_of(message, exchange.version, value, exchange.request_frame.gaps)


def response_body(exchange: Exchange) -> Body:
    """Never raises: an undecodable message has a `problem`."""
    try:
        value = exchange.response
    except KafkaProtocolError as error:
        return Body((), str(error))
    frame = exchange.response_frame
    if value is None or frame is None:
        return NOTHING
    message, version = API_TABLE[exchange.head.api_key or 0].response, exchange.response_version
    return body_of(message, version, value, frame.gaps)


def body_of(message: Message, version: int, value: Any, gaps: Sequence[tuple[int, int]]) -> Body:
    fields = shapes_of(message.fields, value, version, missing_bytes(message, value, gaps))
    return Body(fields, None, list(resources_named(message, version, value)))


def missing_bytes(message: Message, value: Any, gaps: Sequence[tuple[int, int]]) -> dict[int, int]:
    """By the id of records in a message: how many of their last bytes were not recorded."""
    if not gaps:
        return {}
    records = [each for column in columns(message, Meaning.RECORDS) for each in column.values(value) if each]
    return {id(each): missing for each, (_, missing) in zip(reversed(records), reversed(gaps), strict=False)}


def live(fields: Sequence[Field], value: Any, version: int) -> Iterator[tuple[Field, Any]]:
    return ((field, each) for field, each in zip(fields, value, strict=True) if field.is_in(version))


def shapes_of(fields: Sequence[Field], value: Any, version: int, lacking: Mapping[int, int]) -> list[Shape]:
    return [shape_of(field, each, version, lacking) for field, each in live(fields, value, version)]


def shape_of(field: Field, value: Any, version: int, lacking: Mapping[int, int]) -> Shape:
    kind, make = field.kind_in(version), partial(Shape, field.name, meaning=field.meaning)
    if isinstance(kind, RowKind) and value is not None:
        return make(value, rows=[shapes_of(kind.fields, value, version, lacking)])
    if isinstance(kind, Array) and kind.element is None:
        rows = [shapes_of(kind.fields, row, version, lacking) for row in value or ()]
        return make(None if value is None else [], rows=rows, is_list=True)
    if isinstance(kind, Array):
        return make(None if value is None else list(value))
    if field.meaning is Meaning.RECORDS and value is not None:
        return make(RecordsValue(value, min(len(value), lacking.get(id(value), 0))))
    if kind is Uuid and not isinstance(value, str):
        return make(topic_id_text(value))
    return make(bytes(value) if isinstance(value, memoryview) else value)


# -- records --------------------------------------------------------------------------------------------------


def batches_of(records: RecordsValue, max_records: int | None) -> Iterator[BatchShape | str]:
    """Every batch with its first `max_records`; a line for bytes that are not a batch, or were not recorded."""
    data, whole = records.data, len(records.data) - records.missing_bytes
    end = 0
    try:
        for view in scan_batches(data, 0, whole):
            end = view.end_position
            yield batch_shape(data, view, max_records)
    except KafkaError as error:
        yield f"{error}; {counted(whole - end, 'byte')} from there on cannot be read"
        return
    if records.missing_bytes:
        yield from cut_batch(data, end, whole)
        yield f"the last {records.missing_bytes} of {len(data)} bytes were not recorded"
    elif end < whole:
        yield f"ends in a partial batch of {counted(whole - end, 'byte')}"


def cut_batch(data: memoryview, position: int, end: int) -> Iterator[BatchShape]:
    """The batch that was not recorded to its end, from its header."""
    view = cut_view(data, position, end)
    if view is not None:
        yield BatchShape(batch_row(view, crc_of(data, view)), [], max(0, view.records_count), "not recorded to its end")


def cut_view(data: memoryview, position: int, end: int) -> BatchView | None:
    """The batch at `position`, whose bytes were recorded only up to `end`; None if its header was not."""
    if end - position < RECORD_BATCH_OVERHEAD:
        return None
    try:
        return next(scan_batches(data, position, len(data)), None)
    except KafkaError:
        return None


def batch_shape(data: memoryview, view: BatchView, max_records: int | None) -> BatchShape:
    facts = batch_row(view, crc_of(data, view))
    if not batch_is_valid(data, view):
        return BatchShape(facts | {"is_valid": False}, [], 0, "the CRC is wrong")
    facts["is_valid"] = True
    records: list[Row] = []
    try:
        found = iter_all_records(data, view, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES)
        records += [record_row(each, is_control=view.is_control) for each in islice(found, max_records)]
        more = view.records_count - len(records) if view.magic >= 2 else sum(1 for _ in found)
    except KafkaError as error:
        return BatchShape(facts, records, 0, str(error))
    return BatchShape(facts, records, max(0, more), None)


# -- the names in a message ----------------------------------------------------------------------------------


def topics_of(*bodies: Body) -> Iterator[str]:
    """The topics that messages name, with repetitions."""
    return (each.name for body in bodies for each in body.resources if each.type is ResourceType.TOPIC)


def groups_of(body: Body) -> Iterator[str]:
    """The groups and transactional ids that a message names."""
    types = (ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
    return (each.name for each in body.resources if each.type in types)


def errors_of(fields: Sequence[Shape]) -> Iterator[str]:
    """The names of the errors, and the damage of records."""
    for shape in fields:
        if isinstance(shape.value, RecordsValue):
            yield from damage_of(shape.value)
        if shape.meaning is Meaning.ERROR_CODE and shape.value:
            yield shape.number_name or str(shape.value)
        for row in shape.rows:
            yield from errors_of(row)


def damage_of(records: RecordsValue) -> Iterator[str]:
    try:
        for view in scan_batches(records.data, 0, len(records.data) - records.missing_bytes):
            if not batch_is_valid(records.data, view):
                yield "a wrong CRC"
    except KafkaError:
        yield "records that cannot be read"


def record_bytes_of(fields: Sequence[Shape]) -> int:
    return sum(
        len(shape.value.data)
        if isinstance(shape.value, RecordsValue)
        else sum(record_bytes_of(row) for row in shape.rows)
        for shape in fields
    )


# -- JSON -----------------------------------------------------------------------------------------------------


def as_object(fields: Sequence[Shape], max_records: int | None) -> Row:
    """The fields for JSON; an error's name follows its code."""
    row: Row = {}
    for shape in fields:
        row[shape.name] = json_value(shape, max_records)
        if shape.meaning is Meaning.ERROR_CODE:
            row["error_name"] = shape.number_name
    return row


def json_value(shape: Shape, max_records: int | None) -> Any:
    value = shape.value
    if isinstance(value, RecordsValue):
        return records_object(value, max_records)
    if shape.rows:
        rows = [as_object(row, max_records) for row in shape.rows]
        return rows if shape.is_list else rows[0]
    return shown(value) if isinstance(value, bytes) else value


def records_object(records: RecordsValue, max_records: int | None) -> Row:
    found = list(batches_of(records, max_records))
    return {
        "size_bytes": len(records.data),
        "recorded_bytes": len(records.data) - records.missing_bytes,
        "batches": [
            each.facts
            | {"records": each.records, "records_left_out": each.more}
            | ({} if each.problem is None else {"problem": each.problem})
            for each in found
            if isinstance(each, BatchShape)
        ],
        "problems": [each for each in found if isinstance(each, str)],
    }


def api_named(text: str) -> ApiKey | None:
    """An API by its name in any spelling: Fetch, list-offsets, LIST_OFFSETS; or by its key."""
    wanted = text.replace("-", "").replace("_", "").lower()
    return next(
        (api.key for api in API_TABLE.values() if wanted in (api.name.lower(), str(api.key.value))),
        None,
    )
