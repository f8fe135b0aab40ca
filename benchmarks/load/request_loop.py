"""The request loop of request_loop.c for machines without a C compiler: the same arguments, the same line of JSON.

It is slower: above some 100,000 answers a second it measures itself. The report names the one that ran.
"""

from __future__ import annotations

import argparse
import json
import select
import socket
import struct
import sys
import time
from collections import deque
from pathlib import Path

BUFFER_BYTES = 256 * 1024
SLOW_SECONDS = 0.1
NO_TIME_WAIT = struct.pack("ii", 1, 0)


class Frames:
    """Whole frames, handed out in rotation."""

    def __init__(self, path: Path) -> None:
        data = path.read_bytes()
        self.frames: list[bytes] = []
        at = 0
        while at < len(data):
            size_bytes = 4 + int.from_bytes(data[at : at + 4], "big")
            self.frames.append(data[at : at + size_bytes])
            at += size_bytes
        if at != len(data):
            raise SystemExit(f"{path} does not end with a whole frame")
        self._next = 0

    def next(self) -> bytes:
        frame = self.frames[self._next]
        self._next = (self._next + 1) % len(self.frames)
        return frame


class Connection:
    """One connection and the times of the requests in flight on it."""

    def __init__(self, host: str, port: int) -> None:
        self.socket = socket.create_connection((host, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_TIME_WAIT)
        self._header = b""
        self._body_left = 0
        self._sent_at: deque[float] = deque()

    def send(self, frame: bytes) -> None:
        self._sent_at.append(time.perf_counter())
        self.socket.sendall(frame)

    def receive(self, buffer: memoryview) -> tuple[int, list[float]]:
        """Take what has arrived: its bytes, and the seconds each answer took that ended with it."""
        received = self.socket.recv_into(buffer)
        if not received:
            raise SystemExit("the server closed a connection")
        took: list[float] = []
        at = 0
        while at < received:
            if len(self._header) < 4:
                step = min(4 - len(self._header), received - at)
                self._header += buffer[at : at + step]
                at += step
                if len(self._header) < 4:
                    break
                self._body_left = int.from_bytes(self._header, "big")
            step = min(self._body_left, received - at)
            at += step
            self._body_left -= step
            if not self._body_left:
                self._header = b""
                took.append(time.perf_counter() - self._sent_at.popleft())
        return received, took


class Loop:
    """All connections, and what was measured."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._frames = Frames(options.frames)
        self._connections = [Connection(options.host, options.port) for _ in range(options.connections)]
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self.latencies: list[float] = []
        self.received_bytes = 0

    def run(self) -> float:
        """Seconds from the first request to the last answer."""
        start = time.perf_counter()
        end = start + self._options.seconds
        if self._options.gap_us:
            self._paced(self._connections[0], end)
        else:
            self._closed_loop(end)
        return time.perf_counter() - start

    def _closed_loop(self, end: float) -> None:
        poller = select.epoll()
        by_descriptor = {connection.socket.fileno(): connection for connection in self._connections}
        for descriptor, connection in by_descriptor.items():
            poller.register(descriptor, select.EPOLLIN)
            for _ in range(self._options.depth if self._frames.frames else 0):
                connection.send(self._frames.next())
        print("ready", flush=True)
        while len(self.latencies) < self._options.requests and (left := end - time.perf_counter()) > 0:
            for descriptor, _ in poller.poll(left, 512):
                connection = by_descriptor[descriptor]
                for _ in range(self._receive(connection)):
                    connection.send(self._frames.next())

    def _paced(self, connection: Connection, end: float) -> None:
        print("ready", flush=True)
        while len(self.latencies) < self._options.requests and time.perf_counter() < end:
            connection.send(self._frames.next())
            while not self._receive(connection):
                pass
            time.sleep(self._options.gap_us / 1e6)

    def _receive(self, connection: Connection) -> int:
        received, took = connection.receive(self._buffer)
        self.received_bytes += received
        self.latencies += took
        return len(took)


def main() -> None:
    """Run one loop and print its result."""
    parser = argparse.ArgumentParser()
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("frames", type=Path)
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--depth", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--requests", type=int, default=sys.maxsize)
    parser.add_argument("--gap-us", type=int, default=0)
    loop = Loop(parser.parse_args())
    took_seconds = loop.run()
    latencies = sorted(loop.latencies) or [0.0]
    result = {
        "requests": len(loop.latencies),
        "seconds": took_seconds,
        "bytes": loop.received_bytes,
        "p50_us": latencies[len(latencies) // 2] * 1e6,
        "p99_us": latencies[len(latencies) * 99 // 100] * 1e6,
        "max_us": latencies[-1] * 1e6,
        "over_100_ms": sum(latency > SLOW_SECONDS for latency in latencies),
        "client_cpu_seconds": time.process_time(),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
