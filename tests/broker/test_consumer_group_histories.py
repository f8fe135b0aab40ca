"""Groups of both protocols through drawn histories: no partition has two owners, and the log gives the same group."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.broker.coordinated import Coordinated

clients, classic_clients = st.sampled_from(["a", "b", "c"]), st.sampled_from(["x", "y"])
HISTORIES = st.lists(
    st.one_of(
        st.tuples(st.just(Coordinated.join), clients, st.booleans()),
        st.tuples(st.just(Coordinated.beat), clients, st.booleans()),
        st.tuples(st.just(Coordinated.beat), clients, st.booleans()),
        st.tuples(st.just(Coordinated.leave), clients),
        st.tuples(st.just(Coordinated.join_classic), classic_clients),
        st.tuples(st.just(Coordinated.leave_classic), classic_clients),
        st.tuples(st.just(Coordinated.grow), st.integers(3, 5)),
        st.tuples(st.just(Coordinated.wait), st.sampled_from([1000, 6000, 11_000])),
    ),
    max_size=25,
)


@given(HISTORIES)
@pytest.mark.slow
@settings(max_examples=60, deadline=None, derandomize=True, database=None)
def test_no_partition_has_two_owners_and_the_log_gives_the_same_group(
    history: list[tuple[Callable[..., None], Any]],
) -> None:
    with TemporaryDirectory() as directory:
        coordinated = Coordinated(Path(directory))
        for step, *arguments in history:
            step(coordinated, *arguments)
            coordinated.check()
        coordinated.disk.close()
