"""The bound that sockets set: servers that read a frame and answer with as many bytes as a broker, and no more.

    echo           one epoll loop in Python; an answer is bytes already made. The limit of a single-threaded broker.
    sendfile       a blocking loop in one thread a connection; an answer is a header and a part of a file, by sendfile.
    sendfile-loop  the same in one epoll loop: the limit of a single-threaded broker.

All print `ready` and serve until they are killed.
"""

from __future__ import annotations

import argparse
import os
import select
import socket
import threading
from contextlib import suppress
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
        threading.Thread(target=Slices(accepted, file, slice_bytes).serve, daemon=True).start()


def serve_sendfile_loop(port: int, path: Path, slice_bytes: int) -> None:
    """The same in one thread, which sends a connection what its socket takes, then goes on to the next."""
    listener = listen(port)
    file = os.open(path, os.O_RDONLY)
    poller = select.epoll()
    poller.register(listener, select.EPOLLIN)
    connections: dict[int, Slices] = {}
    while True:
        for descriptor, _ in poller.poll():
            if descriptor == listener.fileno():
                accepted, _ = listener.accept()
                accepted.setblocking(False)
                poller.register(accepted, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
                connections[accepted.fileno()] = Slices(accepted, file, slice_bytes)
                continue
            with suppress(BlockingIOError):
                connections[descriptor].serve()
                del connections[descriptor]  # its client has gone


class Slices:
    """A connection whose every frame is answered with the next part of a file."""

    def __init__(self, connection: socket.socket, file: int, slice_bytes: int) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connection
        self._file = file
        self._file_bytes = os.fstat(file).st_size
        self._slice_bytes = slice_bytes
        self._header = (slice_bytes + HEADER_BYTES - 4).to_bytes(4, "big") + bytes(HEADER_BYTES - 4)
        self._position = self._end = 0

    def serve(self) -> None:
        """Answer until the client has gone; of a socket that does not block, go on where BlockingIOError ended it."""
        with suppress(ConnectionError):
            while True:
                while self._position < self._end:
                    left_bytes = self._end - self._position
                    self._position += os.sendfile(self._socket.fileno(), self._file, self._position, left_bytes)
                if not self._socket.recv(RECEIVE_BYTES):
                    break
                if self._position + self._slice_bytes > self._file_bytes:
                    self._position = 0
                self._end = self._position + self._slice_bytes
                self._socket.send(self._header, socket.MSG_MORE)
        self._socket.close()


SENDFILE = {"sendfile": serve_sendfile, "sendfile-loop": serve_sendfile_loop}


def main() -> None:
    """Serve as the command line asks."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["echo", *SENDFILE])
    parser.add_argument("port", type=int)
    parser.add_argument("--response-bytes", type=int, required=True)
    parser.add_argument("--file", type=Path)
    options = parser.parse_args()
    if options.kind == "echo":
        serve_echo(options.port, options.response_bytes)
    else:
        SENDFILE[options.kind](options.port, options.file, options.response_bytes)


if __name__ == "__main__":
    main()
