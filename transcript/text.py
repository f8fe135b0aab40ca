"""An exchange as lines for people: a head, then its fields under Kafka's names.

Pure: a line is parts of text with rich's styles, which only a terminal shows. A row's plain fields share lines, so
that a partition is a line or two. Long values are cut to `Limits`, and show how much was left out. No client or record
can control the terminal: control characters are escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from minibroker.protocol.facts import Row
from minibroker.protocol.primitives import Meaning
from minibroker.protocol.text import BASE64, as_utc, counted, json_text, read_back
from minibroker.transcript.exchanges import Event, Exchange
from minibroker.transcript.fields import (
    BatchShape,
    Body,
    RecordsValue,
    Shape,
    batches_of,
    errors_of,
    groups_of,
    record_bytes_of,
    request_body,
    response_body,
    topics_of,
)
from minibroker.transcript.file import Frame

STEP = "  "
BODY = STEP * 2
LINE_WIDTH = 100
HEX_WIDTH = 16
TIMES = ("timestamp", "log_append_time_ms", "commit_timestamp", "last_timestamp", "start_time_ms")
BRIEF_NAMES = 3
BRIEF_CHARACTERS = 60
REASON_CHARACTERS = 500  # it contains the client id, which may be of any length

HEADING, NAME, FAINT, WRONG, VALUE = "bold", "cyan", "dim", "bold red", ""

Part = tuple[str, str]
Line = list[Part]


class Limits(NamedTuple):
    """How much to show of an array, a batch, a value in characters, a frame in bytes. None: all."""

    rows: int | None = 10
    records: int | None = 3
    characters: int | None = 120
    frame_bytes: int | None = 128


SHORT = Limits()
FULL = Limits(None, None, None, None)


def plain(line: Line) -> str:
    return "".join(text for text, _ in line)


# -- exchanges and events -------------------------------------------------------------------------------------


def exchange_lines(exchange: Exchange, begin_ns: int, limits: Limits) -> Iterator[Line]:
    """Its head, request and response."""
    yield head_line(exchange, begin_ns)
    yield from body_lines("request", request_body(exchange), exchange.request_frame, limits)
    if exchange.response_frame is not None:
        yield from body_lines("response", response_body(exchange), exchange.response_frame, limits)
    yield from (
        [(STEP + ending, FAINT if exchange.outcome == "no response" else WRONG)] for ending in endings(exchange)
    )
    yield []


def head_line(exchange: Exchange, begin_ns: int) -> Line:
    latency = "" if exchange.latency_ms is None else f"  {exchange.latency_ms:.1f} ms"
    return [
        (f"{since(exchange.time_ns, begin_ns)}  {connection_name(exchange)}  ", FAINT),
        (f"{exchange.api} v{exchange.version}", HEADING),
        (f"  {quoted(exchange.client_id)}  correlation {exchange.correlation_id}  {sizes(exchange)}{latency}", VALUE),
    ]


def brief_line(exchange: Exchange, begin_ns: int) -> Line:
    """An exchange in one line: client, API, sizes, latency, topics and groups, errors."""
    latency = "-" if exchange.latency_ms is None else f"{exchange.latency_ms:.1f} ms"
    asked, answered = request_body(exchange), response_body(exchange)
    about = [*few(topics_of(asked, answered)), *few(groups_of(asked))]
    record_bytes = record_bytes_of(asked.fields) + record_bytes_of(answered.fields)
    if record_bytes:
        about.append(f"{record_bytes} bytes of records")
    wrong = [*few(errors_of(answered.fields)), *endings(exchange)]
    wrong += [cut(safe(body.problem), BRIEF_CHARACTERS) for body in (asked, answered) if body.problem and not wrong]
    return [
        (f"{since(exchange.time_ns, begin_ns)}  #{exchange.connection:<3}", FAINT),
        (f" {name_of(exchange.client_id):<24.24}", VALUE),
        (f" {exchange.api} v{exchange.version}".ljust(25), HEADING),
        (f" {sizes(exchange):>20} {latency:>10}", VALUE),
        ("  " + "  ".join(about) if about else "", NAME),
        ("  " + ", ".join(wrong) if wrong else "", FAINT if exchange.outcome == "no response" else WRONG),
    ]


def few(names: Iterable[str]) -> list[str]:
    """The first few names, each once."""
    found = list(dict.fromkeys(names))
    more = len(found) - BRIEF_NAMES
    return [safe(each) for each in found[:BRIEF_NAMES]] + ([f"... {more} more"] if more > 0 else [])


def event_line(event: Event, begin_ns: int) -> Line:
    if event.what == "started":
        what = f"a broker started: {event.text}, {as_utc(event.time_ns // 1_000_000)}"
    elif event.what == "opened":
        what = f"#{event.connection} opened by {event.address}"
    elif event.what == "ended":
        what = "the recording ends here"
    else:
        what = f"#{event.connection} closed"
    line = [(f"{since(event.time_ns, begin_ns)}  {safe(what)}", FAINT)]
    return (
        [*line, (f": {reason_text(event.text)}", WRONG)] if event.what in ("closed", "ended") and event.text else line
    )


def endings(exchange: Exchange) -> list[str]:
    """How an exchange without a response ended."""
    texts = {
        "no response": "takes no response",
        "refused": f"refused, the connection was closed: {reason_text(exchange.reason)}",
        "closed": "not answered, the connection was closed",
        "pending": "not answered yet",
    }
    return [texts[exchange.outcome]] if exchange.outcome in texts else []


def reason_text(reason: str) -> str:
    return cut(safe(reason), REASON_CHARACTERS)


def since(time_ns: int, begin_ns: int) -> str:
    return f"{(time_ns - begin_ns) / 1e9:9.3f} s"


def connection_name(exchange: Exchange) -> str:
    return f"#{exchange.connection} {exchange.address}".rstrip()


def sizes(exchange: Exchange) -> str:
    response = exchange.response_bytes
    return f"{exchange.request_bytes} -> {'-' if response is None else response} bytes"


# -- fields ---------------------------------------------------------------------------------------------------


def body_lines(title: str, body: Body, frame: Frame, limits: Limits) -> Iterator[Line]:
    yield [(f"{STEP}{title}", HEADING)]
    if body.problem is not None:
        yield [(f"{BODY}{safe(body.problem)}", WRONG)]
        yield from hex_lines(frame.kept, BODY, limits)
    elif not body.fields:
        yield [(f"{BODY}(no fields)", FAINT)]
    for shape in body.fields:
        yield from shape_lines(shape, BODY, limits)


def shape_lines(shape: Shape, indent: str, limits: Limits) -> Iterator[Line]:
    if shape.is_plain:
        yield [(indent, VALUE), *plain_parts(shape, limits)]
        return
    name = (f"{indent}{shape.name}:", NAME)
    if isinstance(shape.value, RecordsValue):
        yield [name, (f" {counted(len(shape.value.data), 'byte')}", VALUE)]
        yield from records_lines(shape.value, indent + STEP, limits)
        return
    yield [name]
    for row in shape.rows[: limits.rows]:
        yield from row_lines(row, indent + STEP, limits)
    yield from more_line(len(shape.rows), limits.rows, indent + STEP)


def row_lines(row: Sequence[Shape], indent: str, limits: Limits) -> Iterator[Line]:
    """`- ` and the fields; successive plain fields share lines."""
    mark, width = "- ", 0
    line: Line = []
    for shape in row:
        if shape.is_plain:
            parts = plain_parts(shape, limits)
            size = sum(len(text) for text, _ in parts)
            if line and width + size > LINE_WIDTH:
                yield line
                line, width = [], 0
            line, mark = [*line, ("  ", VALUE), *parts] if line else [(indent + mark, VALUE), *parts], "  "
            width += size + 2
            continue
        if line:
            yield line
        line, width = [], 0
        yield from marked(shape_lines(shape, indent + STEP, limits), indent, mark)
        mark = "  "
    if line:
        yield line


def marked(lines: Iterator[Line], indent: str, mark: str) -> Iterator[Line]:
    """The same lines, the first with the mark of a row."""
    first = next(lines)
    text, style = first[0]
    yield [(indent + mark + text.removeprefix(indent + STEP), style), *first[1:]]
    yield from lines


def more_line(count: int, limit: int | None, indent: str) -> Iterator[Line]:
    if limit is not None and count > limit:
        yield [(f"{indent}... {count - limit} more", FAINT)]


def plain_parts(shape: Shape, limits: Limits) -> Line:
    is_wrong = shape.meaning is Meaning.ERROR_CODE and shape.value != 0
    return [(f"{shape.name}: ", NAME), (value_text(shape, limits), WRONG if is_wrong else VALUE)]


def value_text(shape: Shape, limits: Limits) -> str:
    value = shape.value
    if shape.number_name is not None:
        return f"{value} {shape.number_name}"
    if isinstance(value, RecordsValue):
        return "0 bytes"
    if isinstance(value, bytes) and shape.meaning is Meaning.SECRET:
        return f"({counted(len(value), 'secret byte')})"
    if isinstance(value, bytes):
        return data_text(value, limits.characters)
    if isinstance(value, list):
        shown = [json_text(each) for each in value[: limits.rows]]
        left = len(value) - len(shown)
        return f"[{', '.join(shown + ([f'... {left} more'] if left else []))}]"
    if shape.name in TIMES and value >= 0:
        return f"{value} ({as_utc(value)})"
    return cut(json_text(value), limits.characters)


# -- records --------------------------------------------------------------------------------------------------


def records_lines(records: RecordsValue, indent: str, limits: Limits) -> Iterator[Line]:
    found = list(batches_of(records, limits.records))
    for each in found[: limits.rows]:
        if isinstance(each, str):
            yield [(f"{indent}{each}", WRONG)]
        else:
            yield from batch_lines(each, indent, limits)
    yield from more_line(len(found), limits.rows, indent)


def batch_lines(batch: BatchShape, indent: str, limits: Limits) -> Iterator[Line]:
    """Its contents, then its producer and times, then its records."""
    line: Line = [(f"{indent}batch ", NAME), (contents_text(batch.facts), VALUE)]
    yield [*line, ("  CRC ok", VALUE)] if batch.problem is None else [*line, (f"  {safe(batch.problem)}", WRONG)]
    yield [(f"{indent}{STEP}{origin_text(batch.facts)}", FAINT)]
    for record in batch.records:
        yield [(f"{indent}{STEP}{record_text(record, limits)}", VALUE)]
    if batch.more:
        yield [(f"{indent}{STEP}... {batch.more} more", FAINT)]


def contents_text(facts: Row) -> str:
    count = facts.get("count")
    records = "" if count is None else f"  {counted(count, 'record')}"
    return (
        f"{facts['base_offset']}-{facts['last_offset']}{records}  {facts['size']} bytes  codec {facts['codec'].lower()}"
    )


def origin_text(facts: Row) -> str:
    parts = [f"magic {facts['magic']}"]
    if facts.get("max_timestamp", -1) >= 0:
        parts.append(f"{facts['timestamp_type'].lower().replace('_', ' ')} to {as_utc(facts['max_timestamp'])}")
    if facts.get("producer_id", -1) >= 0:
        sequences = f"{facts['base_sequence']}-{facts['last_sequence']}"
        parts.append(f"producer {facts['producer_id']} epoch {facts['producer_epoch']} sequence {sequences}")
    parts += [
        word for word, name in (("transactional", "is_transactional"), ("control", "is_control")) if facts.get(name)
    ]
    return "  ".join(parts)


def record_text(record: Row, limits: Limits) -> str:
    time = f"  {as_utc(record['timestamp'])}" if record["timestamp"] >= 0 else ""
    if "end_txn_marker" in record:
        return f"{record['offset']}{time}  {record['end_txn_marker']} marker"
    text = f"{record['offset']}{time}  key {datum(record['key'], limits)}  value {datum(record['value'], limits)}"
    if record["headers"]:
        headers = (f"{safe(name)}={datum(value, limits)}" for name, value in record["headers"])
        text += f"  headers {', '.join(headers)}"
    return text


def datum(shown: str | None, limits: Limits) -> str:
    """A key or a value, from the form that `record_row` gives it."""
    if shown is not None and shown.startswith(BASE64):
        return data_text(read_back(shown) or b"", limits.characters)
    return cut(json_text(shown), limits.characters)


# -- values ---------------------------------------------------------------------------------------------------


def data_text(data: bytes, limit: int | None) -> str:
    """Text in quotes, other bytes in hexadecimal with the letters among them."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if all(each.isprintable() or each in "\n\t\r" for each in text):
        return cut(json_text(text), limit)
    head = data if limit is None else data[: limit // 4]
    left = len(data) - len(head)
    more = f" ... {counted(left, 'more byte')}" if left else ""
    return f"{counted(len(data), 'byte')} {head.hex()} |{letters(head)}|{more}"


def letters(data: bytes) -> str:
    return "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in data)


def hex_lines(data: bytes, indent: str, limits: Limits) -> Iterator[Line]:
    shown = data[: limits.frame_bytes]
    for begin in range(0, len(shown), HEX_WIDTH):
        row = shown[begin : begin + HEX_WIDTH]
        yield [(f"{indent}{begin:06x}  {row.hex(' '):<{HEX_WIDTH * 3}} {letters(row)}", VALUE)]
    if len(shown) < len(data):
        yield [(f"{indent}... {len(data) - len(shown)} more bytes", FAINT)]


def cut(text: str, limit: int | None) -> str:
    if limit is None or len(text) <= limit:
        return text
    return f"{text[:limit]}... {len(text) - limit} more characters"


def quoted(client_id: str | None) -> str:
    return "no client id" if client_id is None else json_text(client_id)


def name_of(client_id: str | None) -> str:
    return "-" if client_id is None else safe(client_id)


def safe(text: str) -> str:
    """Text from outside, with what a terminal would interpret escaped."""
    return json_text(text)[1:-1].replace('\\"', '"').replace("\\\\", "\\")
