"""A process that runs pytest again and again, each time in a fork of itself: pytest and its plugins are imported once.

It is a program, started in a copy of the tree. It reads a line of JSON, the arguments of pytest, and writes one back:
the exit status and the output. It imports no module of the copy itself: that may be another one the next time.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import sys
import tempfile
import traceback

# Not plugins of pytest: it rewrites their assertions when it imports them itself.
PRELOADED = (
    "pytest", "hypothesis", "hypothesis.strategies", "trio", "trio.testing", "construct", "lz4.frame", "cramjam",
    "crc32c", "outcome", "asyncio", "socket", "ssl",
)  # fmt: skip
CPU_SECONDS = 600  # a mutant may never end
FAILED = 1


def main() -> None:
    sys.path[0] = os.getcwd()
    for name in PRELOADED:
        importlib.import_module(name)
    for line in sys.stdin:
        print(json.dumps(run_in_fork(json.loads(line))), flush=True)


def run_in_fork(arguments: list[str]) -> tuple[int, str]:
    with tempfile.TemporaryFile() as output:
        pid = os.fork()
        if pid == 0:
            os.dup2(output.fileno(), sys.stdout.fileno())
            os.dup2(output.fileno(), sys.stderr.fileno())
            os.dup2(os.open(os.devnull, os.O_RDONLY), sys.stdin.fileno())
            resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
            run(arguments)
        _, status = os.waitpid(pid, 0)
        output.seek(0)
        text = output.read().decode(errors="replace")
    return os.waitstatus_to_exitcode(status), text


def run(arguments: list[str]) -> None:
    """Run pytest, and end the process whatever threads and nurseries are left."""
    status = FAILED
    try:
        import pytest

        status = int(pytest.main(arguments))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    main()
