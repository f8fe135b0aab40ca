"""Files of a data directory with any bytes in them: reading one ends with what it has, or with its own error.

The corpus is what the broker writes. A fault turns, drops, repeats or adds some of its bytes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.broker.kept_files import FILES, REFUSALS

Faults = list[tuple[float, int, bytes]]  # where, from 0 to 1; how many bytes go; what comes
FAULTS = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 3), st.binary(max_size=4)), min_size=1, max_size=3)


def damaged(content: bytes, faults: Faults) -> bytes:
    for where, dropped, added in faults:
        at = int(where * len(content))
        content = content[:at] + added + content[at + dropped :]
    return content


def try_damage(kind: str, faults: Iterable[Faults]) -> None:
    name, write, read = FILES[kind]
    for each in faults:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / name
            write(path)
            path.write_bytes(damaged(path.read_bytes(), each))
            with suppress(*REFUSALS):
                read(path)


@pytest.mark.parametrize("kind", FILES)
@settings(max_examples=40, deadline=None)
@given(faults=FAULTS)
def test_a_file_with_any_bytes_is_read_or_refused(kind: str, faults: Faults) -> None:
    try_damage(kind, [faults])


@pytest.mark.nightly
@pytest.mark.parametrize("kind", FILES)
@settings(max_examples=20_000, deadline=None)
@given(faults=FAULTS)
def test_a_file_with_any_bytes_is_read_or_refused_at_night(kind: str, faults: Faults) -> None:
    try_damage(kind, [faults])
