"""CRC32C: the right polynomial, from the extension or from its package."""

from __future__ import annotations

import subprocess
import sys
from importlib.machinery import ModuleSpec, PathFinder

import pytest

from minibroker.protocol import checksums

CHECKSUMS = [(b"", 0), (b"123456789", 0xE3069283), (bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43)]


@pytest.mark.parametrize(("data", "checksum"), CHECKSUMS)
def test_checksums_are_those_of_rfc_3720_and_go_on_from_each_other(data: bytes, checksum: int) -> None:
    for buffer in (data, bytearray(data), memoryview(b"." + data)[1:]):
        assert checksums.crc32c(buffer, 0) == checksum
        assert checksums.load_package()(buffer, 0) == checksum
        assert checksums.crc32c(buffer[4:], checksums.crc32c(buffer[:4], 0)) == checksum


def test_the_extension_is_loaded_without_its_package() -> None:
    program = "import sys, minibroker.protocol.checksums as c; print('crc32c' in sys.modules, c.crc32c(b'a', 0))"

    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    assert output.split() == ["False", str(0xC1D04330)]


@pytest.mark.parametrize("package", [None, ModuleSpec("crc32c", None)])
def test_another_layout_is_imported_whole(package: ModuleSpec | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksums, "find_spec", lambda name: package)

    assert checksums.load_extension() is None
    assert checksums.crc32c_function()(b"123456789", 0) == 0xE3069283


def test_an_extension_elsewhere_or_that_does_not_load_is_left_to_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(spec: ModuleSpec) -> None:
        raise ImportError("built for another machine")

    monkeypatch.setattr(checksums, "module_from_spec", refuse)
    assert checksums.load_extension() is None
    monkeypatch.setattr(PathFinder, "find_spec", lambda name, path: None)
    assert checksums.load_extension() is None
    assert checksums.crc32c_function()(b"123456789", 0) == 0xE3069283
