"""A broker with an authorizer and without a process; its clients are users by name, without a login."""

from __future__ import annotations

from typing import Any

from minibroker.broker.apis.client import Client
from minibroker.broker.security.principal import Principal
from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.resources import CLUSTER_NAME, ResourceType
from minibroker.protocol.rights import Operation, Pattern, Permission, Right
from tests.broker.conftest import InMemoryBroker, MakeBroker

AUTHORIZER = "kafka.security.auth.SimpleAclAuthorizer"
ADMIN, ALICE = "admin", "alice"


class Secured:
    """`ask` is a request of alice, unless another user is named."""

    def __init__(self, make_broker: MakeBroker, **settings: object) -> None:
        given = {"authorizer_class_name": AUTHORIZER, "super_users": f"User:{ADMIN}", **settings}
        self.broker: InMemoryBroker = make_broker(**given)

    def be(self, user: str) -> InMemoryBroker:
        """Let the next requests come from a user."""
        client = Client("10.0.0.1:50000", "127.0.0.1", 9092, principal=Principal("User", user))
        self.broker.client = client
        return self.broker

    async def ask(self, key: ApiKey, version: int, user: str = ALICE, /, **body: Any) -> Any:
        return await self.be(user).call(key, version, **body)

    async def change(self, right: Right, name: str, permission: Permission, user: str, pattern: Pattern) -> None:
        resource = CLUSTER_NAME if right.resource_type is ResourceType.CLUSTER else name
        row = (right.resource_type, resource, pattern, f"User:{user}", "*", right.operation, permission)
        answer = await self.ask(ApiKey.CREATE_ACLS, 1, ADMIN, creations=[row])
        assert [each.error_code for each in answer.results] == [ErrorCode.NONE], answer

    async def allow(self, right: Right, name: str = "", *, user: str = ALICE, prefixed: bool = False) -> None:
        await self.change(right, name, Permission.ALLOW, user, Pattern.PREFIXED if prefixed else Pattern.LITERAL)

    async def deny(self, right: Right, name: str = "", *, user: str = ALICE) -> None:
        await self.change(right, name, Permission.DENY, user, Pattern.LITERAL)

    async def forget_rules(self) -> None:
        await self.ask(ApiKey.DELETE_ACLS, 1, ADMIN, filters=[(1, None, Pattern.ANY, None, None, 1, 1)])

    async def create_topics(self, *names: str) -> None:
        for name in names:
            await self.be(ADMIN).create_topic(name)


READ_TOPIC, WRITE_TOPIC, DESCRIBE_TOPIC, CREATE_TOPIC, DELETE_TOPIC = (
    operation.on(ResourceType.TOPIC)
    for operation in (Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.CREATE, Operation.DELETE)
)
