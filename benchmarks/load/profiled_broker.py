"""`minibroker serve` with a sampling profiler in it: profiled_broker.py STACKS_FILE serve ...

The kernel's timer of CPU time interrupts the main thread, and the handler notes the stack it finds: what waits costs
nothing and is not seen. SIGUSR1 begins; SIGUSR2 ends and writes a line for each stack, `outermost;...;innermost
samples`, as flame graphs are drawn from. A system call is the innermost frame of the line that makes it.
"""

from __future__ import annotations

import linecache
import os
import re
import signal
import sys
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType

from minibroker.__main__ import main

SAMPLE_SECONDS = 0.001  # the kernel rounds it up to its tick, often 4 ms
SYSTEM_CALLS = re.compile(r"\.(poll|recv_into|send|sendfile|pread|preadv|writev|write)\(")
# The package wherever it lies, the standard library, and what was installed.
FOLDERS = re.compile(r".*/(?:minibroker|site-packages|python3\.\d+)/")

Stack = tuple[tuple[CodeType, int], ...]


class Sampler:
    """Counts stacks, innermost frame first."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stacks: Counter[Stack] = Counter()

    def begin(self, number: int, frame: FrameType | None) -> None:
        """Count from now on."""
        signal.setitimer(signal.ITIMER_PROF, SAMPLE_SECONDS, SAMPLE_SECONDS)

    def end(self, number: int, frame: FrameType | None) -> None:
        """Count no more, and write what was found."""
        signal.setitimer(signal.ITIMER_PROF, 0)
        arriving = self._path.with_suffix(".partial")
        arriving.write_text("".join(f"{';'.join(labels(stack))} {count}\n" for stack, count in self._stacks.items()))
        os.replace(arriving, self._path)

    def sample(self, number: int, frame: FrameType | None) -> None:
        """Count the stack that was interrupted."""
        found: list[tuple[CodeType, int]] = []
        line = 0 if frame is None else frame.f_lineno or 0  # None: of no line
        while frame is not None:
            found.append((frame.f_code, line))
            frame, line = frame.f_back, 0  # only the innermost line is looked at
        self._stacks[tuple(found)] += 1


def labels(stack: Stack) -> list[str]:
    """`file:function` of each frame from the outermost on, and the system call the innermost makes."""
    texts = [f"{FOLDERS.sub('', code.co_filename)}:{code.co_name}" for code, _ in reversed(stack)]
    code, line = stack[0]
    call = SYSTEM_CALLS.search(linecache.getline(code.co_filename, line))
    return [*texts, call[1]] if call else texts


if __name__ == "__main__":
    sampler = Sampler(Path(sys.argv.pop(1)))
    signal.signal(signal.SIGPROF, sampler.sample)
    signal.signal(signal.SIGUSR1, sampler.begin)
    signal.signal(signal.SIGUSR2, sampler.end)
    sys.exit(main())
