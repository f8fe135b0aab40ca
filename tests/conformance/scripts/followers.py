"""Replicas on brokers that are not up, and a follower that fetches for one of them.

Apache Kafka 2.0.1 takes a manual assignment without asking whether its brokers live, and a FETCH with the id of a
replica for that replica's; so one broker shows all of replication that its clients can see. Metadata tells of a new
ISR only some seconds after the leader decided it: `settled` lets them pass.
"""

from __future__ import annotations

from typing import Any

from tests.conformance.asking import (
    Row,
    batch,
    config_rows,
    create_all,
    delete_records,
    fetch,
    in_session,
    list_offsets,
    metadata_of,
    parked,
    produce,
    produce_all,
)
from tests.conformance.steps import Script, Step, call, look, take

FOLLOWER = 1
SETTLED_MS = 9_000  # 2.0.1 propagates an ISR change at a look each 2.5 s, once the last one is 5 s old
LAGGING_MS = 20_000  # replica.lag.time.max.ms, half of it to the next look, and some more
OTHER = parked("other")


def assigned(*topics: tuple[str, list[list[int]], dict[str, Any]], timeout_ms: int = 20_000) -> Step:
    """Topics with the brokers of each partition."""
    rows = [(name, -1, -1, list(enumerate(replicas)), config_rows(configs)) for name, replicas, configs in topics]
    return call("CreateTopics", 2, topics=rows, timeout_ms=timeout_ms)


def follow(*rows: Row, replica: int = FOLLOWER, **options: Any) -> Step:
    """A follower's fetch of (topic, partition, its log end offset, and perhaps its log start offset)."""
    full = [(*row[:3], 1 << 20, row[3] if len(row) > 3 else 0) for row in rows]
    return fetch(*full, replica_id=replica, **options)


def parked_produce(topic: str, what: Any, **options: Any) -> Step:
    body = {"acks": -1, "timeout_ms": 25_000, **options}
    return call("Produce", 5, topics=[(topic, [(0, what)])], **body, **OTHER)


def produce_for(timeout_ms: int, *topics: str) -> Step:
    """With acks=all and no longer than that."""
    rows = [(topic, [(0, batch())]) for topic in topics]
    return call("Produce", 5, acks=-1, timeout_ms=timeout_ms, topics=rows)


def after(wait_ms: int) -> Step:
    """A consumer's fetch at the end of a log that nobody writes: answered when that time is over."""
    return fetch(("@quiet", 0, 0), max_wait_ms=wait_ms)


def replicas_that_are_not_up() -> Script:
    script: Script = [
        assigned(("@a", [[0, 1], [1, 0], [2, 0]], {})),
        *(metadata_of("@a", version=version) for version in range(7)),
        produce_all(("@a", [(number, batch()) for number in range(3)])),
        fetch(("@a", 0, 0), ("@a", 1, 3), ("@a", 2, 3)),
        list_offsets(("@a", 0, -1), ("@a", 1, -2), ("@a", 2, -1)),
    ]
    return script


def high_watermark_of_two_replicas() -> Script:
    """The follower fetches what there is, joins, and holds the high watermark back from then on."""
    append, ends = produce("@a", batch(), acks=1), list_offsets(("@a", 0, -1))
    script: Script = [assigned(("@a", [[0, 1]], {})), append, fetch(("@a", 0, 0)), follow(("@a", 0, 0))]
    script += [append, ends, follow(("@a", 0, 3)), follow(("@a", 0, 6))]
    script += [append, fetch(("@a", 0, 6)), ends, list_offsets(("@a", 0, -1), replica_id=FOLLOWER)]
    script += [follow(("@a", 0, 6)), follow(("@a", 0, 9)), follow(("@a", 0, 9)), fetch(("@a", 0, 6)), ends]
    # A consumer waits for the follower; a follower waits for the producer.
    script += [fetch(("@a", 0, 9), max_wait_ms=25_000, **OTHER), append, look("other")]
    script += [follow(("@a", 0, 9)), look("other"), follow(("@a", 0, 12)), take("other")]
    script += [follow(("@a", 0, 12), max_wait_ms=25_000, **OTHER), append, take("other")]
    script += [follow(("@a", 0, 15)), fetch(("@a", 0, 12))]
    # What it has cannot be right: it is answered, and its log end is not known any more.
    script += [follow(("@a", 0, 16)), append, fetch(("@a", 0, 15))]
    return [*script, follow(("@a", 0, 18)), fetch(("@a", 0, 15))]


def acks_of_all_replicas() -> Script:
    script: Script = [assigned(("@a", [[0, 1]], {}), ("@two", [[0, 1]], {"min_insync_replicas": 2}))]
    script += [produce("@a", batch()), produce("@two", batch()), produce("@two", batch(), acks=1)]
    script += [follow(("@a", 0, 3), ("@two", 0, 3)), parked_produce("@a", batch()), look("other")]
    script += [follow(("@a", 0, 3)), look("other"), follow(("@a", 0, 6)), take("other")]
    script += [parked_produce("@two", batch()), follow(("@two", 0, 6)), take("other")]
    # Nobody fetches: what was appended is answered with its offset, and an error.
    script += [produce_for(200, "@a"), produce_for(200, "@a", "@two", "@nope")]
    script += [produce("@a", batch(), acks=1), produce_for(0, "@a")]
    return [*script, follow(("@a", 0, 18)), fetch(("@a", 0, 15))]


def followers_that_are_no_replicas() -> Script:
    script: Script = [create_all(("@one", 1, {})), assigned(("@a", [[0, 1]], {})), produce("@a", batch())]
    script += [produce("@one", batch())]
    for topic in ("@one", "@a"):
        script += [follow((topic, 0, 0), replica=5)]
        script += [follow((topic, 0, offset), replica=5, max_wait_ms=100) for offset in (0, 3, 4)]
        script += [follow((topic, 0, 0), replica=0)]
        # Parked on what is not its, it is answered with what comes.
        script += [follow((topic, 0, 3), replica=5, max_wait_ms=3000, **OTHER), produce(topic, batch())]
        script += [look("other"), take("other")]
    # The future replica reads to the end of the log: it is woken before the high watermark moves.
    script += [
        fetch(("@one", 0, 6), replica_id=-3, max_wait_ms=25_000, **OTHER),
        produce("@one", batch()),
        take("other"),
    ]
    script += [follow(("@one", 0, 0), ("@a", 0, 6)), follow(("@one", 0, 9), ("@a", 0, 6), max_wait_ms=100)]
    return [*script, produce("@a", batch(), acks=1), fetch(("@a", 0, 6))]


def in_sync_replicas_that_come_and_go() -> Script:
    topic = assigned(("@a", [[0, 1]], {"min_insync_replicas": 2}))
    script: Script = [create_all(("@quiet", 1, {})), topic, produce("@a", batch(), acks=1), follow(("@a", 0, 3))]
    script += [after(SETTLED_MS), follow(("@a", 0, 3)), *(metadata_of("@a", version=version) for version in (5, 0))]
    script += [parked_produce("@a", batch(), timeout_ms=29_000), fetch(("@a", 0, 3)), after(LAGGING_MS), take("other")]
    script += [fetch(("@a", 0, 3)), produce("@a", batch()), after(SETTLED_MS), metadata_of("@a", version=5)]
    script += [follow(("@a", 0, 3)), follow(("@a", 0, 6)), parked_produce("@a", batch())]
    return [*script, follow(("@a", 0, 9)), take("other"), after(SETTLED_MS), metadata_of("@a", version=5)]


def records_deleted_below_a_follower() -> Script:
    script: Script = [assigned(("@a", [[0, 1]], {})), *(produce("@a", batch()) for _ in range(3))]
    script += [follow(("@a", 0, 9)), produce("@a", batch(), acks=1)]
    script += [delete_records(("@a", 0, offset)) for offset in (4, 10, -1)]
    script += [follow(("@a", 0, 9, 9)), follow(("@a", 0, 12, 12)), delete_records(("@a", 0, -1))]
    return [*script, follow(("@a", 0, 12, 12)), fetch(("@a", 0, 9))]


def sessions_of_followers() -> Script:
    def go_on(epoch: int, *rows: Row, **options: Any) -> Step:
        return follow(*rows, session=in_session("one", epoch), **options)

    script: Script = [assigned(("@a", [[0, 1], [0, 1]], {}))]
    script += [follow(("@a", 0, 0), ("@a", 1, 0), session=(0, 0), name="one"), produce("@a", batch(), acks=1)]
    script += [fetch(("@a", 0, 0)), go_on(1), go_on(2, ("@a", 0, 3)), fetch(("@a", 0, 0)), go_on(3), go_on(4)]
    script += [go_on(5, max_wait_ms=25_000, **OTHER), produce("@a", batch(), 1, acks=1), take("other")]
    script += [go_on(6, ("@a", 1, 3)), fetch(("@a", 1, 0)), go_on(7, forget=[("@a", [0])])]
    return [*script, produce("@a", batch(), acks=1), go_on(8), fetch(("@a", 0, 3)), go_on(3)]


def waiting_for_several_partitions() -> Script:
    """Both must be written before this much is there. (Which one Kafka writes first is up to its hash map.)"""
    both = [(0, batch()), (1, batch())]
    return [
        create_all(("@a", 2, {})),
        fetch(("@a", 0, 0), ("@a", 1, 0), max_wait_ms=25_000, min_bytes=200, **OTHER),
        produce_all(("@a", both)),
        take("other"),
    ]
