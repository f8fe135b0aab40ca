"""Records written right and wrong, in every version, codec and format."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tests.conformance.asking import (
    CODECS,
    TIME_MS,
    batch,
    create,
    create_all,
    fetch,
    just_now,
    list_offsets,
    produce,
    produce_all,
    produce_old,
    records,
)
from tests.conformance.steps import Batch, FromNow, Joined, Script, call

FORMATS = {"v0": "0.9.0", "v1": "0.10.2", "v2": "2.0"}


def versions_and_codecs() -> Script:
    script: Script = [create("@a", 2)]
    for version in range(3, 7):
        script += [produce("@a", batch(3, 30, codec), version=version) for codec in CODECS]
    for version in range(3):
        for magic in (0, 1):
            script += [produce("@a", batch(3, 30, codec, magic=magic), 1, version=version) for codec in CODECS]
    return [*script, fetch(("@a", 0, 0), ("@a", 1, 0)), *(fetch(("@a", 1, 3), version=each) for each in range(8))]


def into_format(topic_format: str) -> Script:
    """Every magic and codec into a topic of one format."""
    configs = {"message_format_version": FORMATS[topic_format]}
    append_time = {**configs, "message_timestamp_type": "LogAppendTime"}
    script: Script = [create_all(("@create", 1, configs), ("@append", 1, append_time))]
    for topic in ("@create", "@append"):
        for codec in CODECS:
            for magic in (0, 1):
                script.append(produce_old(topic, batch(3, 40, codec, magic=magic, first_offset=5)))
                script.append(produce_old(topic, batch(1, 40, codec, magic=magic)))
            script.append(produce(topic, batch(3, 40, codec)))
            script.append(produce(topic, batch(1, 40, codec, rows=((TIME_MS, None, None, (("h", b"1"),)),))))
        # What compressed times come to in bytes is a matter of time, and with it how far a conversion is filled up.
        versions = (2, 4, 8) if topic == "@append" else (0, 2, 4, 8)
        script += [fetch((topic, 0, 0), version=version) for version in versions]
        script += [list_offsets((topic, 0, time)) for time in (-1, -2, TIME_MS + 1, TIME_MS + 100)]
    return script


def into_codec(target: str) -> Script:
    """Every codec and magic into a topic that has a codec of its own."""
    script: Script = [create("@a", 1, compression_type=target)]
    for codec in CODECS:
        script += [produce("@a", batch(4, 60, codec)), produce("@a", batch(1, 60, codec))]
        script += [produce_old("@a", batch(2, 60, codec, magic=magic)) for magic in (0, 1)]
    return [*script, fetch(("@a", 0, 0))]


def several_batches() -> Script:
    one, other = batch(2, 20), batch(3, 30, "gzip")
    old = [batch(2, 20, magic=magic) for magic in (0, 1)]
    old_format, gzip = {"message_format_version": "0.10.2"}, {"compression_type": "gzip"}
    script: Script = [create_all(("@a", 1, {}), ("@old", 1, old_format), ("@gzip", 1, gzip))]
    script += [
        produce_old("@a", Joined(parts)) for parts in ((one, other), (one, one), (old[0], old[1]), (old[1], one))
    ]
    script += [produce_old("@old", Joined((one, other))), produce_old("@old", Joined((old[0], old[1], one)))]
    script += [produce_old("@gzip", Joined((one, old[0])))]
    script += [produce_old("@a", Joined((one, batch(2, 20)), cut=cut)) for cut in (3, 80)]
    return [*script, produce("@a", Joined((one, other))), fetch(("@a", 0, 0), ("@old", 0, 0), ("@gzip", 0, 0))]


def wrong_batches() -> Script:
    """Bytes no honest producer sends."""
    # Where what is overwritten is, its form, whether the CRC is made right again; and with what.
    edits: list[tuple[int, str, bool, tuple[int, ...]]] = [
        (17, ">I", False, (0,)),
        (70, ">b", False, (1,)),
        (16, ">b", False, (3, -1)),
        (8, ">i", False, (0, -1, 20, 48, 2**31 - 1)),
        (57, ">i", True, (4, 2, 0, -1)),
        (23, ">i", True, (7, 0, -1)),
        (0, ">q", False, (9, -9)),
        (12, ">i", False, (99,)),
        (21, ">h", True, (8, 16, 32, 0x40)),
    ]
    script: Script = [create("@a")]
    for position, form, is_resealed, numbers in edits:
        for number in numbers:
            wrong = Batch(records(), edits=((position, form, number),), is_resealed=is_resealed)
            script += [produce("@a", wrong), produce_old("@a", wrong)]
    cut, longer = Joined((batch(),), cut=1), Joined((batch(), b"12345"))
    for what in (None, b"", b"\0", b"\0" * 12, b"\0" * 61, b"x" * 100, cut, longer):
        script += [produce("@a", what), produce_old("@a", what)]
    script += [produce("@a", batch(1, rows=((TIME_MS, b"k", b"v"),), is_control=True)), fetch(("@a", 0, 0))]
    return [*script, list_offsets(("@a", 0, -1))]


def wrong_messages() -> Script:
    """Message sets no honest producer sends."""
    script: Script = [create_all(("@a", 1, {}), ("@old", 1, {"message_format_version": "0.10.2"}))]
    for topic in ("@a", "@old"):
        for magic in (0, 1):
            edits = [
                (12, ">I", 0),
                *((8, ">i", size) for size in (0, 13, 1 << 20)),
                (16, ">b", 3),
                (16, ">b", 1 - magic),
            ]
            for edit in (*edits, (17, ">b", 1), (17, ">b", 8), (0, ">q", -4)):
                script.append(produce_old(topic, Batch(records(2), magic=magic, edits=(edit,))))
                script.append(produce_old(topic, Batch(records(2), magic=magic, codec=1, edits=(edit,))))
            script.append(produce(topic, Batch(records(2), magic=magic)))
        script.append(fetch((topic, 0, 0)))
    return script


def acks_and_names() -> Script:
    script: Script = [create("@a", 2), create("@two", 1, min_insync_replicas=2)]
    for acks in (-1, 0, 1, 2, -2, 100):
        script += [produce("@a", batch(1), acks=acks), produce("@two", batch(1), acks=acks)]
        script += [produce("@nope", batch(1), acks=acks), produce("@a", batch(1), 9, acks=acks)]
        script += [produce("@a", batch(1), -1, acks=acks, version=version) for version in (0, 1, 2, 3, 4, 5, 6)]
    both = [(0, batch(1)), (1, batch(2))]
    script += [produce_all(("@a", both), ("@nope", both), ("@two", [(0, batch(1))]))]
    script += [produce_all(("@a", [*both, (0, batch(3))]), ("@a", [(1, batch(4))]))]
    script += [produce_all(("@a", [])), produce_all(), produce_all(acks=0), produce_all(acks=7)]
    script += [produce("__consumer_offsets", batch(1))]
    script += [produce("__consumer_offsets", batch(1), client_id="__admin_client")]
    script += [produce("@a", batch(1), client_id=None), produce("@a", batch(1), transactional_id="@t")]
    script += [produce("@a", batch(1), version=0), produce("no/such name", batch(1)), produce("", batch(1))]
    return [*script, fetch(("@a", 0, 0), ("@a", 1, 0), ("@two", 0, 0))]


def sizes() -> Script:
    script: Script = [
        create_all(
            ("@small", 1, {"max_message_bytes": 200}),
            ("@segment", 1, {"segment_bytes": 300}),
            ("@gzip", 1, {"max_message_bytes": 200, "compression_type": "gzip"}),
        ),
    ]
    for topic in ("@small", "@segment", "@gzip"):
        for size in (50, 120, 131, 132, 133, 140, 230, 231, 232, 233, 400):
            one = batch(rows=((TIME_MS, None, size),))
            script += [produce(topic, one), produce_old(topic, batch(magic=1, rows=((TIME_MS, None, -size),)))]
        script += [produce(topic, batch(4, 100, "gzip")), produce_old(topic, batch(4, 100, "gzip", magic=1))]
        script += [produce_old(topic, Joined((batch(1, 100), batch(1, 100), batch(1, 100))))]
        script += [fetch((topic, 0, 0)), list_offsets((topic, 0, -1, 100), version=0)]
    return script


def timestamps() -> Script:
    near = {"message_timestamp_difference_max_ms": 3_600_000}
    script: Script = [
        create_all(
            ("@near", 1, near),
            ("@append", 1, {**near, "message_timestamp_type": "LogAppendTime"}),
            ("@old", 1, {**near, "message_format_version": "0.10.2"}),
        ),
    ]
    for topic in ("@near", "@append", "@old"):
        early, late = just_now(2, -7_200_000), just_now(2, 7_200_000)
        for rows in (just_now(), records(), early, late, ((-1, b"k", 5),), (*just_now(1), *records(1))):
            script += [produce(topic, batch(rows=rows)), produce(topic, batch(rows=rows, codec="gzip"))]
            script += [produce_old(topic, batch(rows=rows, magic=magic)) for magic in (0, 1)]
        script.append(produce(topic, Batch(records(), edits=((21, ">h", 8),), is_resealed=True)))
        script.append(produce_old(topic, Batch(((FromNow(0), b"k", 5),), magic=1, edits=((17, ">b", 8),))))
        script.append(list_offsets((topic, 0, -1), (topic, 0, -2)))
    return script


def keys_of_compacted_topics() -> Script:
    script: Script = [create("@a", 1, cleanup_policy="compact"), create("@both", 1, cleanup_policy="compact,delete")]
    for topic in ("@a", "@both"):
        for codec in CODECS:
            script.append(produce(topic, batch(2, 20, codec)))
            script.append(produce(topic, batch(codec=codec, rows=((TIME_MS, b"k", 9), (TIME_MS, None, 9)))))
            script += [produce_old(topic, batch(codec=codec, magic=1, rows=((TIME_MS, None, 9),)))]
        script += [fetch((topic, 0, 0)), call("DeleteRecords", 1, topics=[(topic, [(0, 1)])], timeout_ms=1000)]
    return script


def idempotent_producers() -> Script:
    def write(producer_id: int, epoch: int, sequence: int, count: int = 2, topic: str = "@a", **options: Any) -> Script:
        given = Batch(records(count), producer=(producer_id, epoch, sequence), **options)
        return [produce(topic, given)]

    script: Script = [
        create("@a"),
        create("@old", 1, message_format_version="0.10.2"),
        create("@append", 1, message_timestamp_type="LogAppendTime"),
    ]
    script += [
        call("InitProducerId", version, transactional_id=None, transaction_timeout_ms=1000) for version in (0, 1)
    ]
    for sequence in (0, 2, 4, 6, 8, 10):
        script += write(1000, 0, sequence)
    for sequence in (10, 8, 2, 0, 3, 11, 13, 12):
        script += write(1000, 0, sequence)
    script += write(1000, 0, 12, 1) + write(1000, 0, 12, 3) + write(1000, 0, 14, 2, is_transactional=True)
    script += write(1000, 1, 5) + write(1000, 1, 0) + write(1000, 0, 14) + write(1000, 1, 2) + write(1000, 1, 0)
    script += write(1001, 0, 5) + write(1001, 3, 0) + write(1001, 2, 2) + write(1001, 3, 2) + write(1001, 3, 2)
    script += write(1002, 0, -1) + write(1002, -1, 0) + write(1002, -1, -1) + write(-5, 0, 0)
    script += write(1003, 0, 2**31 - 1) + write(1003, 0, 0) + write(1003, 32767, 0) + write(1003, 0, 2)
    script += write(1004, 0, 0, codec=1) + write(1004, 0, 0, codec=1) + write(1004, 0, 2, codec=3)
    script += write(1005, 0, 0, topic="@old") + write(1005, 0, 0, topic="@append") + write(1005, 0, 0, topic="@append")
    script += write(1006, 0, 0, is_transactional=True) + write(1006, 0, 2) + write(1006, 0, 2, is_transactional=True)
    script += [produce_old("@a", Joined(tuple(Batch(records(2), producer=(1007, 0, each)) for each in (0, 2, 4))))]
    script += [produce_old("@a", Joined(tuple(Batch(records(2), producer=(1007, 0, each)) for each in (2, 4))))]
    script += [produce_old("@a", Joined(tuple(Batch(records(2), producer=(1007, 0, each)) for each in (6, 9))))]
    script += write(1007, 0, 6)
    script += [fetch(("@a", 0, 0)), fetch(("@a", 0, 0), isolation_level=1), fetch(("@a", 0, 0), version=3)]
    return [*script, list_offsets(("@a", 0, -1)), list_offsets(("@a", 0, -1), isolation_level=1)]


PRODUCING: dict[str, Callable[[], Script]] = {
    "versions_and_codecs": versions_and_codecs,
    **{f"into_format_{each}": partial(into_format, each) for each in FORMATS},
    **{f"into_codec_{each}": partial(into_codec, each) for each in ("uncompressed", "gzip", "snappy", "lz4")},
    "several_batches": several_batches,
    "wrong_batches": wrong_batches,
    "wrong_messages": wrong_messages,
    "acks_and_names": acks_and_names,
    "sizes": sizes,
    "timestamps": timestamps,
    "keys_of_compacted_topics": keys_of_compacted_topics,
    "idempotent_producers": idempotent_producers,
}
