"""Creates topics, users and rules for tests, and empties the broker between tests. Every refusal is a KafkaError."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from minibroker.admin.acls import Wanted, creation_of, filter_of
from minibroker.admin.users import upsertion_of
from minibroker.any_cluster.user_admin import BrokerCredentials
from minibroker.client.address import parse_address
from minibroker.client.client import Client
from minibroker.protocol.api import API_TABLE, TESTS_CLIENT_ID, ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.message_values import BROKERS_DEFAULT, LEAVE_EPOCH
from minibroker.protocol.primitives import ZERO_UUID
from minibroker.protocol.scram import BY_NAME as SCRAM_MECHANISMS
from minibroker.protocol.scram import DEFAULT_ITERATIONS, Deletion, Upsertion

if TYPE_CHECKING:
    from minibroker.acl import Acl
    from minibroker.client.login import Login

TIMEOUT_MS = 30_000
FIRST_WITH_DEFAULTS = 4  # of CreateTopics
# The groups whose members leave by a heartbeat, by the API that describes them.
NEWER_GROUPS = {
    ApiKey.CONSUMER_GROUP_DESCRIBE: ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.SHARE_GROUP_DESCRIBE: ApiKey.SHARE_GROUP_HEARTBEAT,
}


@contextmanager
def connected(bootstrap_servers: str, login: Login | None = None) -> Iterator[Client]:
    """A client of the cluster behind these addresses. Raises ClientError, and LoginError."""
    addresses = [parse_address(each) for each in bootstrap_servers.split(",")]
    with Client(addresses, login, client_id=TESTS_CLIENT_ID) as client:
        yield client


def create_topic(
    client: Client,
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
    if partitions is None:
        has_defaults = client.version_of(ApiKey.CREATE_TOPICS) >= FIRST_WITH_DEFAULTS
        partitions = BROKERS_DEFAULT if has_defaults else num_partitions
    topic = API_TABLE[ApiKey.CREATE_TOPICS].request.row("topics")(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        configs=list(configs.items()),
    )
    answer = client.at_controller(ApiKey.CREATE_TOPICS, topics=[topic], timeout_ms=TIMEOUT_MS)
    for row in answer.topics:
        refuse_unless_done(row.error_code, f"create topic {row.name}", row.error_message)


def empty(client: Client) -> None:
    """Delete all topics but internal ones, and all groups, after removing their members. Raises KafkaError.

    A broker that acts as a release without DeleteGroups keeps its groups.
    """
    delete_topics(client)
    if ApiKey.DELETE_GROUPS in client.versions:
        for broker in client.brokers:
            delete_groups(client, broker)


def delete_topics(client: Client) -> None:
    """Raises KafkaError."""
    names = [row.name for row in client.metadata().topics if not row.is_internal]
    if names:
        rows = [(name, ZERO_UUID) for name in names]
        answer = client.at_controller(ApiKey.DELETE_TOPICS, topics=rows, topic_names=names, timeout_ms=TIMEOUT_MS)
        for row in answer.topics:
            refuse_unless_done(row.error_code, f"delete topic {row.name}", gone=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def delete_groups(client: Client, broker: int) -> None:
    """Delete the groups that this broker coordinates. Raises KafkaError."""
    groups = [row.group_id for row in client.ask(ApiKey.LIST_GROUPS, broker=broker).groups]
    if not groups:
        return
    for group in client.ask(ApiKey.DESCRIBE_GROUPS, broker=broker, groups=groups).groups:
        for member in group.members:
            client.ask(
                ApiKey.LEAVE_GROUP,
                broker=broker,
                group_id=group.group_id,
                member_id=member.member_id,
                members=[(member.member_id, None, None)],
            )
    results = client.ask(ApiKey.DELETE_GROUPS, broker=broker, group_names=groups).results
    if inhabited := [row.group_id for row in results if row.error_code == ErrorCode.NON_EMPTY_GROUP]:
        remove_members(client, broker, inhabited)
        again = client.ask(ApiKey.DELETE_GROUPS, broker=broker, group_names=inhabited).results
        results = [*(row for row in results if row.group_id not in inhabited), *again]
    for row in results:
        refuse_unless_done(row.error_code, f"delete group {row.group_id}", gone=ErrorCode.GROUP_ID_NOT_FOUND)


def remove_members(client: Client, broker: int, groups: Sequence[str]) -> None:
    """Remove the members of groups of the consumer protocol, and of share groups."""
    for describe, heartbeat in NEWER_GROUPS.items():
        if describe not in client.versions:
            continue
        for group in client.ask(describe, broker=broker, group_ids=groups).groups:
            for member in group.members:
                client.ask(
                    heartbeat,
                    broker=broker,
                    group_id=group.group_id,
                    member_id=member.member_id,
                    member_epoch=LEAVE_EPOCH,
                    rack_id=None,
                    subscribed_topic_names=None,
                )


def create_scram_users(client: Client, users: Mapping[str, str], mechanisms: Sequence[str]) -> None:
    """Store the users' passwords for these mechanisms, salted and iterated. Raises KafkaError."""
    changes = [
        upsertion_of(user, password, SCRAM_MECHANISMS[name], DEFAULT_ITERATIONS)
        for name in mechanisms
        for user, password in users.items()
    ]
    change_scram_users(client, "create", changes)


def delete_scram_users(client: Client, users: Iterable[str], mechanisms: Sequence[str]) -> None:
    """Remove the users' passwords for these mechanisms. Raises KafkaError."""
    changes = [Deletion(user, SCRAM_MECHANISMS[name].number) for name in mechanisms for user in users]
    change_scram_users(client, "delete", changes)


def change_scram_users(client: Client, verb: str, changes: Sequence[Upsertion | Deletion]) -> None:
    for user, error in BrokerCredentials(client).altered(changes).items():
        if error is not None:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"cannot {verb} user {user}: {error}")


def create_acls(client: Client, acls: Iterable[Acl]) -> None:
    """Raises KafkaError."""
    creations = [creation_of(rule) for acl in acls for rule in acl.rules]
    if creations:
        for each in client.ask(ApiKey.CREATE_ACLS, creations=creations).results:
            refuse_unless_done(each.error_code, "create an ACL", each.error_message)


def delete_acls(client: Client, acls: Iterable[Acl]) -> None:
    """Raises KafkaError."""
    filters = [tuple(filter_of(Wanted(*rule)).values()) for acl in acls for rule in acl.rules]
    if filters:
        for each in client.ask(ApiKey.DELETE_ACLS, filters=filters).filter_results:
            refuse_unless_done(each.error_code, "delete an ACL", each.error_message)


def refuse_unless_done(code: int, what: str, message: str | None = None, *, gone: ErrorCode = ErrorCode.NONE) -> None:
    """Raises KafkaError unless `code` is success, or `gone`: another client was faster."""
    if code not in (ErrorCode.NONE, gone):
        error = ErrorCode(code)
        raise KafkaError(error, f"cannot {what}: {error.name}" + (f", {message}" if message else ""))
