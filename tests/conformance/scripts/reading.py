"""Reads: Fetch with every knob, ListOffsets, and where the log begins."""

from __future__ import annotations

from typing import Any

from tests.conformance.asking import (
    TIME_MS,
    UNLIMITED,
    Row,
    batch,
    create,
    create_all,
    delete_records,
    fetch,
    in_session,
    list_offsets,
    parked,
    produce,
    produce_old,
    records,
)
from tests.conformance.steps import Batch, FromNow, Script, Step, call, drop, look, take

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
    script += [fetch(("@a", 0, 0), ("@a", 1, 0), ("@nope", 0, 0), ("@a", 0, 3))]
    script += [fetch(("@a", 0, 0), ("@b", 0, 0), ("@a", 1, 0))]
    script += [fetch(("", 0, 0), ("no/such name", 0, 0), ("@a", 0, 0))]
    script += [call("Fetch", 8, replica_id=-1, max_wait_ms=20_000, min_bytes=1, session_id=0, topics=[("@a", [])])]
    script += [
        fetch(("@a", 0, offset), isolation_level=level) for offset, level in ((0, 1), (0, 2), (0, -1), (6, 1), (7, 1))
    ]
    return [*script, fetch(("@a", 0, 0), isolation_level=1, version=4)]


def readers() -> Script:
    """Readers: consumers, followers that are and are not replicas, the debugging and the future replica."""
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
    waits: dict[str, Any] = {**parked("other"), "max_wait_ms": 25_000}
    script = filled(batches=1, size=100)
    at_end, start = ("@a", 0, 3), ("@a", 1, 0)
    asked: list[tuple[list[Row], dict[str, Any]]] = [
        *(([at_end], {"min_bytes": min_bytes}) for min_bytes in (1, 0, -1)),
        *(([at_end, start], options) for options in ({}, {"min_bytes": 5000}, {"min_bytes": 5000, "version": 2})),
        *(([at_end, other], {}) for other in (("@nope", 1, 0), ("@a", 1, 9))),
        *(([at_end], options) for options in ({"isolation_level": 1}, {"replica_id": 5})),
        *(([("@a", 2, 0, 10)], {"min_bytes": 11, "version": version}) for version in (2, 8)),
        ([at_end], {"max_bytes": 0}),
        ([("@a", 2, 0)], {"max_bytes": 0, "min_bytes": 5000}),
    ]
    for rows, options in asked:
        script += [fetch(*rows, **{**waits, **options}), drop("other")]
    script += [fetch(("@a", 0, 3), ("@a", 1, 3), **waits), produce("@a", batch(1, 50), 2), look("other")]
    script += [produce("@a", batch(1, 50), 1), take("other"), fetch(("@a", 0, 3), ("@a", 1, 4), **waits, min_bytes=300)]
    for partition in (0, 1, 1):
        script += [produce("@a", batch(1, 50), partition), look("other")]
    script += [produce("@a", batch(1, 150), 0), take("other")]
    script += [
        fetch(("@a", 0, 5, 40), **waits, min_bytes=50),
        produce("@a", batch(1, 150), 0),
        look("other"),
        drop("other"),
    ]
    script += [fetch(("@a", 2, 4), **waits), call("DeleteRecords", 1, topics=[("@a", [(2, 4)])], timeout_ms=1000)]
    script += [look("other"), drop("other"), create("@b")]
    return [*script, fetch(("@b", 0, 0), ("@a", 2, 4), max_wait_ms=150, **parked("other")), take("other")]


def rolled_segments() -> Script:
    script = filled(partitions=1, batches=9, size=100, segment_bytes=1000, index_interval_bytes=300)
    script += [fetch(("@a", 0, offset, 2000)) for offset in range(0, 28, 2)]
    script += [fetch(("@a", 0, 0, limit)) for limit in (500, 1000, 3000, UNLIMITED)]
    waits: dict[str, Any] = {**parked("other"), "max_wait_ms": 25_000, "min_bytes": 100_000}
    script += [fetch(("@a", 0, 0), **waits), drop("other"), fetch(("@a", 0, 26), **waits)]
    script += [produce("@a", batch(1, 700)), look("other")] * 2 + [drop("other")]
    for maximum in (0, 1, 2, 100, -1):
        script += [list_offsets(("@a", 0, time, maximum), version=0) for time in (-1, -2, 0, 2**62, -3)]
    script += [delete_records(("@a", 0, 7)), fetch(("@a", 0, 7)), list_offsets(("@a", 0, -1, 100), version=0)]
    return script


def offsets_by_time() -> Script:
    times = [-3, -2, -1, 0, TIME_MS - 1, *(TIME_MS + 1000 * n + k for n in range(5) for k in (0, 1, 2, 3)), 2**62]
    script = filled(partitions=2, batches=4, index_interval_bytes=1, segment_bytes=1500)
    script += [create("@empty"), create("@old", 1, message_format_version="0.9.0")]
    script += [create("@v1", 1, message_format_version="0.10.2")]
    out_of_order = ((TIME_MS + 2000, None, 5), (TIME_MS, None, 5), (TIME_MS + 1000, None, 5))
    for topic in ("@a", "@v1"):
        script += [produce(topic, Batch(out_of_order)), produce(topic, Batch(out_of_order, codec=1))]
    script += [produce_old("@old", Batch(records(), magic=0)), produce("@a", Batch(((-1, None, 5), (-5, None, 5))))]
    for version in range(4):
        for topic, partition in (("@a", 0), ("@a", 1), ("@empty", 0), ("@old", 0), ("@v1", 0), ("@nope", 0), ("@a", 9)):
            script += [list_offsets((topic, partition, time, 10), version=version) for time in times]
    script += [list_offsets(("@a", 0, -1), ("@a", 1, -1), ("@a", 0, -2), ("@empty", 0, -1))]
    script += [list_offsets(("@a", 0, -1, 3), ("@a", 0, -2, 3), version=0)]
    script += [list_offsets(("@a", 0, time), isolation_level=1) for time in (-1, TIME_MS)]
    script += [list_offsets(), call("ListOffsets", 2, replica_id=-1, topics=[("@a", [])])]
    return script + [list_offsets(("@a", 0, FromNow(delta_ms), 9), version=0) for delta_ms in (3_600_000, -3_600_000)]


def deleted_records() -> Script:
    script: Script = []
    for version in range(2):
        name = f"@{version}"
        script += [create(name, 2), produce(name, batch(5))]
        script += [delete_records((name, 0, 2), (name, 1, 0), version=version)]
        script += [delete_records((name, 0, offset), version=version) for offset in (1, 6, -2)]
        script += [delete_records((name, 0, -1), (name, 1, -1), (name, 2, -1), ("@nope", 0, 0), version=version)]
        script += [list_offsets((name, 0, -2), (name, 0, -1))]
        nothing: list[list[Row]] = [[], [(name, [])]]
        script += [call("DeleteRecords", version, topics=topics, timeout_ms=100) for topics in nothing]
    return script


def down_conversion() -> Script:
    off, append_time = {"message_downconversion_enable": "false"}, {"message_timestamp_type": "LogAppendTime"}
    script: Script = [create_all(("@a", 3, {}), ("@off", 1, off), ("@append", 1, append_time))]
    kinds = [batch(4, 90, codec) for codec in ("none", "gzip", "snappy", "lz4")]
    headers = (("header", b"value" * 30), ("other", None))
    kinds += [batch(rows=((TIME_MS, b"k", 50, headers), (TIME_MS - 5, None, None)))]
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
        script += [fetch(("@a", 0, 0), version=version, replica_id=5)]
        script += [fetch(("@a", 0, 0, 100), version=version, replica_id=-2)]
    return script


def sessions() -> Script:
    def go_on(begun_by: str, epoch: int, *rows: Row, **options: Any) -> Step:
        return fetch(*rows, session=in_session(begun_by, epoch), **options)

    script = filled(batches=1)
    script += [fetch(("@a", 0, 0), ("@a", 1, 3), ("@nope", 0, 0), session=(0, 0), name="one")]
    script += [
        go_on("one", 1),
        go_on("one", 2, ("@a", 0, 3)),
        go_on("one", 3),
        produce("@a", batch(), 1),
        go_on("one", 4),
    ]
    script += [delete_records(("@a", 0, 2)), go_on("one", 5)]
    script += [go_on("one", 6, ("@a", 2, 0), forget=[("@a", [1]), ("@nope", [0])]), go_on("one", 7, version=7)]
    script += [go_on("one", 7), go_on("one", 9), go_on("one", 0, ("@a", 0, 0), name="two"), go_on("one", 8)]
    script += [go_on("two", 1, ("@a", 0, 1)), go_on("two", 2, ("@a", 0, 2), isolation_level=1)]
    script += [go_on("two", -1), go_on("two", 3)]
    script += [fetch(("@a", 0, 0), session=session) for session in ((123, 5), (0, -3))]
    script += [fetch(("@a", 1, 0), ("@a", 2, 0), ("@a", 0, 2), session=(0, 0), name="three", max_bytes=100)]
    script += [go_on("three", epoch, max_bytes=100) for epoch in range(1, 5)]
    return [*script, go_on("three", 5, forget=[("@a", [0, 1, 2])]), go_on("three", 6)]
