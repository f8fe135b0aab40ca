"""Makes the package's page of the README.

Its links lead into the repository: with a `Source` in [project.urls] they become absolute, without one they become the
paths that the source distribution has, and its pictures are left out.
"""

from __future__ import annotations

import re

LINK = re.compile(r"\[([^]]+)\]\((?![a-z]+:|#)([^)]+)\)")
PICTURE = re.compile(r"(?:!\[[^]]+\]\((?![a-z]+:)[^)]+\)|<picture>.*?</picture>)\n*", re.DOTALL)
PATH_OF_PICTURE = re.compile(r'(!\[[^]]+\]\(|src="|srcset=")(?![a-z]+:)')
FILES_OF_SOURCE = "/blob/main/"
PICTURES_OF_SOURCE = "/raw/main/"


def page(readme: str, source: str | None) -> str:
    """The README for a reader who has no clone."""
    if source is None:
        readme = PICTURE.sub("", readme)
        return LINK.sub(lambda link: f"`{link[2]}`" if link[1] == link[2] else f"{link[1]} (`{link[2]}`)", readme)
    here = source.rstrip("/")
    readme = PATH_OF_PICTURE.sub(rf"\1{here}{PICTURES_OF_SOURCE}", readme)
    return LINK.sub(rf"[\1]({here}{FILES_OF_SOURCE}\2)", readme)
