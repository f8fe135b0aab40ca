"""`minibroker config lint FILE`: check a server.properties without starting a broker.

The broker itself reads the file, in a process of its own (`minibroker serve --check`), so that settings have one
reader. A warning is a setting without effect or with an unknown name; an error keeps a broker from starting.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from minibroker.cli.options import noun
from minibroker.cli.parameters import showing
from minibroker.cli.shown import Shown
from minibroker.cli.terminal import print_line
from minibroker.errors import CommandFailed
from minibroker.protocol.text import counted, reason_of

LEVELS = {"INFO": "note", "WARNING": "warning"}
LOGGED = re.compile(r"^\S+ \S+ (?P<level>[A-Z]+) [\w.]+: (?P<text>.*)$")
COMPLAINT = "minibroker: "
STYLES = {"note": "dim", "warning": "yellow", "error": "red"}

app = noun(help="Check a server.properties.")


@app.command("lint", epilog="Example: minibroker config lint server.properties")
@showing
def lint(
    file: Annotated[Path, typer.Argument(metavar="FILE", show_default=False)],
    strict: Annotated[bool, typer.Option("--strict", help="Exit with status 1 for warnings too.")] = False,
) -> Shown:
    """List the errors of a server.properties, and the settings without effect."""
    findings = findings_of(file)
    kinds = {finding["kind"] for finding in findings}
    is_failed = "error" in kinds or (strict and "warning" in kinds)
    return Shown(findings, lambda: print_findings(file, findings), is_failed=is_failed)


def findings_of(file: Path) -> list[dict[str, str]]:
    """Raises CommandFailed for a file that cannot be read."""
    try:
        file.open("rb").close()
    except OSError as error:
        raise CommandFailed(f"cannot read {file}: {reason_of(error)}; name a server.properties") from error
    # -P: a module in the current directory, such as `json.py`, must not shadow ours.
    done = subprocess.run(
        [sys.executable, "-P", "-m", "minibroker", "serve", "--check", "--config", str(file)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return [finding_of(line) for line in done.stderr.splitlines()]


def finding_of(line: str) -> dict[str, str]:
    """A line of the broker's log, or the reason why it cannot start."""
    logged = LOGGED.match(line)
    if logged is None:
        return {"kind": "error", "text": line.removeprefix(COMPLAINT)}
    return {"kind": LEVELS.get(logged["level"], "error"), "text": logged["text"]}


def print_findings(file: Path, findings: list[dict[str, str]]) -> None:
    for finding in findings:
        print_line(f"{finding['kind']}: {finding['text']}", STYLES[finding["kind"]])
    errors = sum(finding["kind"] == "error" for finding in findings)
    warnings = sum(finding["kind"] == "warning" for finding in findings)
    if not errors:
        print(f"{file}: valid" + (f", {counted(warnings, 'warning')}" if warnings else ""))
