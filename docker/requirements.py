"""Prints the dependencies in pyproject.toml, with those of the given extras, for an image to install first.

So a change of the code builds in seconds, and versions stay in pyproject.toml alone.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

OWN = "minibroker["


def requirements(project: dict[str, object], extras: list[str]) -> list[str]:
    """The project's dependencies and those of the extras, including extras that an extra names."""
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
