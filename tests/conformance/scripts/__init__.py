"""The scripted conversations, by name."""

from __future__ import annotations

from collections.abc import Callable

from tests.conformance.scripts.administering import ADMINISTERING
from tests.conformance.scripts.changing import CHANGING
from tests.conformance.scripts.followers import FOLLOWERS
from tests.conformance.scripts.groups import GROUPS
from tests.conformance.scripts.leader_epochs import LEADER_EPOCHS
from tests.conformance.scripts.old_clients import OLD_CLIENTS
from tests.conformance.scripts.producing import PRODUCING
from tests.conformance.scripts.reading import READING
from tests.conformance.scripts.reconfiguring import RECONFIGURING
from tests.conformance.scripts.transactions import TRANSACTIONS
from tests.conformance.steps import Script

ALL: dict[str, Callable[[], Script]] = {
    **PRODUCING,
    **READING,
    **OLD_CLIENTS,
    **ADMINISTERING,
    **CHANGING,
    **RECONFIGURING,
    **FOLLOWERS,
    **GROUPS,
    **TRANSACTIONS,
    **LEADER_EPOCHS,
}
