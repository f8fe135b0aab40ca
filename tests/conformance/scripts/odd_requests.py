"""Requests that no library sends: odd message sets, odd readers, lengths and texts that cannot be."""

from __future__ import annotations

import struct
from typing import Any

from tests.conformance.asking import (
    CODECS,
    TIME_MS,
    UNLIMITED,
    batch,
    create,
    create_all,
    fetch,
    list_offsets,
    produce,
    produce_old,
    records,
)
from tests.conformance.scripts.followers import FOLLOWER, assigned, follow
from tests.conformance.steps import RAW_PREFIX, Batch, FromNow, Script, Step, Wrapper, call

FORMATS = {"@v0": "0.9.0", "@v1": "0.10.2", "@v2": "2.0"}
LOG_APPEND_TIME = 8


def wrapper(*offsets: int, outside: int, codec: str = "gzip", **options: Any) -> Wrapper:
    rows = options.pop("rows", None) or records(len(offsets))
    return Wrapper(rows, offsets, outside, codec=CODECS[codec], **options)


def odd_message_sets() -> Script:
    """Wrappers with any offsets inside and outside, a message cut off inside, streams that are damaged."""
    script: Script = [
        create_all(
            *((name, 1, {"message_format_version": version}) for name, version in FORMATS.items()),
            ("@gzip", 1, {"message_format_version": "0.10.2", "compression_type": "gzip"}),
            ("@keys", 1, {"message_format_version": "0.10.2", "cleanup_policy": "compact"}),
        )
    ]
    sent: list[Any] = [wrapper(*(first + each for each in range(3)), outside=outside)
                       for first in (0, 50) for outside in (0, 2, 52, 60, 1)]  # fmt: skip
    sent += [wrapper(*inside, outside=9) for inside in ((0, 2, 4), (2, 1, 0), (5, 5, 5), (-3, -2, -1), (7,))]
    sent += [wrapper(0, 1, 2, outside=2, cut=cut) for cut in (1, 20, 40, 60, 80, 100, 120)]
    sent += [wrapper(0, 1, 2, outside=2, inner_magic=0), wrapper(0, 1, 2, outside=2, magic=0, inner_magic=1)]
    sent += [wrapper(0, 1, 2, outside=2, edits=((at, form, number),)) for at, form, number in (
        (8, ">i", 13), (8, ">i", -1), (8, ">i", 1 << 20), (12, ">I", 1), (17, ">b", 1), (16, ">b", 2), (16, ">b", 5),
    )]  # fmt: skip
    sent += [wrapper(0, 1, 2, outside=2, attributes=LOG_APPEND_TIME)]
    for codec in CODECS:
        if codec != "none":
            sent += [wrapper(0, 1, 2, outside=2, codec=codec, magic=magic, damage=((at, ">b", 99),))
                     for magic in (0, 1) for at in (0, 4, 9, 20, 45)]  # fmt: skip
    sent += [wrapper(0, 1, 2, outside=2, codec="lz4", magic=magic, packed_for=1 - magic) for magic in (0, 1)]
    sent += [wrapper(0, 1, 2, outside=2, rows=((TIME_MS, None, 9), *records(2)), attributes=attributes)
             for attributes in (0, LOG_APPEND_TIME)]  # fmt: skip
    for topic in (*FORMATS, "@gzip", "@keys"):
        script += [produce_old(topic, each) for each in sent]
        script += [fetch((topic, 0, 0, UNLIMITED), version=version) for version in (0, 1, 2, 3, 4, 8)]
        script += [list_offsets((topic, 0, time)) for time in (-1, -2, TIME_MS, TIME_MS + 2, TIME_MS + 3)]
    return script


def records_of_append_time() -> Script:
    """Batches that claim the broker's time, with and without a key, into topics of every kind."""
    topics: dict[str, dict[str, Any]] = {
        "@a": {},
        "@compact": {"cleanup_policy": "compact"},
        "@append": {"cleanup_policy": "compact", "message_timestamp_type": "LogAppendTime"},
        "@near": {"message_timestamp_difference_max_ms": 3_600_000},
        "@old": {"message_format_version": "0.10.2", "cleanup_policy": "compact"},
    }
    script: Script = [create_all(*((name, 1, configs) for name, configs in topics.items()))]
    for topic in topics:
        for key in (b"k", None):
            for time in (FromNow(0), TIME_MS):
                rows = ((time, key, 5), (FromNow(0), b"k", 5))
                for codec in (0, 1):
                    timed: dict[str, Any] = {"edits": ((21, ">h", LOG_APPEND_TIME | codec),), "is_resealed": True}
                    script.append(produce(topic, Batch(rows, codec=codec, **timed)))
                    script.append(produce(topic, Batch(rows, codec=codec, producer=(7, 0, 0), **timed)))
                script.append(produce_old(topic, wrapper(0, 1, outside=1, rows=rows, attributes=LOG_APPEND_TIME)))
        script.append(list_offsets((topic, 0, -1)))
    return script


def offsets_for_any_replica() -> Script:
    """ListOffsets where a transaction is open, and where the high watermark is below the log's end."""
    open_one = Batch(records(2), producer=(8001, 0, 0), is_transactional=True)
    script: Script = [
        create("@a"),
        produce("@a", batch(3)),
        produce("@a", open_one),
        produce("@a", batch(2)),
        assigned(("@two", [[0, FOLLOWER]], {})),
        produce("@two", batch(3), acks=1),
        follow(("@two", 0, 3)),
        produce("@two", batch(2), acks=1),
        produce("@two", open_one, acks=1),
    ]
    for replica in (-1, -2, -3, -4, -9, 0, 1, 7):
        for topic in ("@a", "@two"):
            for time in (-1, -2, -3, TIME_MS, TIME_MS + 2, TIME_MS + 9):
                script.append(list_offsets((topic, 0, time, 5), replica_id=replica, version=0))
                script.append(list_offsets((topic, 0, time), replica_id=replica, version=1))
                script += [
                    list_offsets((topic, 0, time), replica_id=replica, version=version, isolation_level=level)
                    for version in (2, 3)
                    for level in (0, 1)
                ]
    return script


def raw(api: str, version: int, *parts: bytes) -> Step:
    return call(api, version, raw=b"".join(parts))


def text(data: bytes, length: int | None = None) -> bytes:
    return struct.pack(">h", len(data) if length is None else length) + data


def number(value: int) -> bytes:
    return struct.pack(">i", value)


def lengths_and_texts() -> Script:
    """Nulls of any negative length, where null is allowed and where it is not; texts that are not UTF-8."""
    name, group, wrong = RAW_PREFIX + b"a", RAW_PREFIX + b"g", (b"\xff", b"a\xc3(", b"\xe2\x82", b"\xf0\x9f\x92", b"")
    commit = (text(group), number(-1), text(b""), struct.pack(">q", -1), number(1), text(name))
    script: Script = [create("@a")]
    for length in (-1, -2, -5, -(2**31)):
        script += [raw("Metadata", version, number(length)) for version in (0, 1, 4)]
        script += [raw("OffsetFetch", version, text(group), number(length)) for version in (1, 2, 3, 4)]
        script += [raw("DescribeLogDirs", version, number(length)) for version in (0, 1)]
        script += [raw("DescribeConfigs", 0, number(1), b"\2", text(RAW_PREFIX + b"nope"), number(length))]
        script += [raw("ListGroups", 0, number(length)), raw("DescribeGroups", 0, number(length))]
        script += [
            raw("CreateTopics", 0, number(length), number(5)),
            raw("DeleteRecords", 0, number(length), number(5)),
        ]
    for length in (-1, -2, -32768):
        null = text(b"", length)
        script += [raw("InitProducerId", 0, null, number(1000)), raw("FindCoordinator", 1, null, b"\0")]
        script += [raw("Heartbeat", 0, null, number(1), text(b"m")), raw("DescribeGroups", 0, number(1), null)]
        script += [raw("OffsetCommit", 2, *commit, number(1), number(0), struct.pack(">q", 5), null)]
        script += [call("OffsetFetch", 1, group_id="@g", topics=[("@a", [0])])]
        script += [raw("Produce", 3, null, b"\0\1", number(1000), number(0))]
    for each in wrong:
        odd = text(each)
        script += [raw("OffsetCommit", 2, *commit, number(1), number(0), struct.pack(">q", 5), odd)]
        script += [call("OffsetFetch", 1, group_id="@g", topics=[("@a", [0])])]
        script += [raw("Metadata", 4, number(1), odd, b"\0"), raw("FindCoordinator", 1, odd, b"\0")]
        script += [raw("DescribeGroups", 0, number(1), odd), raw("DeleteGroups", 0, number(1), odd)]
        script += [raw("Heartbeat", 0, odd, number(1), odd), raw("LeaveGroup", 0, odd, odd)]
        script += [raw("DescribeConfigs", 0, number(1), b"\2", odd, number(-1))]
        script += [raw("DeleteTopics", 0, number(1), odd, number(5)), raw("OffsetFetch", 1, odd, number(0))]
        script += [raw("CreateTopics", 0, number(1), odd, number(1), b"\0\1", number(0), number(0), number(5))]
        script += [raw("Fetch", 0, number(-1), number(0), number(0), number(1), odd, number(1), number(0), bytes(12))]
        script += [raw("ListOffsets", 1, number(-1), number(1), odd, number(1), number(0), bytes(8))]
    return script


def numbers_of_configs() -> Script:
    """A DOUBLE as Java reads and writes it."""
    script: Script = [create("@a")]
    for given in (
        "NaN", "+NaN", "-NaN", "nan", "Infinity", "-Infinity", "inf", "0", "1", "1.0", "-0.0", ".5", "5.", "0.5f",
        "0.5D", "1e-4", "1E-9", "0x1p-1", "0x.8p0", "0x1", "1_0", " 0.25 ", "0.123456789", "-1", "1.5", "2e7", "",
        "1e999", "٣",
    ):  # fmt: skip
        rows = [(2, "@a", [("min.cleanable.dirty.ratio", given)])]
        script.append(call("AlterConfigs", 0, resources=rows, validate_only=False))
        script.append(call("DescribeConfigs", 0, resources=[(2, "@a", ["min.cleanable.dirty.ratio"])]))
    for given in ("007", "+5", "-1", " 6 ", "13", "٣٠٠٠", "\U0001d7d1", "1_000"):
        rows = [(2, "@a", [("segment.bytes", given)])]
        script.append(call("AlterConfigs", 0, resources=rows, validate_only=True))
    return script
