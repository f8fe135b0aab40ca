"""What is read: Fetch with every knob, ListOffsets, and where the log begins."""

from __future__ import annotations

from typing import Any

from tests.conformance.asking import (
    TIME_MS,
    UNLIMITED,
    batch,
    create,
    create_all,
    delete_records,
    fetch,
    in_session,
    list_offsets,
    produce,
    produce_old,
    records,
)
from tests.conformance.steps import Batch, FromNow, Script, call, drop, look, take

VERSIONS = range(9)


def filled(topic: str = "@a", partitions: int = 3, batches: int = 4, size: int = 200, **configs: object) -> Script:
    """Batches of 3 records in every partition, each in a time of its own."""
    return [
        create(topic, partitions, **configs),
        *(
            produce(topic, Batch(records(3, size + 10 * number, time_ms=TIME_MS + 1000 * number)), partition)
            for partition in range(partitions)
            for number in range(batches)
        ),
    ]


def limits() -> Script:
    script = filled()
    rows = [("@a", partition, 4) for partition in (1, 0, 2)]
    for version in VERSIONS:
        for limit in (0, 1, 11, 12, 61, 100, 716, 717, 800, 1500, 2300, UNLIMITED):
            script.append(fetch(*((*row, limit) for row in rows), version=version))
            if version >= 3:
                script.append(fetch(*rows, version=version, max_bytes=limit))
        script.append(fetch(*((*row, -1) for row in rows), version=version))
    script += [fetch(*((*row, 900) for row in rows), max_bytes=limit) for limit in (-1, 1, 900, 1800, 2000)]
    return script


def offsets_and_errors() -> Script:
    script = filled(batches=2)
    for version in VERSIONS:
        script += [fetch(("@a", 0, offset), version=version) for offset in (-2, -1, 0, 1, 2, 3, 5, 6, 7, 2**62)]
        script.append(fetch(("@nope", 0, 0), ("@a", 0, 6), ("@a", 7, 0), ("@a", 1, 0), ("@a", -1, 0), version=version))
        script.append(fetch(("@nope", 0, 0), ("@nope", 1, 0), version=version, max_wait_ms=20_000))
        script.append(fetch(("@a", 0, 99), ("@a", 1, 0), version=version, max_wait_ms=20_000, min_bytes=UNLIMITED))
        script.append(fetch(version=version, max_wait_ms=20_000))
    script += [
        fetch(("@a", 0, 0), ("@a", 1, 0), ("@nope", 0, 0), ("@a", 0, 3)),
        fetch(("@a", 0, 0), ("@b", 0, 0), ("@a", 1, 0)),
        fetch(("", 0, 0), ("no/such name", 0, 0), ("@a", 0, 0)),
        call("Fetch", 8, replica_id=-1, max_wait_ms=20_000, min_bytes=1, session_id=0, topics=[("@a", [])]),
        fetch(("@a", 0, 0), isolation_level=1),
        fetch(("@a", 0, 0), isolation_level=2),
        fetch(("@a", 0, 0), isolation_level=-1),
        fetch(("@a", 0, 6), isolation_level=1),
        fetch(("@a", 0, 7), isolation_level=1),
        fetch(("@a", 0, 0), isolation_level=1, version=4),
    ]
    return script


def readers() -> Script:
    """Who reads: consumers, followers that are and are not replicas, the debugging and the future replica."""
    script = filled(batches=2)
    for replica in (-1, -2, -3, -4, 0, 1, 5):
        for offset in (0, 3, 6, 7):
            script.append(fetch(("@a", 0, offset, 1 << 20, 0), replica_id=replica))
        script += [fetch(("@a", 0, 0), replica_id=replica, version=version) for version in (0, 3, 5)]
        script.append(list_offsets(("@a", 0, -1), ("@a", 1, -2), replica_id=replica))
        script.append(list_offsets(("@a", 0, -1, 5), replica_id=replica, version=0))
        script.append(fetch(("@a", 1, 0), replica_id=replica, isolation_level=1))
    return script


def waiting() -> Script:
    waits: dict[str, Any] = {"kind": "park", "connection": "other", "max_wait_ms": 25_000}
    script = filled(batches=1, size=100)
    for rows, options in (
        ([("@a", 0, 3)], {}),
        ([("@a", 0, 3)], {"min_bytes": 0}),
        ([("@a", 0, 3)], {"min_bytes": -1}),
        ([("@a", 0, 3), ("@a", 1, 0)], {}),
        ([("@a", 0, 3), ("@a", 1, 0)], {"min_bytes": 5000}),
        ([("@a", 0, 3), ("@a", 1, 0)], {"min_bytes": 5000, "version": 2}),
        ([("@a", 0, 3), ("@nope", 1, 0)], {}),
        ([("@a", 0, 3), ("@a", 1, 9)], {}),
        ([("@a", 0, 3)], {"isolation_level": 1}),
        ([("@a", 0, 3)], {"replica_id": 5}),
        ([("@a", 2, 0, 10)], {"min_bytes": 11, "version": 2}),
        ([("@a", 2, 0, 10)], {"min_bytes": 11}),
        ([("@a", 0, 3)], {"max_bytes": 0}),
        ([("@a", 2, 0)], {"max_bytes": 0, "min_bytes": 5000}),
    ):
        script += [fetch(*rows, **{**waits, **options}), drop("other")]
    script += [
        fetch(("@a", 0, 3), ("@a", 1, 3), **waits),
        produce("@a", batch(1, 50), 2),
        look("other"),
        produce("@a", batch(1, 50), 1),
        take("other"),
        fetch(("@a", 0, 3), ("@a", 1, 4), **{**waits, "min_bytes": 300}),
        produce("@a", batch(1, 50), 0),
        look("other"),
        produce("@a", batch(1, 50), 1),
        look("other"),
        produce("@a", batch(1, 50), 1),
        look("other"),
        produce("@a", batch(1, 150), 0),
        take("other"),
        fetch(("@a", 0, 5, 40), **{**waits, "min_bytes": 50}),
        produce("@a", batch(1, 150), 0),
        look("other"),
        drop("other"),
        fetch(("@a", 2, 4), **waits),
        call("DeleteRecords", 1, topics=[("@a", [(2, 4)])], timeout_ms=1000),
        look("other"),
        drop("other"),
        create("@b"),
        fetch(("@b", 0, 0), ("@a", 2, 4), max_wait_ms=150, kind="park", connection="other"),
        take("other"),
    ]
    return script


def rolled_segments() -> Script:
    script = filled(partitions=1, batches=9, size=100, segment_bytes=1000, index_interval_bytes=300)
    script += [fetch(("@a", 0, offset, 2000)) for offset in range(0, 28, 2)]
    script += [fetch(("@a", 0, 0, limit)) for limit in (500, 1000, 3000, UNLIMITED)]
    waits: dict[str, Any] = {"kind": "park", "connection": "other", "max_wait_ms": 25_000, "min_bytes": 100_000}
    script += [
        fetch(("@a", 0, 0), **waits),
        drop("other"),
        fetch(("@a", 0, 26), **waits),
        produce("@a", batch(1, 700)),
        look("other"),
        produce("@a", batch(1, 700)),
        look("other"),
        drop("other"),
    ]
    for maximum in (0, 1, 2, 100, -1):
        script += [list_offsets(("@a", 0, time, maximum), version=0) for time in (-1, -2, 0, 2**62, -3)]
    script += [delete_records(("@a", 0, 7)), fetch(("@a", 0, 7)), list_offsets(("@a", 0, -1, 100), version=0)]
    return script


def offsets_by_time() -> Script:
    times = [-3, -2, -1, 0, TIME_MS - 1, *(TIME_MS + 1000 * n + k for n in range(5) for k in (0, 1, 2, 3)), 2**62]
    script = filled(partitions=2, batches=4, index_interval_bytes=1, segment_bytes=1500)
    script += [
        create("@empty"),
        create("@old", 1, message_format_version="0.9.0"),
        create("@v1", 1, message_format_version="0.10.2"),
    ]
    out_of_order = ((TIME_MS + 2000, None, 5), (TIME_MS, None, 5), (TIME_MS + 1000, None, 5))
    for topic in ("@a", "@v1"):
        script += [produce(topic, Batch(out_of_order)), produce(topic, Batch(out_of_order, codec=1))]
    script += [produce_old("@old", Batch(records(), magic=0)), produce("@a", Batch(((-1, None, 5), (-5, None, 5))))]
    for version in range(4):
        for topic, partition in (("@a", 0), ("@a", 1), ("@empty", 0), ("@old", 0), ("@v1", 0), ("@nope", 0), ("@a", 9)):
            script += [list_offsets((topic, partition, time, 10), version=version) for time in times]
    script += [
        list_offsets(("@a", 0, -1), ("@a", 1, -1), ("@a", 0, -2), ("@empty", 0, -1)),
        list_offsets(("@a", 0, -1, 3), ("@a", 0, -2, 3), version=0),
        list_offsets(("@a", 0, -1), isolation_level=1),
        list_offsets(("@a", 0, TIME_MS), isolation_level=1),
        list_offsets(),
        call("ListOffsets", 2, replica_id=-1, topics=[("@a", [])]),
        list_offsets(("@a", 0, FromNow(3_600_000), 9), version=0),
        list_offsets(("@a", 0, FromNow(-3_600_000), 9), version=0),
    ]
    return script


def deleted_records() -> Script:
    script: Script = []
    for version in range(2):
        name = f"@{version}"
        script += [
            create(name, 2),
            produce(name, batch(5)),
            delete_records((name, 0, 2), (name, 1, 0), version=version),
            delete_records((name, 0, 1), version=version),
            delete_records((name, 0, 6), version=version),
            delete_records((name, 0, -2), version=version),
            delete_records((name, 0, -1), (name, 1, -1), (name, 2, -1), ("@nope", 0, 0), version=version),
            list_offsets((name, 0, -2), (name, 0, -1)),
            call("DeleteRecords", version, topics=[], timeout_ms=100),
            call("DeleteRecords", version, topics=[(name, [])], timeout_ms=100),
        ]
    return script


def down_conversion() -> Script:
    script: Script = [
        create_all(
            ("@a", 3, {}),
            ("@off", 1, {"message_downconversion_enable": "false"}),
            ("@append", 1, {"message_timestamp_type": "LogAppendTime"}),
        )
    ]
    kinds = [batch(4, 90, codec) for codec in ("none", "gzip", "snappy", "lz4")]
    kinds += [
        batch(rows=((TIME_MS, b"k", 50, (("header", b"value" * 30), ("other", None))), (TIME_MS - 5, None, None)))
    ]
    kinds += [batch(3, 400, producer=(5000, 0, 0), codec="gzip"), batch(6, -300, "snappy")]
    for number, kind in enumerate(kinds):
        script += [produce("@a", kind), produce("@off", kind), produce("@a", kind, number % 2 + 1)]
    script.append(produce("@append", kinds[0]))
    script += [produce_old("@a", batch(2, 70, "gzip", magic=magic), 2) for magic in (0, 1)]
    for version in range(4):
        script += [fetch(("@a", 0, offset), version=version) for offset in (0, 1, 5, 16, 17, 18, 21, 27)]
        script += [fetch(("@a", 0, 0, limit), version=version) for limit in (50, 300, 470, 600, 1000, 2000)]
        script += [fetch(("@a", 1, 0), ("@a", 2, 0), ("@off", 0, 0), ("@append", 0, 0), version=version)]
        script += [fetch(("@off", 0, 28), version=version), fetch(("@off", 0, 0), version=version, replica_id=5)]
        script += [
            fetch(("@a", 0, 0), version=version, replica_id=5),
            fetch(("@a", 0, 0, 100), version=version, replica_id=-2),
        ]
    return script


def sessions() -> Script:
    script = filled(batches=1)
    script += [
        fetch(("@a", 0, 0), ("@a", 1, 3), ("@nope", 0, 0), session=(0, 0), name="one"),
        fetch(session=in_session("one", 1)),
        fetch(("@a", 0, 3), session=in_session("one", 2)),
        fetch(session=in_session("one", 3)),
        produce("@a", batch(), 1),
        fetch(session=in_session("one", 4)),
        delete_records(("@a", 0, 2)),
        fetch(session=in_session("one", 5)),
        fetch(("@a", 2, 0), session=in_session("one", 6), forget=[("@a", [1]), ("@nope", [0])]),
        fetch(session=in_session("one", 7), version=7),
        fetch(session=in_session("one", 7)),
        fetch(session=in_session("one", 9)),
        fetch(("@a", 0, 0), session=in_session("one", 0), name="two"),
        fetch(session=in_session("one", 8)),
        fetch(("@a", 0, 1), session=in_session("two", 1)),
        fetch(("@a", 0, 2), session=in_session("two", 2), isolation_level=1),
        fetch(session=in_session("two", -1)),
        fetch(session=in_session("two", 3)),
        fetch(("@a", 0, 0), session=(123, 5)),
        fetch(("@a", 0, 0), session=(0, -3)),
        fetch(("@a", 1, 0), ("@a", 2, 0), ("@a", 0, 2), session=(0, 0), name="three", max_bytes=100),
        *(fetch(session=in_session("three", epoch), max_bytes=100) for epoch in range(1, 5)),
        fetch(session=in_session("three", 5), forget=[("@a", [0, 1, 2])]),
        fetch(session=in_session("three", 6)),
    ]
    return script
