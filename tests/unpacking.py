"""Unpack an archive as `extractall(filter="data")` does, also with the Python of Debian 12, which is 3.11.2."""

from __future__ import annotations

import tarfile
from pathlib import Path


def unpack(path: Path, directory: Path) -> Path:
    """Return the directory."""
    with tarfile.open(path) as archive:
        if hasattr(tarfile, "data_filter"):  # since 3.11.4; later versions warn of a call without a filter
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(directory)
    return directory
