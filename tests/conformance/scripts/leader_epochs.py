"""Leader epochs, as far as 2.0.1 knows them: where one ended, told to followers by OffsetForLeaderEpoch."""

from __future__ import annotations

from tests.conformance.asking import batch, create, delete_records, produce, produce_old
from tests.conformance.steps import Script, Step, call

UNDEFINED, LARGEST = -1, 2**31 - 1


def ends_of_epochs(version: int, *rows: tuple[str, int, int]) -> Step:
    """Rows of (topic, partition, epoch)."""
    topics = [(topic, [(partition, -1, epoch)]) for topic, partition, epoch in rows]
    return call("OffsetForLeaderEpoch", version, topics=topics)


def ends_of_leader_epochs() -> Script:
    """Every partition is in its first epoch: this much one broker shows that is not started again."""
    script: Script = [
        create("@a", 2),
        create("@old", 1, message_format_version="0.10.2"),
        produce("@a", batch()),
        produce("@a", batch(5)),
        produce_old("@old", batch(magic=1)),
        produce("@a", batch(2), 1),
        delete_records(("@a", 1, 1)),
    ]
    for version in (0, 1):
        for epoch in (-2, UNDEFINED, 0, 1, LARGEST, -LARGEST - 1):
            script += [
                ends_of_epochs(version, ("@a", 0, epoch)),
                ends_of_epochs(version, ("@a", 1, epoch), ("@old", 0, epoch)),
            ]
        script += [
            ends_of_epochs(version, ("@a", 7, 0), ("@nope", 0, 0)),
            ends_of_epochs(version, ("@a", -1, 0), ("", 0, 0)),
            ends_of_epochs(version),
            call("OffsetForLeaderEpoch", version, topics=[("@a", [])]),
            call("OffsetForLeaderEpoch", version, topics=[("@a", [(0, -1, 0), (1, -1, 0), (0, -1, 5)])]),
        ]
    return script
