"""How the kernel paces connections: not at all between processes of one host, as the system has it elsewhere."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from minibroker.broker.network import congestion
from minibroker.broker.network.congestion import default_algorithm, is_within_host, keep_default_outside
from minibroker.broker.network.listen import listen

ALLOWED = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")

pytestmark = pytest.mark.skipif(
    not hasattr(socket, "TCP_CONGESTION"), reason="this system has no choice of congestion control (Linux has)"
)


@contextmanager
def accepted_from(host: str) -> Iterator[socket.socket]:
    """A connection as the server accepts it, with the client at its other end."""
    with ExitStack() as stack:
        listener = stack.enter_context(listen(host, 0))
        listener.setblocking(True)
        stack.enter_context(socket.create_connection(listener.getsockname()[:2], timeout=10))
        accepted, _ = listener.accept()
        yield stack.enter_context(accepted)


def algorithm(sock: socket.socket) -> bytes:
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0")


@pytest.fixture
def other_default(monkeypatch: pytest.MonkeyPatch) -> bytes:
    """Something that is not what is chosen within a host, as the system's default."""
    default = default_algorithm()
    names = [default, *(ALLOWED.read_bytes().split() if ALLOWED.exists() else [])]
    other = next((name for name in names if name not in (None, congestion.WITHIN_HOST)), None)
    if other is None:
        pytest.skip(f"this kernel offers nothing but reno: see {ALLOWED} (modprobe tcp_bbr adds another)")
    monkeypatch.setattr(congestion, "default_algorithm", lambda: other)
    return other


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_connection_within_the_host_is_not_paced(other_default: bytes, host: str) -> None:
    with accepted_from(host) as sock:
        keep_default_outside(sock, sock.getpeername()[0], sock.getsockname()[0])

        assert algorithm(sock) == b"reno"


def test_a_connection_from_elsewhere_is_sent_to_as_the_system_has_it(other_default: bytes) -> None:
    with accepted_from("127.0.0.1") as sock:
        keep_default_outside(sock, "192.0.2.1", "192.0.2.7")

        assert algorithm(sock) == other_default


def test_a_kernel_that_refuses_the_choice_serves_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(congestion, "WITHIN_HOST", b"no-such-thing")

    with accepted_from("127.0.0.1") as sock, socket.socket() as new:
        assert algorithm(sock) == algorithm(new) == default_algorithm()


@pytest.mark.parametrize(
    ("peer_host", "local_host", "within"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.8.9.10", "127.0.0.1", True),
        ("::1", "::1", True),
        ("::ffff:127.0.0.1", "::ffff:127.0.0.1", True),
        ("10.0.0.7", "10.0.0.7", True),
        ("10.0.0.8", "10.0.0.7", False),
        ("::ffff:10.0.0.8", "::ffff:10.0.0.7", False),
        ("fe80::1", "fe80::2", False),
    ],
)
def test_addresses_within_this_host(peer_host: str, local_host: str, *, within: bool) -> None:
    assert is_within_host(peer_host, local_host) is within
