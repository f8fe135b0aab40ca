"""Where a broker listens that may choose its port."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from minibroker.broker.network import listen as listening
from minibroker.broker.network.listen import FIRST_FREE_PORT, listen


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_free_port_is_one_that_no_client_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setattr(listening, "CLIENT_PORTS", ports := tmp_path / "ip_local_port_range")
    ports.write_text("32768\t60999\n")

    for _ in range(20):
        with listen(host, 0) as sock:
            assert FIRST_FREE_PORT <= sock.getsockname()[1] < 32_768


def test_a_port_that_is_taken_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with listen("127.0.0.1", 0) as taken, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
        probe.close()
        monkeypatch.setattr(listening, "candidates", lambda: iter([taken.getsockname()[1], free]))

        with listen("127.0.0.1", 0) as sock:
            assert sock.getsockname()[1] == free


@pytest.mark.parametrize("text", [None, "", "nonsense", "1024 65000"])
def test_where_clients_may_be_given_any_port_any_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    monkeypatch.setattr(listening, "CLIENT_PORTS", ports := tmp_path / "ip_local_port_range")
    if text is not None:
        ports.write_text(text)

    with listen("127.0.0.1", 0) as sock:
        assert sock.getsockname()[1] > 0
