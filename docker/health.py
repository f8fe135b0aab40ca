"""The health check of the broker in this container: status 0 if it answers, else 1 and a line with the reason.

It connects to a listener, not to advertised.listeners, which may be reachable from outside only. /dev/shm is writable
even in a read-only container, and empty when it starts.
"""

from __future__ import annotations

import sys
from pathlib import Path

from minibroker.administration import connected
from minibroker.protocol.api import ApiKey

READY_FILE = Path("/dev/shm/minibroker.ready")
LISTENS_BY_DEFAULT = "127.0.0.1:9092"  # for a command of the user's own without a ready file


def address() -> str:
    return READY_FILE.read_text().strip() if READY_FILE.exists() else LISTENS_BY_DEFAULT


if __name__ == "__main__":
    try:
        with connected(address()) as connection:
            connection.ask(ApiKey.METADATA, topics=[])
    except OSError as error:
        sys.exit(f"no answer from {address()}: {error}")
