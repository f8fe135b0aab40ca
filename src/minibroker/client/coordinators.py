"""Finds the coordinators of groups and of transactional ids, and asks them once they are there."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from minibroker.client.client import RETRY_SECONDS, Client, Question
from minibroker.client.errors import NOT_THERE_YET, ClientError, check
from minibroker.client.offsets import NOT_COMMITTED, Offsets
from minibroker.client.topic_partition import TopicPartition
from minibroker.protocol.api import ASKED_TABLE, ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError

COORDINATOR_SECONDS = 3.5
OF_GROUPS, OF_TRANSACTIONS = 0, 1  # what a coordinator is of, in FindCoordinator
FIRST_OF_SEVERAL = 4  # the version of FindCoordinator
FIRST_OF_GROUPS = 8  # the version of OffsetFetch
GROUPS_AT_ONCE = 1_000

T = TypeVar("T")


def at_coordinators(
    client: Client,
    keys: Collection[str],
    ask: Callable[[dict[int, list[str]]], T],
    kind: int = OF_GROUPS,
    *,
    until: float = float("inf"),
) -> T:
    """Call `ask` with the keys of each coordinator, and again until all are there; its result.

    A cluster makes the topic of its coordinators at the first question for one; and one that has moved loads first what
    it coordinates. Raises KafkaError after COORDINATOR_SECONDS, or at `until`, and ClientError.
    """
    deadline = min(time.monotonic() + COORDINATOR_SECONDS, until)
    while True:
        try:
            return ask(by_coordinator(client, keys, kind))
        except KafkaError as error:
            if error.code not in NOT_THERE_YET or time.monotonic() > deadline:
                raise
        time.sleep(RETRY_SECONDS)
        client.metadata([])


def by_coordinator(client: Client, keys: Collection[str], kind: int = OF_GROUPS) -> dict[int, list[str]]:
    """The keys of each coordinator, by its broker id. Raises KafkaError, and ClientError."""
    found: dict[int, list[str]] = {}
    names = list(keys)
    if client.version_of(ApiKey.FIND_COORDINATOR) >= FIRST_OF_SEVERAL:
        for row in client.ask(ApiKey.FIND_COORDINATOR, key_type=kind, coordinator_keys=names).coordinators:
            check(row.error_code, row.error_message)
            found.setdefault(row.node_id, []).append(row.key)
        return found
    questions = {name: Question(ApiKey.FIND_COORDINATOR, {"key": name, "key_type": kind}) for name in names}
    for name, answer in client.answers(questions).items():
        if isinstance(answer, ClientError):
            raise answer
        check(answer.error_code, answer.error_message)
        found.setdefault(answer.node_id, []).append(name)
    return found


def when_there(rows: Iterable[Any]) -> list[Any]:
    """The rows. Raises the error of the first whose coordinator is not there yet."""
    found = list(rows)
    for row in found:
        if row.error_code in NOT_THERE_YET:
            check(row.error_code)
    return found


def committed_offsets(
    client: Client, groups: Mapping[int, Sequence[str]]
) -> tuple[dict[str, Offsets], dict[int, Exception]]:
    """The committed offsets of groups, by their coordinators; and why of others there are none, by their coordinators.

    Raises KafkaError, also where a coordinator is not there yet.
    """
    size = GROUPS_AT_ONCE if client.version_of(ApiKey.OFFSET_FETCH) >= FIRST_OF_GROUPS else 1
    questions = {
        (broker, start): committed_question(broker, names[start : start + size])
        for broker, names in groups.items()
        for start in range(0, len(names), size)
    }
    found: dict[str, Offsets] = {name: {} for names in groups.values() for name in names}
    lost: dict[int, Exception] = {}
    for at, answer in client.answers(questions).items():
        if isinstance(answer, ClientError):
            lost[at[0]] = answer
            continue
        row = ASKED_TABLE[ApiKey.OFFSET_FETCH].response.row("groups")
        for group in answer.groups or [row(questions[at].body["group_id"], answer.topics, answer.error_code)]:
            if group.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
                check(group.error_code)
            found[group.group_id] = {
                TopicPartition(topic.name, each.partition): each.committed_offset
                for topic in group.topics
                for each in topic.partitions
                if each.committed_offset != NOT_COMMITTED
            }
    return found, lost


def committed_question(broker: int, groups: Sequence[str]) -> Question:
    """OffsetFetch of all partitions; of the first group alone in the versions before FIRST_OF_GROUPS."""
    row = ASKED_TABLE[ApiKey.OFFSET_FETCH].request.row("groups")
    body = {"group_id": groups[0], "topics": None, "groups": [row(each, topics=None) for each in groups]}
    return Question(ApiKey.OFFSET_FETCH, body, broker)
