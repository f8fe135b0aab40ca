"""Members of share groups and of streams groups of Apache Kafka 4, by their heartbeats alone.

No client of the tests speaks these protocols, and the session of a member lasts for 45 s.
"""

from __future__ import annotations

import uuid
from typing import Any

from minibroker.protocol.api import HEADER
from minibroker.protocol.primitives import Boolean, Int16sb, Int32sb, Int64sb, NullableString, String
from minibroker.protocol.schema import Message, array, array_of, default, nullable_array, nullable_row, versions
from tests.integration.wire import connection_to
from tests.requests import framed

HEADER_BYTES = 5  # of a response: the correlation id, and no tags

ShareGroupHeartbeatRequest = versions("ShareGroupHeartbeatRequest", 1, 1,
    "group_id" / String,
    "member_id" / String,
    "member_epoch" / Int32sb,
    "rack_id" / NullableString,
    "subscribed_topic_names" / array_of(String, is_nullable=True),
    flexible=0,
)  # fmt: skip
TASKS = nullable_array("subtopology_id" / String, "partitions" / array_of(Int32sb))
TOPICS = array("name" / String, "partitions" / Int32sb, "replication_factor" / Int16sb, "configs" / array_of(String))
OFFSETS = nullable_array("subtopology_id" / String, "partition" / Int32sb, "offset" / Int64sb)
StreamsGroupHeartbeatRequest = versions("StreamsGroupHeartbeatRequest", 0, 0,
    "group_id" / String,
    "member_id" / String,
    "member_epoch" / Int32sb,
    "endpoint_information_epoch" / Int32sb,
    "instance_id" / NullableString,
    "rack_id" / NullableString,
    "rebalance_timeout_ms" / Int32sb @ default(-1),
    "topology" / nullable_row(
        "epoch" / Int32sb,
        "subtopologies" / array(
            "subtopology_id" / String,
            "source_topics" / array_of(String),
            "source_topic_regex" / array_of(String),
            "state_changelog_topics" / TOPICS,
            "repartition_sink_topics" / array_of(String),
            "repartition_source_topics" / TOPICS,
            "copartition_groups" / array_of(String))),
    "active_tasks" / TASKS,
    "standby_tasks" / TASKS,
    "warmup_tasks" / TASKS,
    "process_id" / NullableString,
    "user_endpoint" / nullable_row("host" / String, "port" / Int16sb),
    "client_tags" / array_of(String, is_nullable=True),
    "task_offsets" / OFFSETS,
    "task_end_offsets" / OFFSETS,
    "shutdown_application" / Boolean,
    flexible=0,
)  # fmt: skip
# How the responses of both begin; what comes after is not read.
HeartbeatResponse = versions("HeartbeatResponse", 0, 0,
    "throttle_time_ms" / Int32sb,
    "error_code" / Int16sb,
    "error_message" / NullableString,
    "member_id" / String,
    "member_epoch" / Int32sb,
    flexible=0,
)  # fmt: skip
SHARE_GROUP_HEARTBEAT, STREAMS_GROUP_HEARTBEAT = 76, 88
LEAVES = -1  # in place of an epoch
NONE: list[Any] = []


class NewerMember:
    """A member that does nothing with what it is assigned. `first` are the fields of its first heartbeat."""

    def __init__(self, bootstrap: str, key: int, request: Message, group: str, **first: Any) -> None:
        self._bootstrap = bootstrap
        self._key = key
        self._request = request
        self._own = {"group_id": group, "member_id": str(uuid.uuid4())}
        self._epoch = 0
        self._beat(member_epoch=0, **first)

    def beat(self) -> None:
        """Send a heartbeat, which acknowledges its assignment."""
        self._beat(member_epoch=self._epoch)

    def leave(self) -> None:
        self._beat(member_epoch=LEAVES)

    def _beat(self, **body: Any) -> None:
        version = self._request.last_version
        encoded = b"".join(map(bytes, self._request.encode(version, self._request(**self._own, **body))))
        with connection_to(self._bootstrap) as connection:
            answered = connection.exchange(framed(HEADER.pack(self._key, version, 1, 6) + b"member\0" + encoded))
        answer = HeartbeatResponse.decode(0, answered, HEADER_BYTES)[0]
        assert answer.error_code == 0, answer
        self._epoch = answer.member_epoch


def share_member(bootstrap: str, group: str, topic: str) -> NewerMember:
    return NewerMember(
        bootstrap, SHARE_GROUP_HEARTBEAT, ShareGroupHeartbeatRequest, group, subscribed_topic_names=[topic]
    )


def streams_member(bootstrap: str, group: str, topic: str) -> NewerMember:
    """A member with a topology of one subtopology, which reads the topic."""
    tasks = dict.fromkeys(("active_tasks", "standby_tasks", "warmup_tasks"), NONE)
    return NewerMember(
        bootstrap,
        STREAMS_GROUP_HEARTBEAT,
        StreamsGroupHeartbeatRequest,
        group,
        rebalance_timeout_ms=60_000,
        topology=(1, [("0", [topic], *[NONE] * 5)]),
        process_id=str(uuid.uuid4()),
        client_tags=NONE,
        **tasks,
    )
