"""The health check of the broker in this container: status 0 if it answers, else 1 and a line with the reason. Of a
cluster of brokers, one answers for all.

It connects to a listener, not to advertised.listeners, which may be reachable from outside only: to one in plain text
if there is one, else it asks nothing, since it has no password. /dev/shm is writable even in a read-only container, and
empty when it starts.
"""

from __future__ import annotations

import re
import socket
import sys
from pathlib import Path

from minibroker.client.address import parse_address
from minibroker.client.connection import Connection
from minibroker.protocol.api import ApiKey

READY_FILE = Path("/dev/shm/minibroker.ready")
LISTENS_BY_DEFAULT = "127.0.0.1:9092"  # for a command of the user's own without a ready file
NAMED = re.compile(r"(?P<name>.*)://(?P<address>[^ ]*)( \((?P<protocol>.*)\))?")
CONNECT_SECONDS = 5


def listener(ready: str) -> tuple[str, bool]:
    """The address of a listener in plain text, else of the first; and whether it is in plain text."""
    first, *named = ready.splitlines()
    for line in named:
        match = NAMED.fullmatch(line)
        if match is not None and (match["protocol"] or match["name"]) == "PLAINTEXT":
            return match["address"], True
    return first, not named


def check(address: str, *, is_plain: bool) -> None:
    """Raises OSError."""
    if is_plain:
        with Connection(parse_address(address)) as connection:
            connection.ask(ApiKey.METADATA, seconds=CONNECT_SECONDS, topics=[])
    else:
        host, _, port = address.rpartition(":")
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()


if __name__ == "__main__":
    address, is_plain = listener(READY_FILE.read_text() if READY_FILE.exists() else LISTENS_BY_DEFAULT)
    reasons = []
    for each in address.split(","):
        try:
            check(each, is_plain=is_plain)
            break
        except OSError as error:
            reasons.append(f"no answer from {each}: {error}")
    else:
        sys.exit("; ".join(reasons))
