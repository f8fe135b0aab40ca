"""The requests of the `acls` commands; `admin/` has what the answers mean."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from minibroker.admin.acls import Rule, Wanted, creation_of, filter_of, no_right, refusal, rule_of
from minibroker.admin.outcomes import Outcome
from minibroker.any_cluster.shortfalls import lacks
from minibroker.client.client import Client
from minibroker.client.errors import ClientError, check
from minibroker.errors import CommandFailed
from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError

T = TypeVar("T")
OF_ZOOKEEPER = "kafka.security.auth.SimpleAclAuthorizer"  # and of minibroker
OF_KRAFT = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@contextmanager
def refusals_explained(client: Client) -> Iterator[None]:
    """Turn what a broker without an authorizer, or without a right for us, answers inside into a CommandFailed."""
    try:
        yield
    except KafkaError as error:
        if error.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            raise CommandFailed(no_right("manage ACLs")) from error
        if error.code != ErrorCode.SECURITY_DISABLED:
            raise
        authorizer = OF_ZOOKEEPER if client.has_zookeeper else OF_KRAFT
        raise CommandFailed(
            f"the broker has no authorizer, so everything is allowed; start it with authorizer.class.name={authorizer}"
        ) from error


def are_hidden(client: Client) -> bool:
    """Whether there may be more than this user sees: a broker with ACLs leaves out the rest without an error."""
    try:
        answer = client.ask(ApiKey.DESCRIBE_ACLS, **filter_of(Wanted()))
    except ClientError:  # a release without it
        return False
    return bool(answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def hidden_unless(rows: T, client: Client, what: str) -> T:
    """The rows. Where there are none, it is noted if ACLs may hide them from this user."""
    if not rows and are_hidden(client):
        lacks(f"no {what} that this user may see; ask the cluster's administrator for Describe")
    return rows


def rules(client: Client, wanted: Iterable[Wanted]) -> list[Rule]:
    """The rules that any of these select, each once, in order."""
    found: set[Rule] = set()
    for each in wanted:
        answer = client.ask(ApiKey.DESCRIBE_ACLS, **filter_of(each))
        check(answer.error_code)
        found.update(rule_of(resource, acl) for resource in answer.resources for acl in resource.acls)
    return sorted(found)


def add(client: Client, rules: Sequence[Rule]) -> list[Outcome]:
    """Add rules. A rule that exists already counts as added."""
    answer = client.ask(ApiKey.CREATE_ACLS, creations=list(map(creation_of, rules)))
    codes = [result.error_code for result in answer.results]
    return [
        Outcome(str(rule), "failed", refusal(rule, code)) if code else Outcome(str(rule), "added")
        for rule, code in zip(rules, codes, strict=True)
    ]


def remove(client: Client, wanted: Sequence[Wanted]) -> list[Outcome]:
    """Remove the rules that any of these select."""
    filters = [tuple(filter_of(each).values()) for each in wanted]
    answer = client.ask(ApiKey.DELETE_ACLS, filters=filters)
    for result in answer.filter_results:
        check(result.error_code)
    removed = {rule_of(acl, acl) for result in answer.filter_results for acl in result.matching_acls}
    return [Outcome(str(rule), "removed") for rule in sorted(removed)]
