"""Whether the broker in this container serves: status 0, or 1 and a line that says why not.

It is asked at an address where it listens, not where clients are sent: what advertised.listeners names may be reached
from outside only. /dev/shm can be written also where all else is read-only, and is empty when a container starts.
"""

from __future__ import annotations

import sys
from pathlib import Path

from minibroker.administration import connected
from minibroker.protocol.api import ApiKey

READY_FILE = Path("/dev/shm/minibroker.ready")
LISTENS_BY_DEFAULT = "127.0.0.1:9092"  # where a command of the user's own names no ready file


def address() -> str:
    return READY_FILE.read_text().strip() if READY_FILE.exists() else LISTENS_BY_DEFAULT


if __name__ == "__main__":
    try:
        with connected(address()) as connection:
            connection.ask(ApiKey.METADATA, topics=[])
    except OSError as error:
        sys.exit(f"no answer from {address()}: {error}")
