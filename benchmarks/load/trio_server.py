"""The bound that Python and trio set: a server of nothing else, which answers each read with the same bytes.

`python trio_server.py PORT`. It listens before it imports trio, as `minibroker serve` does.
"""

from __future__ import annotations

import socket
import sys
from contextlib import suppress

BACKLOG = 4096
RECEIVE_BYTES = 64 * 1024
ANSWER = bytes(400)  # as many as ApiVersions has


def main(port: int) -> None:
    listener = socket.create_server(("127.0.0.1", port), backlog=BACKLOG)

    import trio

    async def serve(stream: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError):  # a client that has seen enough
            while await stream.receive_some(RECEIVE_BYTES):
                await stream.send_all(ANSWER)

    async def accept() -> None:
        await trio.serve_listeners(serve, [trio.SocketListener(trio.socket.from_stdlib_socket(listener))])

    trio.run(accept)


if __name__ == "__main__":
    main(int(sys.argv[1]))
