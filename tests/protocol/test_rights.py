"""Rights, and the table of those that each API asks for."""

from __future__ import annotations

import pytest

from minibroker.protocol.api import API_TABLE, ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.resources import ResourceType
from minibroker.protocol.rights import Operation, Pattern, Right

CREATE = Operation.CREATE.on(ResourceType.CLUSTER).or_(Operation.CREATE.on(ResourceType.TOPIC))


def test_either_of_two_rights_is_refused_as_the_second_is() -> None:
    assert (CREATE.subject, CREATE.refusal) == (ResourceType.TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert [each.resource_type for each in CREATE.alternatives] == [ResourceType.CLUSTER, ResourceType.TOPIC]
    assert str(CREATE) == "Create Cluster or Create Topic"


def test_a_right_may_be_that_of_some_versions() -> None:
    old, new = CREATE.until(2), CREATE.since(3)

    assert [version for version in range(6) if old.is_in(version)] == [0, 1, 2]
    assert [version for version in range(6) if new.is_in(version)] == [3, 4, 5]


# As the documentation of Kafka's protocol lists them; tests/conformance has the answers of Apache Kafka to all.
DOCUMENTED = {
    ApiKey.OFFSET_COMMIT: "Read Group, Read Topic",
    ApiKey.CREATE_TOPICS: "Create Cluster or Create Topic",
    ApiKey.TXN_OFFSET_COMMIT: "Write TransactionalId, Read Group, Read Topic",
    ApiKey.DESCRIBE_ACLS: "Describe Cluster",
    ApiKey.DELETE_ACLS: "Alter Cluster",
    ApiKey.API_VERSIONS: "",
}


@pytest.mark.parametrize(("key", "text"), DOCUMENTED.items(), ids=lambda each: getattr(each, "name", ""))
def test_the_rights_of_an_api_are_those_of_the_documentation(key: ApiKey, text: str) -> None:
    assert ", ".join(map(str, API_TABLE[key].rights)) == text


@pytest.mark.parametrize("key", [ApiKey.DESCRIBE_ACLS, ApiKey.DELETE_ACLS, ApiKey.CREATE_ACLS])
def test_before_version_1_the_pattern_of_a_rule_is_literal(key: ApiKey) -> None:
    request = API_TABLE[key].request
    patterns = [field for _, field in request.walk() if "pattern_type" in field.name]

    assert [(field.is_in(0), field.is_in(1), field.default) for field in patterns] == [(False, True, Pattern.LITERAL)]


def test_a_right_is_an_operation_on_a_type_of_resources() -> None:
    assert Operation.READ.on(ResourceType.GROUP) == Right(Operation.READ, ResourceType.GROUP)
