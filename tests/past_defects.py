"""The past defects of docs/testing.md: `python -m tests.past_defects N` runs the tests that keep row N away."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import NamedTuple

from tests.sources import ROOT

FOUND_BY = ("user", "suite", "simulation", "nemesis", "tool")
ROW = re.compile(r"\| (\d+) \| (.+?) \| (\w+) \| (.+?) \|")


class Defect(NamedTuple):
    number: int
    what: str
    found_by: str
    tests: list[str]  # ids of pytest, without parameters


def past_defects() -> list[Defect]:
    text = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8").partition("\n## Past defects\n")[2]
    return [
        Defect(int(number), what, found_by, re.findall(r"`(tests/\S+?::[\w:]+)`", tests))
        for number, what, found_by, tests in ROW.findall(text)
    ]


def main(arguments: list[str]) -> int:
    defects = past_defects()
    chosen = [each for each in defects if arguments == [str(each.number)]]
    if not chosen:
        print(f"make test-issue N=1 to N={len(defects)}: the rows of Past defects in docs/testing.md", file=sys.stderr)
        return 2
    print(f"{chosen[0].what} (found by {chosen[0].found_by})", flush=True)
    return subprocess.run([sys.executable, "-m", "pytest", "-q", *chosen[0].tests], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
