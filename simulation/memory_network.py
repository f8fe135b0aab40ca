"""A network in memory, in place of `broker/network/sockets.py` and of the sockets that it makes.

Bytes arrive in their order, each piece after a time of its own. Between two hosts they may be held up, in one
direction or both, until the way is open again. A process that is killed resets its connections; a host that loses power
is silent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import trio

from minibroker.broker.network.arrivals import ARRIVED, END_EVENTS
from minibroker.simulation.world import Process, Timed, World, wait_for, wake

BUFFER_BYTES = 256 * 1024  # of what a socket has sent, and the other side has not read
FIRST_PORT = 40_000
Address = tuple[str, int]


class Socket:
    """One end of a connection, with the methods of a socket that does not block."""

    def __init__(self, network: MemoryNetwork, process: Process, address: Address, peer_address: Address) -> None:
        self._network = network
        self.process = process
        self.address = address
        self.peer_address = peer_address
        self.number = network.next_number()
        self.peer: Socket = self
        self.inbox = bytearray()
        self.under_way: deque[tuple[Timed, bytes | None]] = deque()  # to it
        self.unread = 0  # bytes sent that the other side has not read
        self.is_ended = False  # by the other side
        self.is_reset = False
        self.is_closed = False
        self.arrivals: Arrivals | None = None
        self._on_arrival: Callable[[bytes | None], None] | None = None
        self.due = 0.0  # when the last piece of it arrives
        self.readers = trio.lowlevel.ParkingLot()
        self.writers = trio.lowlevel.ParkingLot()

    def fileno(self) -> int:
        return self.number

    def getsockname(self) -> Address:
        return self.address

    def setblocking(self, _: bool) -> None: ...

    def setsockopt(self, *_: object) -> None: ...

    def shutdown(self, _: int) -> None: ...

    def dup(self) -> AbstractContextManager[Socket]:
        return nullcontext(self)

    def getsockopt(self, *_: object) -> bytes:
        raise OSError("not a socket of TCP")

    @property
    def is_readable(self) -> bool:
        return bool(self.inbox) or self.is_ended or self.is_reset

    def recv(self, size: int, flags: int = 0) -> bytes:
        """Read, or with MSG_PEEK look at what has arrived, and leave it there."""
        if not flags:
            data = bytearray(size)
            return bytes(data[: self.recv_into(data)])
        self._check()
        if not self.inbox and not self.is_ended:
            raise BlockingIOError
        return bytes(self.inbox[:size])

    def recv_into(self, buffer: Any) -> int:
        self._check()
        if not self.inbox:
            if self.is_ended:
                return 0
            raise BlockingIOError
        size = min(len(buffer), len(self.inbox))
        buffer[:size] = self.inbox[:size]
        del self.inbox[:size]
        self.peer.unread -= size
        wake(self.peer.writers)
        return size

    def send(self, data: Any, flags: int = 0) -> int:
        self._check()
        if self.peer.is_closed:
            raise BrokenPipeError("the other side has closed")
        size = min(len(data), BUFFER_BYTES - self.unread)
        if size <= 0 and len(data):
            raise BlockingIOError
        self.unread += size
        self._network.post(self, bytes(memoryview(data)[:size]))
        return size

    def _check(self) -> None:
        if not self.process.is_alive or self.is_closed or self.is_reset:
            raise ConnectionResetError("the connection is reset")

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._network.post(self, None)
            self._network.forget(self)
            self._wake()

    # -- what arrives -----------------------------------------------------------------------------------------

    def arrive(self, data: bytes | None) -> None:
        """Take bytes, or None for the end."""
        if self._on_arrival is not None:
            self.peer.unread -= len(data or b"")
            self._on_arrival(data)
        elif data is None:
            self.is_ended = True
        else:
            self.inbox += data
        self._wake()

    def answer_by(self, on_arrival: Callable[[bytes | None], None]) -> None:
        """Call this with what arrives, None for the end: a host that answers at once."""
        self._on_arrival = on_arrival

    def reset(self) -> None:
        self.is_reset = self.is_ended = True
        if self._on_arrival is not None:
            self._on_arrival(None)
        self._wake()

    def _wake(self) -> None:
        wake(self.readers)
        wake(self.writers)
        if self.arrivals is not None:
            self.arrivals.note(self)

    async def wait_readable(self) -> None:
        await wait_for(lambda: self.is_readable or self.is_closed, self.readers)

    async def wait_writable(self) -> None:
        await wait_for(
            lambda: self.is_reset or self.is_closed or self.peer.is_closed or self.unread < BUFFER_BYTES, self.writers
        )


class Listener:
    """A listening socket. `with` closes it. A host that answers at once gets connections `on_connection`."""

    def __init__(
        self,
        network: MemoryNetwork,
        process: Process,
        address: Address,
        on_connection: Callable[[Socket], None] | None = None,
    ) -> None:
        self._network = network
        self._on_connection = on_connection
        self.process = process
        self.address = address
        self.number = network.next_number()
        self.accepted: deque[Socket] = deque()
        self.waiting = trio.lowlevel.ParkingLot()

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: object) -> None:
        self._network.stop_listening(self)

    def fileno(self) -> int:
        return self.number

    def getsockname(self) -> Address:
        return self.address

    def take(self, sock: Socket) -> None:
        """Take a new connection."""
        if self._on_connection is not None:
            self._on_connection(sock)
        else:
            self.accepted.append(sock)
            self.waiting.unpark_all()

    def accept(self) -> tuple[Socket, Address]:
        if not self.accepted:
            raise BlockingIOError
        sock = self.accepted.popleft()
        return sock, sock.peer_address

    async def wait_readable(self) -> None:
        await wait_for(lambda: self.accepted, self.waiting)


class Arrivals:
    """In place of an epoll."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._process = world.process()
        self._ready: dict[int, int] = {}

    def register(self, sock: Socket, _: int) -> None:
        sock.arrivals = self
        if sock.is_readable:
            self.note(sock)

    def unregister(self, sock: Socket) -> None:
        sock.arrivals = None
        self._ready.pop(sock.number, None)

    def note(self, sock: Socket) -> None:
        self._ready[sock.number] = ARRIVED | (END_EVENTS if sock.is_ended else 0)
        self._world.clock.note_news()

    def poll(self, _: float, most: int) -> list[tuple[int, int]]:
        """The sockets with news. What follows is a step of this process."""
        if not self._ready or self._process.is_held or not self._process.is_alive:
            return []
        self._world.enter(self._process)
        taken = list(self._ready.items())[:most]
        for number, _events in taken:
            del self._ready[number]
        if self._ready:
            self._world.clock.note_news()
        return taken

    async def wait_readable(self) -> None:
        """The loop polls before each step, and before time moves: nobody need be woken for it."""
        await trio.sleep_forever()


class OwnEnd:
    """The socket of a stream, as trio's."""

    def __init__(self, sock: Socket) -> None:
        self._sock = sock

    def is_readable(self) -> bool:
        return self._sock.is_readable

    async def recv_into(self, buffer: Any) -> int:
        if self._sock.is_closed:
            raise trio.ClosedResourceError
        await self._sock.wait_readable()
        if self._sock.is_closed:
            raise trio.ClosedResourceError
        return self._sock.recv_into(buffer)

    def close(self) -> None:
        self._sock.close()


class Stream:
    """As trio.SocketStream."""

    def __init__(self, sock: Socket) -> None:
        self._sock = sock
        self.socket = OwnEnd(sock)

    async def send_all(self, data: Any) -> None:
        rest = memoryview(data)
        while rest:
            await self._sock.wait_writable()
            try:
                rest = rest[self._sock.send(rest) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise trio.BrokenResourceError(str(error)) from error


class MemoryNetwork:
    """`delay` draws the time of a piece between two hosts, in seconds."""

    def __init__(
        self, world: World, delay: Callable[[str, str], float], read_file: Callable[[int, int, int], bytes]
    ) -> None:
        self._world = world
        self._delay = delay
        self._read_file = read_file
        self._numbers = 2
        self._listeners: dict[Address, Listener] = {}
        self._sockets: dict[int, Socket] = {}
        self._closed_ways: set[tuple[str, str]] = set()
        self._held: dict[tuple[str, str], list[tuple[Socket, bytes | None]]] = {}
        self._opened = trio.lowlevel.ParkingLot()
        self.hosts: dict[Process, str] = {}

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def post(self, sender: Socket, data: bytes | None) -> None:
        """Send bytes on their way, or None for the end of the stream."""
        delay = self._delay(sender.address[0], sender.peer_address[0])
        sender.due = max(sender.due, self._world.own_seconds() + delay)
        timed = self._world.clock.at(sender.due, partial(self._arrive_next, sender.peer))
        sender.peer.under_way.append((timed, data))

    def _arrive_next(self, sock: Socket) -> None:
        _, data = sock.under_way.popleft()
        self._arrive(sock, data)

    def _arrive(self, sock: Socket, data: bytes | None) -> None:
        way = sock.peer_address[0], sock.address[0]
        if way in self._closed_ways:
            self._held.setdefault(way, []).append((sock, data))
        elif not sock.is_closed and sock.process.is_alive:
            self._world.note("arrives", *way, sock.number, data)
            sock.arrive(data)

    # -- connections ------------------------------------------------------------------------------------------

    def listen(
        self, process: Process, address: Address, on_connection: Callable[[Socket], None] | None = None
    ) -> Listener:
        listener = self._listeners[address] = Listener(self, process, address, on_connection)
        return listener

    def stop_listening(self, listener: Listener) -> None:
        if self._listeners.get(listener.address) is listener:
            del self._listeners[listener.address]

    async def open_stream(self, host: str, port: int) -> Stream:
        """In place of trio.open_tcp_stream. Raises OSError."""
        return Stream(await self.open_socket(host, port))

    async def open_socket(self, host: str, port: int) -> Socket:
        """In place of `sockets.open_socket`. Raises OSError."""
        process = self._world.process()
        own = self.hosts[process]
        await trio.sleep(self._delay(own, host) + self._delay(host, own))
        while self._is_closed(own, host):
            await self._opened.park()
        return self._connect(process, host, port)

    def _is_closed(self, own: str, host: str) -> bool:
        return bool({(own, host), (host, own)} & self._closed_ways)

    def _connect(self, process: Process, host: str, port: int) -> Socket:
        own = self.hosts[process]
        listener = self._listeners.get((host, port))
        if listener is None or not listener.process.is_alive:
            raise ConnectionRefusedError("refused")
        near = Socket(self, process, (own, FIRST_PORT + self.next_number()), listener.address)
        far = Socket(self, listener.process, listener.address, near.address)
        near.peer, far.peer = far, near
        self._sockets[near.number], self._sockets[far.number] = near, far
        listener.take(far)
        return near

    def forget(self, sock: Socket) -> None:
        self._sockets.pop(sock.number, None)

    def send_file(self, sock: Socket, fd: int, position: int, size: int) -> int:
        return sock.send(self._read_file(fd, size, position))

    # -- calls that wait --------------------------------------------------------------------------------------

    def create_connection(self, address: Address, seconds: float) -> Socket:
        """In place of socket.create_connection. Raises OSError."""
        process, host = self._world.process(), address[0]
        own, now = self.hosts[process], self._world.own_seconds()
        if self._is_closed(own, host):
            self._world.block(now + seconds)
            raise TimeoutError("timed out")
        self._world.block(now + self._delay(own, host) + self._delay(host, own))
        return self._connect(process, *address)

    def wait_for_piece(self, sock: Socket, seconds: float) -> bool:
        """Wait until something is there to read; the other side is a host that answers at once."""
        deadline = self._world.own_seconds() + seconds
        while not sock.is_readable:
            awaiting = [each for each in (sock, sock.peer) if each.under_way]
            receiver = min(awaiting, key=lambda each: each.under_way[0][0].at, default=None)
            if receiver is None or receiver.under_way[0][0].at > deadline:
                self._world.block(deadline)
                return False
            timed = receiver.under_way[0][0]
            timed.cancel()
            self._world.block(timed.at)
            self._arrive_next(receiver)
        return True

    # -- faults -----------------------------------------------------------------------------------------------

    def end(self, process: Process, *, is_silent: bool = False) -> None:
        """The process has ended; where it is not silent, the other sides hear of it."""
        for listener in [each for each in self._listeners.values() if each.process is process]:
            self.stop_listening(listener)
        for sock in [each for each in self._sockets.values() if each.process is process]:
            self.forget(sock)
            if not is_silent:
                sock.peer.reset()

    def cut(self, one: str, other: str) -> None:
        """Reset the connections between two hosts."""
        for sock in list(self._sockets.values()):
            if (sock.address[0], sock.peer_address[0]) == (one, other):
                sock.reset()
                sock.peer.reset()

    def stall(self, processes: Collection[Process], host: str, seconds: float) -> None:
        """Have what these processes send over their present connections to a host arrive so much later."""
        for sock in self._sockets.values():
            if sock.process in processes and sock.peer_address[0] == host:
                sock.due = self._world.seconds() + seconds

    def close_way(self, source: str, target: str) -> None:
        """Hold what a host sends to another one."""
        self._closed_ways.add((source, target))

    def open_way(self, source: str, target: str) -> None:
        self._closed_ways.discard((source, target))
        for sock, data in self._held.pop((source, target), ()):
            self._arrive(sock, data)
        self._opened.unpark_all()
