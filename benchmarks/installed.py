"""minibroker as users install it: byte-compiled, with its dependencies and nothing else.

An editable install differs: its environment has other packages, and under PYTHONDONTWRITEBYTECODE every start compiles
its modules. So the packages that `pyproject.toml` names are copied with their dependencies into a new virtual
environment, and compiled. Nothing is downloaded.
"""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import struct
import subprocess
import sys
import time
import tomllib
import venv
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.measurements import MINIBROKER
from benchmarks.processes import ROOT, BrokerServer, ProcessError, ServerProcess, free_port

PACKAGE = ROOT / "src" / "minibroker"
PYTHON = Path(".venv/bin/python")  # of a checkout
COMPILED_PACKAGE = ROOT / "build" / "installed" / "minibroker"
START_SECONDS = 30.0
READY_POLL_SECONDS = 0.002
COMPILE_SECONDS = 120.0
REQUIREMENT_NAME = re.compile(r"[A-Za-z0-9._-]+")
INSTALLER_FILES = (".dist-info", ".data")
# ApiVersions v0, correlation id 1, no client id: key, version, id, a null string.
API_VERSIONS_FRAME = struct.pack(">ihhih", 10, 18, 0, 1, -1)


def install(directory: Path, package: Path = PACKAGE) -> Path:
    """Create the environment in `directory`, which must not exist; return its Python. `package` is minibroker's."""
    venv.create(directory, symlinks=True, with_pip=False)
    site = next((directory / "lib").glob("python*")) / "site-packages"
    for entry in _dependency_entries():
        _copy(entry, site / entry.name)
    # What the links in it lead to is copied with it.
    shutil.copytree(package, site / "minibroker", ignore=shutil.ignore_patterns("__pycache__"))
    python = directory / "bin" / "python"
    command = [str(python), "-m", "compileall", "-q", "-j", "2", str(site)]
    # Some dependency's file for a newer Python may not compile; what the broker imports does.
    subprocess.run(command, stdout=subprocess.DEVNULL, timeout=COMPILE_SECONDS, check=False)
    return python


def install_compiled(directory: Path) -> Path:
    """The same of the compiled form that `make wheel` has built. Raises ProcessError."""
    if not COMPILED_PACKAGE.exists():
        raise ProcessError(f"there is no compiled form in {COMPILED_PACKAGE.parent}: run `make wheel`")
    return install(directory, COMPILED_PACKAGE)


def install_checkout(checkout: Path, directory: Path) -> Path:
    """The same for another checkout, by its own Python and its own `install`. Raises ProcessError."""
    command = [str(checkout / PYTHON), "-m", "benchmarks.installed", str(directory)]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, timeout=COMPILE_SECONDS, check=False)
    if done.returncode:
        raise ProcessError(f"minibroker of {checkout} could not be installed:\n{done.stderr}")
    return directory / "bin" / "python"


def _dependency_entries() -> set[Path]:
    """Files and folders in site-packages of what minibroker needs to run, however deep."""
    entries: set[Path] = set()
    seen: set[str] = set()
    todo = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    while todo:
        requirement = todo.pop()
        name = REQUIREMENT_NAME.match(requirement)
        if name is None or "extra ==" in requirement or name[0].lower() in seen:
            continue
        seen.add(name[0].lower())
        try:
            found = importlib.metadata.distribution(name[0])
        except importlib.metadata.PackageNotFoundError:
            continue  # for another platform or Python
        todo += found.requires or []
        for file in found.files or []:
            if file.parts[0] not in ("..", "__pycache__"):
                entries.add(Path(str(found.locate_file(file.parts[0]))))
    return entries


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    else:
        shutil.copy2(source, target)


class Minibroker(BrokerServer):
    """`minibroker serve` on a free port, all files in `directory`."""

    def __init__(
        self,
        python: Path,
        directory: Path,
        *,
        name: str = MINIBROKER,
        settings: Mapping[str, object] | None = None,
        options: Sequence[str] = (),
        program: Sequence[str] = ("-m", "minibroker"),
    ) -> None:
        self.name = name
        self.data_dir = directory / "data"
        self.port = free_port()
        self._ready_file = directory / "ready"
        self._python = python
        self._directory = directory
        self._settings = dict(settings or {})
        self._options = options
        self._program = program

    def start(self) -> Minibroker:
        """Start it and return when it answers. Raises ProcessError."""
        with ExitStack() as on_error:
            on_error.callback(self.kill)
            self.spawn_broker()
            first_answer_seconds(self.broker)
            deadline = time.monotonic() + START_SECONDS
            while not self._ready_file.exists():
                if time.monotonic() > deadline:
                    raise ProcessError(f"minibroker wrote no ready file{self.broker.last_output()}")
                time.sleep(READY_POLL_SECONDS)
            on_error.pop_all()
        return self

    def spawn_broker(self) -> ServerProcess:
        """Start the process without waiting."""
        self._directory.mkdir(parents=True, exist_ok=True)
        command: list[str | Path] = [self._python, *self._program, "serve"]
        command += ["--listen", f"127.0.0.1:{self.port}", "--data-dir", self.data_dir]
        command += ["--ready-file", self._ready_file, "--log-level", "WARNING", *self._options]
        for name, value in {"group.initial.rebalance.delay.ms": 0, **self._settings}.items():
            command += ["--set", f"{name}={value}"]
        self._broker = ServerProcess(self.name, command, self._directory / "broker.log", port=self.port)
        return self._broker


def first_answer_seconds(broker: ServerProcess) -> float:
    """Wait until a new broker answers ApiVersions; return the seconds since its command."""
    with broker.wait_for_port(START_SECONDS) as connection:
        connection.sendall(API_VERSIONS_FRAME)
        answer = connection.recv(4)
        took_seconds = time.perf_counter() - broker.spawned_at
    if len(answer) != 4:
        raise ProcessError(f"{broker.name} closed its first connection{broker.last_output()}")
    return took_seconds


if __name__ == "__main__":
    print(install(Path(sys.argv[1])))
