"""What sockets allow: servers that read a frame and answer with as many bytes as a broker would, and do nothing else.

    echo      one epoll loop in Python; an answer is bytes already made. The limit of a single-threaded broker.
    sendfile  a blocking loop in one thread a connection; an answer is a header and a part of a file, by sendfile.

Both print `ready` and serve until they are killed.
"""

from __future__ import annotations

import argparse
import os
import select
import socket
import threading
from pathlib import Path

from minibroker.broker.network.congestion import start_unpaced

RECEIVE_BYTES = 64 * 1024
HEADER_BYTES = 100


def listen(port: int) -> socket.socket:
    """A listening socket on loopback; its connections are not paced, as the broker's are not."""
    listener = socket.create_server(("127.0.0.1", port), backlog=4096, reuse_port=False)
    start_unpaced(listener)
    print("ready", flush=True)
    return listener


class EchoConnection:
    """Counts the frames that end in what has arrived."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._pending = bytearray()

    def frames_ended(self, data: memoryview) -> int:
        pending = self._pending
        pending += data
        ended = at = 0
        while len(pending) - at >= 4:
            size_bytes = 4 + int.from_bytes(pending[at : at + 4], "big")
            if len(pending) - at < size_bytes:
                break
            at += size_bytes
            ended += 1
        del pending[:at]
        return ended


def serve_echo(port: int, response_bytes: int) -> None:
    """Answer each frame with one of `response_bytes`."""
    listener = listen(port)
    answer = (response_bytes - 4).to_bytes(4, "big") + bytes(response_bytes - 4)
    buffer = memoryview(bytearray(RECEIVE_BYTES))
    poller = select.epoll()
    poller.register(listener.fileno(), select.EPOLLIN)
    connections: dict[int, EchoConnection] = {}
    while True:
        for descriptor, _ in poller.poll():
            if descriptor == listener.fileno():
                accepted, _ = listener.accept()
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                poller.register(accepted.fileno(), select.EPOLLIN)
                connections[accepted.fileno()] = EchoConnection(accepted)
                continue
            if not answer_one(connections[descriptor], buffer, answer):
                poller.unregister(descriptor)
                connections.pop(descriptor).socket.close()


def answer_one(connection: EchoConnection, buffer: memoryview, answer: bytes) -> bool:
    """Answer what has arrived; False when the client has gone."""
    try:
        received = connection.socket.recv_into(buffer)
        if received:
            connection.socket.sendall(answer * connection.frames_ended(buffer[:received]))
    except ConnectionError:
        return False
    return received > 0


def serve_sendfile(port: int, path: Path, slice_bytes: int) -> None:
    """Answer each frame with a header and the next `slice_bytes` of the file, beginning again at its end."""
    listener = listen(port)
    file = os.open(path, os.O_RDONLY)
    while True:
        accepted, _ = listener.accept()
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        arguments = (accepted, file, os.fstat(file).st_size, slice_bytes)
        threading.Thread(target=send_slices, args=arguments, daemon=True).start()


def send_slices(connection: socket.socket, file: int, file_bytes: int, slice_bytes: int) -> None:
    """Serve one connection until it ends."""
    header = (slice_bytes + HEADER_BYTES - 4).to_bytes(4, "big") + bytes(HEADER_BYTES - 4)
    position = 0
    with connection:
        while True:
            try:
                if not connection.recv(RECEIVE_BYTES):
                    return
                connection.send(header, socket.MSG_MORE)
                end = position + slice_bytes
                while position < end:
                    position += os.sendfile(connection.fileno(), file, position, end - position)
            except ConnectionError:
                return
            if position + slice_bytes > file_bytes:
                position = 0


def main() -> None:
    """Serve as the command line asks."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["echo", "sendfile"])
    parser.add_argument("port", type=int)
    parser.add_argument("--response-bytes", type=int, required=True)
    parser.add_argument("--file", type=Path)
    options = parser.parse_args()
    if options.kind == "echo":
        serve_echo(options.port, options.response_bytes)
    else:
        serve_sendfile(options.port, options.file, options.response_bytes)


if __name__ == "__main__":
    main()
