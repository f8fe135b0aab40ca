"""Files of other projects that the console and its tests have copies of: `python -m tests.console.copied_files` copies.

Each is named with the npm package and version that it is from, and the SHA-256 that it must have. Nothing of npm is
needed when the console runs, and nothing of it leaves the machine.
"""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
FONTS = "src/minibroker/console/static/fonts"
AXE = "tests/console/axe"
SANS = "@fontsource-variable/ibm-plex-sans@5.3.0"
MONO = "@fontsource/ibm-plex-mono@5.3.0"
AXE_CORE = "axe-core@4.14.1"


class Copied(NamedTuple):
    path: str
    package: str
    inside: str
    sha256: str


COPIED = [
    Copied(
        f"{FONTS}/ibm-plex-sans-latin-wght-normal.woff2",
        SANS,
        "files/ibm-plex-sans-latin-wght-normal.woff2",
        "e2291e842cf5af167122a22881a740c7f2dda7716f1e8cd76680264f4a859470",
    ),
    Copied(
        f"{FONTS}/ibm-plex-mono-latin-400-normal.woff2",
        MONO,
        "files/ibm-plex-mono-latin-400-normal.woff2",
        "08949f728dc52d528e69b1667d15c89a5686a4ee9a296ff90983985f99c380f7",
    ),
    Copied(
        f"{FONTS}/ibm-plex-mono-latin-600-normal.woff2",
        MONO,
        "files/ibm-plex-mono-latin-600-normal.woff2",
        "0d1f0b8d0722224e32e9f28261bdc86c79115be73444ae5eceb73976a1bcdf83",
    ),
    Copied(
        f"{FONTS}/OFL.txt",
        MONO,
        "LICENSE",
        "23b0a9d0c6d3f140a0b77e483c5cfa6bba574325ef5cb189ed9f2fec4884533f",
    ),
    Copied(
        f"{AXE}/axe.min.js",
        AXE_CORE,
        "axe.min.js",
        "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c",
    ),
    Copied(
        f"{AXE}/LICENSE",
        AXE_CORE,
        "LICENSE",
        "af175b9d96ee93c21a036152e1b905b0b95304d4ae8c2c921c7609100ba8df7e",
    ),
]


def copy() -> None:
    """Raises SystemExit if a package does not hold what it should."""
    with tempfile.TemporaryDirectory() as folder:
        for package in dict.fromkeys(each.package for each in COPIED):
            name = subprocess.run(
                ["npm", "pack", "--silent", package], cwd=folder, check=True, capture_output=True, text=True
            ).stdout.strip()
            archive = (Path(folder) / name).read_bytes()
            for each in COPIED:
                if each.package == package:
                    write(each, archive)


def write(copied: Copied, archive: bytes) -> None:
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        member = files.extractfile(f"package/{copied.inside}")
        assert member is not None
        content = member.read()
    if hashlib.sha256(content).hexdigest() != copied.sha256:
        sys.exit(f"{copied.inside} of {copied.package} is not what it was; look at it, then correct its SHA-256 here")
    (ROOT / copied.path).parent.mkdir(parents=True, exist_ok=True)
    (ROOT / copied.path).write_bytes(content)


if __name__ == "__main__":
    copy()
