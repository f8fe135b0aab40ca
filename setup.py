"""What pyproject.toml cannot declare: the package's page, and a source distribution that is the clone's tree.

The page is the README. Its links lead into the repository: with a `Source` in [project.urls] they become absolute,
without one they become the paths that the source distribution has, and its pictures are left out.
"""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path

from setuptools import setup
from setuptools.command.sdist import sdist

PACKAGE = Path("src/minibroker")
LINK = re.compile(r"\[([^]]+)\]\((?![a-z]+:|#)([^)]+)\)")
PICTURE = re.compile(r"!\[([^]]+)\]\((?![a-z]+:)([^)]+)\)(\n*)")
FILES_OF_SOURCE = "/blob/main/"
PICTURES_OF_SOURCE = "/raw/main/"


def page(readme: str, source: str | None) -> str:
    """The README for a reader who has no clone."""
    if source is None:
        readme = PICTURE.sub("", readme)
        return LINK.sub(lambda link: f"`{link[2]}`" if link[1] == link[2] else f"{link[1]} (`{link[2]}`)", readme)
    here = source.rstrip("/")
    readme = PICTURE.sub(rf"![\1]({here}{PICTURES_OF_SOURCE}\2)\3", readme)
    return LINK.sub(rf"[\1]({here}{FILES_OF_SOURCE}\2)", readme)


class SourceDistribution(sdist):
    """Keeps the links of src/minibroker: the unpacked tree is the clone's, and its tests run in it."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        links = [path for path in PACKAGE.iterdir() if path.is_symlink()]
        behind_links = tuple(f"{link}{os.sep}" for link in links)
        super().make_release_tree(base_dir, [name for name in files if not name.startswith(behind_links)])
        for link in links:
            (Path(base_dir) / link).symlink_to(link.readlink())


if __name__ == "__main__":
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    setup(
        long_description=page(Path("README.md").read_text(encoding="utf-8"), project.get("urls", {}).get("Source")),
        long_description_content_type="text/markdown",
        cmdclass={"sdist": SourceDistribution},
    )
