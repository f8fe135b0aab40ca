"""DescribeAcls, CreateAcls and DeleteAcls v0-v3: the rules of the authorizer; without one, SECURITY_DISABLED.

Version notes: v1 pattern types, before every pattern is literal · v2 flexible · v3 users as resources.
Behavior: as kafka 2.0.1 KafkaApis and its messages, without the limits that ZooKeeper sets to names. A rule is in
force when its creation is answered. A creation with the ANY or MATCH of filters closes the connection: Kafka cannot
parse it.
"""

from __future__ import annotations

from typing import Any

from minibroker.broker.apis.client import Client
from minibroker.broker.apis.routes import Routes
from minibroker.broker.wings.security.acls.acl_store import AclStore
from minibroker.broker.wings.security.acls.rules import AclFilter, AclRule
from minibroker.protocol.api import ApiKey, Request
from minibroker.protocol.errors import ErrorCode, KafkaError, KafkaProtocolError
from minibroker.protocol.messages.acls import CreateAclsResponse, DeleteAclsResponse, DescribeAclsResponse
from minibroker.protocol.resources import CLUSTER_NAME, ResourceType
from minibroker.protocol.rights import Operation, Pattern, Permission

FIRST_VERSION_WITH_USERS = 3
ON_USERS = {Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS}
KNOWN_TYPES = set(ResourceType) - {ResourceType.ANY}
KNOWN_OPERATIONS = set(Operation) - {Operation.ANY, Operation.TWO_PHASE_COMMIT}

Body = Any


class AclApis:
    """Handlers of ACLs; `acls` is None without an authorizer."""

    def __init__(self, acls: AclStore | None) -> None:
        self._acls = acls

    def routes(self) -> Routes:
        return {
            ApiKey.DESCRIBE_ACLS: self.describe_acls,
            ApiKey.CREATE_ACLS: self.create_acls,
            ApiKey.DELETE_ACLS: self.delete_acls,
        }

    def describe_acls(self, request: Request, client: Client) -> Body:
        found = self._checked_acls("No Authorizer is configured on the broker").selected(filter_of(request.body))
        resources: dict[tuple[Any, ...], list[Body]] = {}
        for rule in found:
            row = (rule.principal, rule.host, rule.operation, rule.permission)
            resources.setdefault((rule.resource_type, rule.name, rule.pattern), []).append(row)
        return DescribeAclsResponse(resources=[(*resource, rows) for resource, rows in resources.items()])

    def create_acls(self, request: Request, client: Client) -> Body:
        rows = request.body.creations
        for row in rows:
            check_is_no_filter(row)
        acls = self._checked_acls()
        rules: list[AclRule | KafkaError] = []
        for row in rows:
            try:
                rules.append(rule_of(row, request.api_version))
            except KafkaError as error:
                rules.append(error)
        acls.add([rule for rule in rules if isinstance(rule, AclRule)])
        refusals = (rule if isinstance(rule, KafkaError) else None for rule in rules)
        return CreateAclsResponse(
            results=[(ErrorCode.NONE, None) if each is None else (each.code, each.message) for each in refusals]
        )

    def delete_acls(self, request: Request, client: Client) -> Body:
        removed = self._checked_acls().remove([filter_of(row) for row in request.body.filters])
        results = [[(ErrorCode.NONE, None, *rule) for rule in rules] for rules in removed]
        return DeleteAclsResponse(filter_results=[(ErrorCode.NONE, None, matching) for matching in results])

    def _checked_acls(self, refusal: str = "No Authorizer is configured on the broker.") -> AclStore:
        """Raises KafkaError(SECURITY_DISABLED)."""
        if self._acls is None:
            raise KafkaError(ErrorCode.SECURITY_DISABLED, refusal)
        return self._acls


def filter_of(row: Body) -> AclFilter:
    return AclFilter(
        row.resource_type_filter,
        row.resource_name_filter,
        row.pattern_type_filter,
        row.principal_filter,
        row.host_filter,
        row.operation,
        row.permission_type,
    )


def check_is_no_filter(row: Body) -> None:
    """Raises KafkaProtocolError for a creation with a value that only filters have."""
    if (
        row.resource_type == ResourceType.ANY
        or row.resource_pattern_type in (Pattern.ANY, Pattern.MATCH)
        or row.operation == Operation.ANY
        or row.permission_type == Permission.ANY
    ):
        raise KafkaProtocolError(f"CreateAcls: {row} selects rules instead of naming one")


def rule_of(row: Body, version: int) -> AclRule:
    """Raises KafkaError(INVALID_REQUEST), as kafka 2.0.1 SecurityUtils.convertToResourceAndAcl and KafkaApis."""
    resource_type = known_type(row.resource_type, version)
    if ":" not in row.principal:
        raise invalid(f"expected a string in format principalType:principalName but got {row.principal}")
    operation = known_operation(row.operation, version)
    permission = known_permission(row.permission_type)
    pattern = known_pattern(row.resource_pattern_type)
    if resource_type is ResourceType.CLUSTER and row.resource_name != CLUSTER_NAME:
        raise invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not row.resource_name:
        raise invalid("Invalid empty resource name")
    if not row.host:  # as kafka 4.4.0: the rule would fit no client
        raise invalid("Host pattern cannot be null or empty")
    return AclRule(resource_type, row.resource_name, pattern, row.principal, row.host, operation, permission)


def known_type(number: int, version: int) -> ResourceType:
    if number not in KNOWN_TYPES or (number == ResourceType.USER and version < FIRST_VERSION_WITH_USERS):
        raise unknown("resourceType", "Topic,Group,Cluster,TransactionalId,DelegationToken")
    return ResourceType(number)


def known_operation(number: int, version: int) -> Operation:
    if number not in KNOWN_OPERATIONS or (number in ON_USERS and version < FIRST_VERSION_WITH_USERS):
        names = "Read,Write,Create,Delete,Alter,Describe,ClusterAction,AlterConfigs,DescribeConfigs,IdempotentWrite,All"
        raise unknown("operation", names)
    return Operation(number)


def known_permission(number: int) -> Permission:
    if number not in (Permission.ALLOW, Permission.DENY):
        raise unknown("permissionType", "Allow,Deny")
    return Permission(number)


def known_pattern(number: int) -> Pattern:
    if number not in (Pattern.LITERAL, Pattern.PREFIXED):
        raise invalid("patternType must not be UNKNOWN")
    return Pattern(number)


def unknown(what: str, names: str) -> KafkaError:
    return invalid(f"UNKNOWN not a valid {what} name. The valid names are {names}")


def invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
