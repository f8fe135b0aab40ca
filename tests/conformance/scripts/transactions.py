"""Transactional producers, right and wrong, and what read_committed readers see of them.

Apache Kafka writes the markers of a transaction after it has answered: a script that needs them written ends the
transaction once more, the same way, until that is not refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from minibroker.protocol.errors import ErrorCode
from tests.conformance.asking import (
    TIME_MS,
    batch,
    create,
    create_all,
    delete_records,
    fetch,
    list_offsets,
    produce,
    records,
)
from tests.conformance.steps import Batch, ProducerOf, Script, Step, call, look, take

COORDINATOR_IS_NEW = (
    int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    int(ErrorCode.COORDINATOR_NOT_AVAILABLE),
    int(ErrorCode.NOT_COORDINATOR),
)
CONCURRENT = (int(ErrorCode.CONCURRENT_TRANSACTIONS),)
READ_COMMITTED = 1


def find(key: str = "@t", key_type: int = 1) -> Step:
    return call("FindCoordinator", 1, key=key, key_type=key_type, retry=COORDINATOR_IS_NEW)


def init(name: str = "p", transactional_id: str = "@t", *, version: int = 1, timeout_ms: int = 60_000) -> Step:
    who: dict[str, Any] = {"transactional_id": transactional_id, "transaction_timeout_ms": timeout_ms}
    return call("InitProducerId", version, name=name, retry=(*COORDINATOR_IS_NEW, *CONCURRENT), **who)


def init_once(transactional_id: str = "@t", *, timeout_ms: int = 60_000) -> Step:
    """Not asked again: Apache Kafka says CONCURRENT_TRANSACTIONS when it has to abort first."""
    return call("InitProducerId", 1, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)


def of(epoch: int = 0, name: str = "p", transactional_id: str = "@t") -> dict[str, Any]:
    """The asking producer, made by the step of that name."""
    return {"transactional_id": transactional_id, "producer_id": ProducerOf(name), "producer_epoch": epoch}


def add(topic: str = "@a", *partitions: int, version: int = 1, **who: Any) -> Step:
    topics = [(topic, list(partitions or (0,)))]
    return call("AddPartitionsToTxn", version, topics=topics, retry=CONCURRENT, **(of() | who))


def write(sequence: int, count: int = 2, topic: str = "@a", *, epoch: int = 0, name: str = "p", **options: Any) -> Step:
    options = {"is_transactional": True, **options}
    given = Batch(records(count), producer=(ProducerOf(name), epoch, sequence), **options)
    return produce(topic, given, transactional_id="@t")


def end(is_commit: bool = True, *, version: int = 1, **who: Any) -> Step:
    return call("EndTxn", version, is_commit=is_commit, **(of() | who))


def ended(is_commit: bool = True, **who: Any) -> list[Step]:
    """End, and wait until that is done."""
    return [end(is_commit, **who), call("EndTxn", 1, is_commit=is_commit, retry=CONCURRENT, **(of() | who))]


def seen(
    *topics: str, offsets: Iterable[int] = (0,), times: Iterable[int] = (-1, -2, TIME_MS, TIME_MS + 1)
) -> list[Step]:
    """Show what readers of both kinds get."""
    steps = []
    for topic in topics or ("@a",):
        for level in (0, READ_COMMITTED):
            steps += [fetch((topic, 0, offset), isolation_level=level) for offset in offsets]
            steps += [list_offsets((topic, 0, time), isolation_level=level) for time in times]
    return steps


def transactions_committed_and_aborted() -> Script:
    script: Script = [create("@a"), find(), init()]
    script += [add(), write(0), *seen(), *ended(), *seen()]
    script += [add(), write(2), write(4), *seen(), *ended(False), *seen(offsets=range(9))]
    script += [add(), write(6, 1), write(7, 1), *ended()]
    script += [add(), *ended(False), add(), *ended()]
    script += [add(), write(8, 3), *ended(False), *seen(offsets=range(0, 18, 2))]
    return [*script, fetch(("@a", 0, 0, 150), isolation_level=READ_COMMITTED), fetch(("@a", 0, 5), version=3)]


def transactions_of_several_producers() -> Script:
    """Transactions that lie in each other: the last stable offset is the first that is open."""
    names = ("p", "q", "r")
    who = {name: of(name=name, transactional_id=f"@{name}") for name in names}
    script: Script = [create("@a", 2)]
    for name in names:
        script += [find(f"@{name}"), init(name, f"@{name}"), add("@a", 0, 1, **who[name])]
    for sequence in (0, 2):
        script += [write(sequence, name=name) for name in names]
    script += [produce("@a", Batch(records(1))), *seen()]
    for name, is_commit in (("q", True), ("p", False), ("r", True)):
        script += [*ended(is_commit, **who[name]), *seen(offsets=(0, 3, 8))]
    script += [add("@a", 0, **who["p"]), write(4), add("@a", 0, **who["q"]), write(4, name="q")]
    script += [*ended(False, **who["q"]), *seen(), *ended(False, **who["p"]), *seen(offsets=range(0, 20, 3))]
    return script


def transactions_across_segments() -> Script:
    """Aborted transactions that begin in one segment and end in another, read from everywhere in pieces."""
    who = {name: of(name=name, transactional_id=f"@{name}") for name in ("p", "q")}
    script: Script = [create("@a", 1, segment_bytes=700, index_interval_bytes=150)]
    for name in who:
        script += [find(f"@{name}"), init(name, f"@{name}")]
    sequences = dict.fromkeys(who, 0)
    for number in range(8):
        for name in ("p", "q", "p") if number % 3 else ("q", "p"):
            script += [add("@a", 0, **who[name]), write(sequences[name], name=name)]
            sequences[name] += 2
        script += ended(number % 4 == 0, **who["pq"[number % 2]])
    limits = (1, 150, 400, 1 << 20)
    script += [
        fetch(("@a", 0, offset, limit), isolation_level=READ_COMMITTED)
        for offset in range(0, 56, 2)
        for limit in limits
    ]
    return [*script, *ended(False, **who["p"]), *seen(offsets=range(0, 60, 4), times=(-1, -2))]


def transactional_identities() -> Script:
    """Epochs, and who is shut out."""
    script: Script = [create("@a"), find(), init()]
    script += [init_once("@x", timeout_ms=timeout_ms) for timeout_ms in (0, -1, 900_001, 2**31 - 1)]
    script += [init_once(""), call("InitProducerId", 0, transactional_id=None, transaction_timeout_ms=0)]
    script += [init(version=0), add(), add(producer_epoch=1), end(producer_epoch=0)]
    script += [add(producer_epoch=1), write(0, epoch=1), write(0, epoch=0), end(producer_epoch=0)]
    script += [init_once(), init(), add(producer_epoch=1), add(producer_epoch=2), write(2, epoch=1), write(0, epoch=1)]
    script += [add(producer_epoch=3), write(2, epoch=3), write(0, epoch=3), write(2, epoch=3), write(1, epoch=3)]
    script += [*ended(producer_epoch=3), *ended(producer_epoch=2), *seen()]
    script += [add(producer_epoch=3), init_once(), init(), write(4, epoch=3), write(0, epoch=4), *seen()]
    return script


def transactions_in_wrong_order() -> Script:
    """Requests that a transactional producer may not send."""
    nobody: dict[str, Any] = {"transactional_id": "@nobody"}
    no_id: dict[str, Any] = {"transactional_id": ""}
    script: Script = [create("@a", 2), create("@old", 1, message_format_version="0.10.2"), find(), find("@nobody")]
    script += [add(**nobody), end(**nobody), add(**no_id), end(**no_id)]
    script += [call("AddOffsetsToTxn", 1, group_id="@g", **(of() | each)) for each in (nobody, no_id)]
    script += [init(), end(), end(False), call("AddOffsetsToTxn", 1, group_id="@g", **of(epoch=5))]
    script += [add(producer_id=12_345), end(producer_id=12_345), add(producer_epoch=-1), end(producer_epoch=-1)]
    script += [add("@a", 7), add("@a", 0, 7), add("@nope"), add("__consumer_offsets"), add("__transaction_state")]
    script += [call("AddPartitionsToTxn", 1, topics=[("@a", [0, 1]), ("@nope", [0]), ("@old", [0])], **of())]
    script += [call("AddPartitionsToTxn", 1, topics=[("@a", [0, 0]), ("@a", [1])], **of())]
    script += [call("AddPartitionsToTxn", version, topics=[], **of()) for version in (0, 1)]
    script += [*ended(), end(False), end(False, version=0), end(version=0)]
    script += [add(), *ended(False), end(), end(False)]
    script += [write(0), write(2, is_transactional=False), write(3), write(2), write(2), *ended(False), *seen()]
    script += [add(), *ended(False), *seen(), write(4, is_transactional=False), write(6), *seen()]
    script += [add("@old"), *ended(), *seen("@a", "@old")]
    return script


def transaction_markers() -> Script:
    """WriteTxnMarkers from outside: another coordinator, older, newer, wrong."""

    def marker(
        *topics: Any, epoch: int = 0, coordinator_epoch: int = 0, is_commit: bool = True, name: Any = "p"
    ) -> tuple[Any, ...]:
        producer_id = ProducerOf(name) if isinstance(name, str) else name
        return (producer_id, epoch, is_commit, list(topics), coordinator_epoch, 0)

    def mark(*rows: Any) -> Step:
        return call("WriteTxnMarkers", 0, markers=list(rows))

    every = [("@a", [0, 1, 9]), ("@old", [0]), ("@nope", [0]), ("@gzip", [0]), ("@append", [0]), ("@compact", [0])]
    script: Script = [
        create_all(
            ("@a", 2, {}),
            ("@old", 1, {"message_format_version": "0.10.2"}),
            ("@gzip", 1, {"compression_type": "gzip"}),
            ("@append", 1, {"message_timestamp_type": "LogAppendTime"}),
            ("@compact", 1, {"cleanup_policy": "compact"}),
        ),
        find(),
        init(),
    ]
    for topic in ("@a", "@gzip", "@append", "@compact"):
        script += [write(0, topic=topic), write(2, topic=topic)]
    script += [mark(), mark(marker(*every)), *seen("@a", "@gzip", "@compact"), fetch(("@append", 0, 0))]
    script += [write(4), mark(marker(("@a", [0]), coordinator_epoch=3, is_commit=False)), *seen()]
    script += [mark(marker(("@a", [0]), coordinator_epoch=2)), mark(marker(("@a", [0]), coordinator_epoch=3))]
    script += [mark(marker(("@a", [0]), coordinator_epoch=3, epoch=-1)), mark(marker(("@a", [0]), name=54_321))]
    script += [mark(marker(("@a", [0]), coordinator_epoch=3, epoch=4)), write(6), write(6, epoch=4), write(0, epoch=4)]
    script += [mark(marker(("@nope", [0]))), mark(marker(("@old", [0]), ("@a", [5]))), mark(marker())]
    two = marker(("@a", [0]), coordinator_epoch=1, epoch=4), marker(("@a", [1]), epoch=4, is_commit=False)
    return [*script, mark(*two), mark(marker(("@a", [1]), epoch=5, name=99)), *seen(offsets=range(0, 14, 2))]


def transactions_and_deleted_records() -> Script:
    """The start of the log moves into, and past, a transaction."""
    script: Script = [create("@a"), find(), init(), add(), write(0), write(2), delete_records(("@a", 0, 1))]
    script += [*seen(offsets=(1, 2), times=(-1, -2)), delete_records(("@a", 0, -1))]
    script += [*seen(offsets=(4,), times=(-1, -2)), write(4), *ended(False)]
    script += [*seen(offsets=(4, 5, 6), times=(-1, -2)), add(), write(6), delete_records(("@a", 0, -1)), *ended()]
    return [*script, *seen(offsets=(9,), times=(-1, -2))]


def transactions_and_parked_readers() -> Script:
    """A read_committed fetch waits for the end of the transaction, not for its records."""

    def park(connection: str, min_bytes: int = 1) -> Step:
        waits: dict[str, Any] = {"max_wait_ms": 20_000, "min_bytes": min_bytes, "kind": "park"}
        return fetch(("@a", 0, 0), isolation_level=READ_COMMITTED, connection=connection, **waits)

    script: Script = [create("@a"), find(), init(), add(), park("one"), write(0), look("one"), write(2), look("one")]
    return [*script, park("two", min_bytes=200), *ended(), take("one"), take("two")]


def transactional_offsets() -> Script:
    """Offsets that count with the transaction: shown by OffsetFetch, and in the way of nobody before."""

    def commit(offset: int, topic: str = "@a", *, version: int = 1, metadata: str | None = "m", **who: Any) -> Step:
        rows = [(topic, [(0, offset, -1, metadata)])]
        return call("TxnOffsetCommit", version, group_id=who.pop("group_id", "@g"), topics=rows, **(of() | who))

    def fetched() -> Step:
        return call("OffsetFetch", 3, group_id="@g", topics=[("@a", [0, 1])])

    def add_offsets(**who: Any) -> Step:
        return call("AddOffsetsToTxn", 1, group_id="@g", retry=CONCURRENT, **(of() | who))

    script: Script = [create("@a", 2), find(), find("@g", 0), init(), fetched(), add_offsets(), commit(5), fetched()]
    script += [*ended(), fetched(), add_offsets(), commit(9), commit(11, metadata=None), *ended(False), fetched()]
    script += [add_offsets(), commit(7, version=0), commit(1, "@nope"), commit(8), *ended(), fetched()]
    script += [commit(20, group_id=""), commit(21, producer_id=12_345), fetched()]
    script += [commit(30, metadata="x" * 5000), call("TxnOffsetCommit", 1, group_id="@g", topics=[], **of())]
    return [*script, add_offsets(), *ended(False), fetched()]


def transactions_whose_markers_are_missing() -> Script:
    """A partition that has too few replicas for its marker keeps the transaction from being complete."""
    script: Script = [create_all(("@a", 1, {"min_insync_replicas": 2}), ("@b", 1, {}))]
    for number, is_commit in enumerate((True, False)):
        who = of(name=f"p{number}", transactional_id=f"@{number}")
        script += [find(f"@{number}"), init(f"p{number}", f"@{number}"), add("@a", **who), add("@b", **who)]
        ends = (is_commit, not is_commit, is_commit, not is_commit)
        script += [*(end(each, **who) for each in ends), init_once(f"@{number}")]
        script.append(call("AddPartitionsToTxn", 1, topics=[("@b", [0])], **who))
        script.append(call("AddOffsetsToTxn", 1, group_id="@g", **who))
    # Without the topic nothing is missing any more.
    return [*script, call("DeleteTopics", 1, topic_names=["@a"], timeout_ms=20_000)]


def transactional_offsets_of_producers_that_cannot_be() -> Script:
    """With epochs that rise: Apache Kafka 2.0.1 does not fence these commits, this broker does."""
    script: Script = [create("@a", 2), find(), find("@g", 0), init()]
    for producer in (ProducerOf("p"), -1, -2, 5):
        for epoch in (0, -1, 7):
            group = f"@of{producer if isinstance(producer, int) else 'p'}{epoch}"
            rows = [("@a", [(0, 5, -1, "m")]), ("@nope", [(0, 1, -1, "")])]
            identity = of() | {"producer_id": producer, "producer_epoch": epoch}
            script += [call("TxnOffsetCommit", 1, group_id=group, topics=rows, **identity), *_seen_of(group)]
    for rows in ([("@a", [(0, 5, -1, "m" * 5000)])], [("@nope", [(0, 1, -1, "")])]):
        identity = of() | {"producer_epoch": -1}
        script += [call("TxnOffsetCommit", 1, group_id="@refused", topics=rows, **identity), *_seen_of("@refused")]
    return script


def _seen_of(group: str) -> list[Step]:
    return [
        call("DescribeGroups", 1, groups=[group]),
        call("ListGroups", 1),
        call("OffsetFetch", 2, group_id=group, topics=None),
    ]


def topics_and_groups_deleted_in_transactions() -> Script:
    """A group whose only offsets wait in a transaction stays Empty without their topic, until that has ended."""

    def commit(group: str, topic: str, metadata: str = "m") -> list[Step]:
        rows = [(topic, [(0, 5, -1, metadata)])]
        return [
            call("AddOffsetsToTxn", 1, group_id=group, retry=CONCURRENT, **of()),
            call("TxnOffsetCommit", 1, group_id=group, topics=rows, **of()),
            *_seen_of(group),
        ]

    def without(topic: str) -> Step:
        return call("DeleteTopics", 1, topic_names=[topic], timeout_ms=20_000)

    script: Script = [create_all(*((f"@{each}", 1, {}) for each in "abcdz")), find(), find("@g", 0), init()]
    script += [*commit("@g", "@a"), without("@a"), *_seen_of("@g"), call("DeleteGroups", 1, group_names=["@g"])]
    script += [*_seen_of("@g"), *ended(), *_seen_of("@g")]
    script += [*commit("@h", "@b"), without("@b"), *ended(), *_seen_of("@h"), without("@z"), *_seen_of("@h")]
    script += [*commit("@i", "@c", "m" * 5000), *ended(False), *_seen_of("@i"), without("@c"), *_seen_of("@i")]
    script += [add("@d"), write(0, topic="@d"), without("@d"), write(2, topic="@d"), *ended(), add(), *ended(False)]
    return script


def transactions_and_bounds_of_aborted_lists() -> Script:
    """An index entry for each batch, and fetches that end right at one: which entry Kafka's search comes by counts."""
    script: Script = [create("@a", 1, index_interval_bytes=1), find(), init(), produce("@a", batch(2))]
    for number in range(6):
        script += [add(), write(2 * number), *ended(False), produce("@a", batch(2))]
        script += [
            fetch(("@a", 0, offset, limit), isolation_level=READ_COMMITTED)
            for offset in range(5 * number + 2)
            for limit in (1, 300)
        ]
    return script


def transactions_of_which_nothing_is_committed() -> Script:
    """A partition of which nothing may be shown leaves it to the next one to exceed the limits by a batch."""
    script: Script = [create("@a", 3), find(), init(), add(), write(0), produce("@a", batch(), 1)]
    script += [produce("@a", batch(), 2)]
    rows = [("@a", partition, 0, 1) for partition in range(3)]
    return [
        *script,
        *(fetch(*rows, isolation_level=level, max_bytes=limit) for level in (0, 1) for limit in (1, 150, 1 << 20)),
        *ended(),
        fetch(*rows, isolation_level=READ_COMMITTED),
    ]


def transactions_of_producers_that_cannot_be() -> Script:
    """Kafka looks at them only in batches it has to build anew."""
    steps = []
    for topic in ("@same", "@anew"):
        for producer, is_transactional in (((-1, -1, -1), True), ((-1, 0, 0), True), ((7001, -1, 0), False)):
            given = batch(producer=producer, is_transactional=is_transactional)
            steps += [produce(topic, given, transactional_id="@t" if is_transactional else None)]
    return [create("@same"), create("@anew", compression_type="gzip"), find(), init(), *steps]
