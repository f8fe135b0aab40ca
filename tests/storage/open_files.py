"""Which files this process holds open, only those of one test, as others are closed when they are freed; or forces."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def descriptors_in(directory: Path) -> int:
    """How many descriptors there are of the directory and of files in it, those of maps among them."""
    links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    paths = [os.readlink(link) for link in links if os.path.lexists(link)]
    return sum(path.startswith(str(directory)) for path in paths)


def forced_files(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Keep files from being forced to the disk; return the list to which the name of each will be added instead."""
    forced: list[str] = []
    for function in ("fdatasync", "fsync"):
        monkeypatch.setattr(
            f"minibroker.storage.files.disk.{function}",
            lambda fd: forced.append(Path(os.readlink(f"/proc/self/fd/{fd}")).name),
        )
    return forced
