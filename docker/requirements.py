"""Prints what pyproject.toml asks of others, with these extras: an image installs it before the project's own code.

So a change of the code builds in seconds, and a version stands in pyproject.toml alone.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

OWN = "minibroker["


def requirements(project: dict[str, object], extras: list[str]) -> list[str]:
    """The project's dependencies and those of the extras, of extras that an extra names too."""
    optional: dict[str, list[str]] = project["optional-dependencies"]  # type: ignore[assignment]
    found: list[str] = list(project["dependencies"])  # type: ignore[call-overload]
    for extra in extras:
        for requirement in optional[extra]:
            if requirement.startswith(OWN):
                found += requirements(project, requirement.removeprefix(OWN).rstrip("]").split(","))
            else:
                found.append(requirement)
    return sorted(set(found))


if __name__ == "__main__":
    pyproject = tomllib.loads(Path("pyproject.toml").read_text())
    print("\n".join(requirements(pyproject["project"], sys.argv[1:])))
