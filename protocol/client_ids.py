"""The group that a client id names: clients make one of the other."""

from __future__ import annotations

import re

OF_COMMANDS = "minibroker-cli"
OF_CONSOLE = "minibroker-console"
OF_TOOLS = (OF_COMMANDS, OF_CONSOLE)  # what they look up is not read by a group
NO_CLIENT_ID = "(no client id)"
# Java's consumer without a client id of its own is `consumer-GROUP-N` (kafka-clients from 2.4); Flink's source, and
# others that number the clients of one application, make `NAME-N`.
NUMBERED = re.compile(r"(?:consumer-(?P<group>.+)|(?P<name>.*[^\d-].*))-\d+", re.DOTALL)


def group_in(client_id: str) -> str:
    """Return the group of a consumer by its client id, which is the group's name where it has no number."""
    found = NUMBERED.fullmatch(client_id)
    return client_id or NO_CLIENT_ID if found is None else found["group"] or found["name"]
