"""Members of groups as processes of their own, each with a client library: joined, asked, killed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterable
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, Any, cast

from tests.integration.clients import DriverProcess, go_program, java_driver, node_program, python_driver
from tests.integration.drivers.line_protocol import Deadline
from tests.setup_clients import EARLIER_CLIENTS, python_of

PROGRAMS: dict[str, Callable[[], list[str]]] = {
    "kafka-python": lambda: [*python_driver("group_member"), "kafka-python"],
    "confluent-kafka": lambda: [*python_driver("group_member"), "confluent-kafka"],
    "aiokafka": lambda: [*python_driver("group_member"), "aiokafka"],
    "java": lambda: java_driver("3.9.0", "JavaGroupMember"),
    "kafkajs": partial(node_program, "kafkajs_member"),
    "franz-go": partial(go_program, "member"),
}
LIBRARIES = tuple(PROGRAMS)
PROGRAMS["java-4.4"] = lambda: java_driver("4.4.0", "JavaGroupMember")
PROGRAMS["@platformatic/kafka"] = partial(node_program, "platformatic_member")  # with a test of its own
PROGRAMS |= {
    name: partial(lambda name: [*python_driver("group_member", python_of(name)), name.rpartition("-")[0]], name)
    for name in EARLIER_CLIENTS
}
PATIENCE_SECONDS = 60.0
LOOK_AGAIN_SECONDS = 0.05


class GroupMember(DriverProcess):
    """A consumer that polls without end in a process of its own (drivers/group_member.py). Raises UnavailableError."""

    def __init__(self, library: str, bootstrap: str, group: str, topic: str, log: IO[bytes], **settings: Any) -> None:
        super().__init__(library, [*PROGRAMS[library](), bootstrap, group, topic, json.dumps(settings)], log)

    def assignment(self) -> list[int]:
        """The partitions it has now."""
        return cast(list[int], self.call("assignment"))

    def lost(self) -> list[int]:
        """Every partition that was taken from it so far, in order."""
        return cast(list[int], self.call("lost"))

    def failure(self) -> dict[str, Any] | None:
        """The error that ended its polling, if one did: kind, Kafka's code where the library says it, message."""
        return cast(dict[str, Any] | None, self.call("failure"))

    def values(self) -> list[str]:
        """Everything it has read, in order."""
        return [value for _, _, value in self.call("records")]

    def commit(self) -> None:
        self.call("commit")

    def committed(self, partition: int) -> int | None:
        return cast(int | None, self.call("committed", partition=partition))

    def close(self) -> None:
        """Leave the group; the process stays."""
        self.call("close")


def wait_until(claim: Callable[[], bool], waiting_for: str, *, seconds: float = PATIENCE_SECONDS) -> None:
    """Raises DeadlineError."""
    deadline = Deadline(seconds)
    while not claim():
        deadline.seconds_left(waiting_for)
        time.sleep(LOOK_AGAIN_SECONDS)


def wait_until_gone(pid: int, *, seconds: float = PATIENCE_SECONDS) -> None:
    """Raises DeadlineError."""
    wait_until(lambda: not is_alive(pid), f"the end of process {pid}", seconds=seconds)


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that has ended, and was not waited for, does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def answer_of(ask: Callable[[], Any], not_yet: Collection[int], waiting_for: str) -> Any:
    """The first answer whose error code is none of those; Apache Kafka, once started, needs a moment until it leads."""
    answers: list[Any] = []

    def is_ready() -> bool:
        answers.append(ask())
        return answers[-1].error_code not in not_yet

    wait_until(is_ready, waiting_for)
    return answers[-1]


def wait_until_shared(members: Iterable[GroupMember], partitions: int) -> None:
    """Wait until each has a part, and together they have every partition once."""
    members = list(members)

    def is_shared() -> bool:
        parts = [member.assignment() for member in members]
        return all(parts) and sorted(chain.from_iterable(parts)) == list(range(partitions))

    wait_until(is_shared, f"{partitions} partitions among {len(members)} members")


def wait_until_read(values: Iterable[str], *members: GroupMember) -> None:
    """Wait until these values, and no others, have been read by the members together."""
    expected = sorted(values)
    wait_until(
        lambda: sorted(chain.from_iterable(member.values() for member in members)) == expected,
        f"{len(expected)} records",
    )
