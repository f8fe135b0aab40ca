"""Drivers in other languages that tests start many of: compiled once, then started as programs.

Each function returns the command to which a driver's arguments are added, or raises UnavailableError.
"""

from __future__ import annotations

import os
import shutil
import subprocess

from tests.integration.clients import DRIVERS, UnavailableError
from tests.setup_clients import FRANZ_GO, HOW_TO_PREPARE, KAFKAJS, ROOT, franz_go_driver

SOURCES = ROOT.joinpath(*DRIVERS.split("."))


def node_program(name: str) -> list[str]:
    """A driver of kafkajs."""
    modules = KAFKAJS / "node_modules"
    if shutil.which("node") is None:
        raise UnavailableError("no node: install Node.js (Debian: nodejs)")
    if not modules.is_dir():
        raise UnavailableError(f"no {modules}: {HOW_TO_PREPARE}")
    return ["env", f"NODE_PATH={modules}", "node", str(SOURCES / f"{name}.js")]


def go_program(command: str) -> list[str]:
    """The driver of franz-go, built without the network where its source has changed."""
    if not FRANZ_GO.is_dir():
        raise UnavailableError(f"no {FRANZ_GO}: {HOW_TO_PREPARE}")
    try:
        return [os.fspath(franz_go_driver(is_online=False)), command]
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(f"{error}: {HOW_TO_PREPARE}") from None
