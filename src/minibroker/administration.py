"""Creates topics for tests, and empties the broker between tests.

It speaks Kafka's protocol over one connection of its own: a client library takes longer to import than all of it. It
sends the oldest sufficient version of each request, so that a broker that acts as an old release answers as well. Every
refusal is a KafkaError with Kafka's code.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from minibroker.any_cluster.address import parse_address
from minibroker.any_cluster.login import Login, logged_in
from minibroker.protocol.api import API_TABLE, ASKED_TABLE, TESTS_CLIENT_ID, ApiKey, decode_response, encode_request
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.framing import NEED_DATA, FrameDecoder
from minibroker.protocol.message_values import BROKERS_DEFAULT, LEAVE_EPOCH
from minibroker.protocol.scram import BY_NAME as SCRAM_MECHANISMS
from minibroker.protocol.scram import DEFAULT_ITERATIONS, new_salt, salted_password

if TYPE_CHECKING:
    from minibroker.acl import Acl

ANSWER_SECONDS = 30.0
ANSWER_MAX_BYTES = 100 * 1024 * 1024
RECEIVE_BYTES = 256 * 1024
VERSIONS = {ApiKey.METADATA: 1}  # the first with internal topics, and where a null list of names means all
TIMEOUT_MS = int(ANSWER_SECONDS * 1000)
FIRST_VERSION_WITH_DEFAULTS = 4
FIRST_WITH_PATTERNS = 1  # CreateAcls, DeleteAcls


class Connection:
    """Sends one request at a time, and waits for its response."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._frames = FrameDecoder(ANSWER_MAX_BYTES)
        self._correlation_id = 0

    def ask(self, api_key: ApiKey, version: int | None = None, /, **body: Any) -> Any:
        """The decoded response. Raises OSError when the connection fails or the broker closes it."""
        version = VERSIONS.get(api_key, 0) if version is None else version
        self._correlation_id += 1
        request = ASKED_TABLE[api_key].request(**body)
        self._socket.sendall(encode_request(api_key, version, self._correlation_id, TESTS_CLIENT_ID, request))
        while (frame := self._frames.next_frame()) is NEED_DATA:
            received = self._socket.recv(RECEIVE_BYTES)
            if not received:
                raise ConnectionResetError("the broker closed the connection")
            self._frames.feed(received)
        return decode_response(api_key, version, frame)[1]


@contextmanager
def connected(bootstrap_servers: str, login: Login | None = None) -> Iterator[Connection]:
    """Raises OSError when no broker listens there, and LoginError."""
    address = parse_address(bootstrap_servers)
    connection = socket.create_connection(address, timeout=ANSWER_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if login is not None:
        connection = logged_in(connection, address.host, login)
    with connection:
        yield Connection(connection)


def offered_version(connection: Connection, api_key: ApiKey, last: int) -> int:
    """The highest version of an API up to `last` that the broker offers. Raises KafkaError if it has none."""
    for row in connection.ask(ApiKey.API_VERSIONS).api_keys:
        if row.api_key == api_key:
            offered: int = row.max_version
            return min(last, offered)
    raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"it offers no {API_TABLE[api_key].name}")


def create_topic(
    connection: Connection,
    name: str,
    *,
    partitions: int | None,
    num_partitions: int,
    replication_factor: int,
    configs: Mapping[str, str],
) -> None:
    """Create a topic, by default with the broker's `num.partitions`. Raises KafkaError.

    `num_partitions` is that number, for a broker that acts as a release without defaults in CreateTopics.
    """
    version = 0
    if partitions is None:
        version = offered_version(connection, ApiKey.CREATE_TOPICS, FIRST_VERSION_WITH_DEFAULTS)
        partitions = BROKERS_DEFAULT if version == FIRST_VERSION_WITH_DEFAULTS else num_partitions
    topic = API_TABLE[ApiKey.CREATE_TOPICS].request.row("topics")(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        configs=list(configs.items()),
    )
    answer = connection.ask(ApiKey.CREATE_TOPICS, version, topics=[topic], timeout_ms=TIMEOUT_MS)
    for row in answer.topics:
        refuse_unless_done(row.error_code, f"create topic {row.name}", row.error_message)


def empty(connection: Connection) -> None:
    """Delete all topics but internal ones, and all groups, after removing their members. Raises KafkaError.

    A broker that acts as a release without DeleteGroups keeps its groups.
    """
    delete_topics(connection)
    offered = {row.api_key for row in connection.ask(ApiKey.API_VERSIONS).api_keys}
    if ApiKey.DELETE_GROUPS in offered:
        delete_groups(connection)


def delete_topics(connection: Connection) -> None:
    """Raises KafkaError."""
    topics = [row.name for row in connection.ask(ApiKey.METADATA, topics=None).topics if not row.is_internal]
    if topics:
        answer = connection.ask(ApiKey.DELETE_TOPICS, topic_names=topics, timeout_ms=TIMEOUT_MS)
        for row in answer.topics:
            refuse_unless_done(row.error_code, f"delete topic {row.name}", gone=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def delete_groups(connection: Connection) -> None:
    """Raises KafkaError."""
    groups = [row.group_id for row in connection.ask(ApiKey.LIST_GROUPS).groups]
    if not groups:
        return
    for group in connection.ask(ApiKey.DESCRIBE_GROUPS, groups=groups).groups:
        for member in group.members:
            connection.ask(ApiKey.LEAVE_GROUP, group_id=group.group_id, member_id=member.member_id)
    results = connection.ask(ApiKey.DELETE_GROUPS, group_names=groups).results
    if inhabited := [row.group_id for row in results if row.error_code == ErrorCode.NON_EMPTY_GROUP]:
        remove_members(connection, inhabited)
        again = connection.ask(ApiKey.DELETE_GROUPS, group_names=inhabited).results
        results = [*(row for row in results if row.group_id not in inhabited), *again]
    for row in results:
        refuse_unless_done(row.error_code, f"delete group {row.group_id}", gone=ErrorCode.GROUP_ID_NOT_FOUND)


def remove_members(connection: Connection, groups: Sequence[str]) -> None:
    """Remove the members of groups of the consumer protocol."""
    for group in connection.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, group_ids=groups).groups:
        for member in group.members:
            connection.ask(
                ApiKey.CONSUMER_GROUP_HEARTBEAT,
                group_id=group.group_id,
                member_id=member.member_id,
                member_epoch=LEAVE_EPOCH,
            )


def create_scram_users(connection: Connection, users: Mapping[str, str], mechanisms: Sequence[str]) -> None:
    """Store the users' passwords for these mechanisms, salted and iterated. Raises KafkaError."""
    row = API_TABLE[ApiKey.ALTER_USER_SCRAM_CREDENTIALS].request.row("upsertions")
    upsertions = []
    for name in mechanisms:
        mechanism = SCRAM_MECHANISMS[name]
        for user, password in users.items():
            salt = new_salt()
            upsertions.append(
                row(
                    name=user,
                    mechanism=mechanism.number,
                    iterations=DEFAULT_ITERATIONS,
                    salt=salt,
                    salted_password=salted_password(mechanism, password, salt, DEFAULT_ITERATIONS),
                )
            )
    if upsertions:
        answer = connection.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, deletions=[], upsertions=upsertions)
        for each in answer.results:
            refuse_unless_done(each.error_code, f"create user {each.user}", each.error_message)


def create_acls(connection: Connection, acls: Iterable[Acl]) -> None:
    """Raises KafkaError."""
    row = API_TABLE[ApiKey.CREATE_ACLS].request.row("creations")
    creations = [row(**rule._asdict()) for acl in acls for rule in acl.rules]
    if creations:
        for each in connection.ask(ApiKey.CREATE_ACLS, FIRST_WITH_PATTERNS, creations=creations).results:
            refuse_unless_done(each.error_code, "create an ACL", each.error_message)


def delete_acls(connection: Connection, acls: Iterable[Acl]) -> None:
    """Raises KafkaError."""
    row = API_TABLE[ApiKey.DELETE_ACLS].request.row("filters")
    filters = [
        row(
            resource_type_filter=rule.resource_type,
            resource_name_filter=rule.resource_name,
            pattern_type_filter=rule.resource_pattern_type,
            principal_filter=rule.principal,
            host_filter=rule.host,
            operation=rule.operation,
            permission_type=rule.permission_type,
        )
        for acl in acls
        for rule in acl.rules
    ]
    if filters:
        for each in connection.ask(ApiKey.DELETE_ACLS, FIRST_WITH_PATTERNS, filters=filters).filter_results:
            refuse_unless_done(each.error_code, "delete an ACL", each.error_message)


def refuse_unless_done(code: int, what: str, message: str | None = None, *, gone: ErrorCode = ErrorCode.NONE) -> None:
    """Raises KafkaError unless `code` is success, or `gone`: another client was faster."""
    if code not in (ErrorCode.NONE, gone):
        error = ErrorCode(code)
        raise KafkaError(error, f"cannot {what}: {error.name}" + (f", {message}" if message else ""))
