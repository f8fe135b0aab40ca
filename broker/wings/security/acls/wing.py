"""ACLs: with authorizer.class.name, clients may do only what rules allow them."""

from __future__ import annotations

from collections.abc import Sequence

from minibroker.broker.apis.routes import Routes
from minibroker.broker.cluster.state import Change
from minibroker.broker.config.profiles import Habit
from minibroker.broker.parts import BrokerParts
from minibroker.broker.principal import parse_principal
from minibroker.broker.way.stage import Stage
from minibroker.broker.wing import Wing
from minibroker.broker.wings.security.acls.acl_apis import AclApis
from minibroker.broker.wings.security.acls.acl_store import ACLS, AclStore
from minibroker.broker.wings.security.acls.authorizer import Authorizer
from minibroker.broker.wings.security.acls.guard import Guard, HiddenTopics


class AclWing(Wing):
    """Every broker answers the requests for ACLs, without an authorizer by SECURITY_DISABLED."""

    sections = (ACLS,)

    def __init__(self, parts: BrokerParts) -> None:
        config = parts.config
        self.authorizer = self._acls = None
        if config.authorizer_class_name:
            self.authorizer = Authorizer(
                super_users=list(map(parse_principal, config.super_users)),
                allows_everyone_without_rules=config.allow_everyone_if_no_acl_found,
            )
            self._acls = AclStore(parts.state, self.authorizer)
        hides = Habit.HIDES_TOPICS in config.profile.habits
        self._known_topics = parts.metadata_cache.topics if hides else None

    def stages(self) -> Sequence[Stage]:
        if self.authorizer is None:
            return []
        if self._known_topics is None:
            return [Guard(self.authorizer)]
        hidden = HiddenTopics(self.authorizer, self._known_topics)
        return [hidden, Guard(hidden)]

    def routes(self) -> Routes:
        return AclApis(self._acls).routes()

    def on_change(self, change: Change) -> None:
        if change.get(ACLS) is not None and self._acls is not None:
            self._acls.read()
