"""Unix sockets at long paths."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from minibroker.storage.files.socket_path import PATH_BYTES_MAX, socket_address


@pytest.mark.parametrize("length", [PATH_BYTES_MAX, PATH_BYTES_MAX + 1, 300])
def test_a_socket_is_bound_and_reached_whatever_the_length_of_its_path(
    tmp_path_factory: pytest.TempPathFactory, length: int
) -> None:
    folder = tmp_path_factory.mktemp("s")
    while len(str(folder)) < length - 60:
        folder = folder / ("x" * 40)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / ("y" * (length - len(str(folder)) - 1))
    assert len(str(path)) == length

    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as caller:
        with socket_address(path) as address:
            listener.bind(address)
        listener.listen()
        with socket_address(path) as address:
            caller.connect(address)
        assert Path(path).is_socket()
