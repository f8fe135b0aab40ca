"""Names that were probably meant."""

from __future__ import annotations

import pytest

from minibroker.any_cluster.guesses import closest, next_step

NAMES = ["airports", "flights", "flights-1", "Payments", "orders.dlq"]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("flihgts", "flights"),
        ("fligts", "flights"),
        ("payments", "Payments"),
        ("orders-dlq", "orders.dlq"),
        ("flights-2", "flights"),
        ("flights-12", "flights"),
        ("trains", None),
        ("x", None),
        ("", None),
    ],
)
def test_the_most_similar_name_is_guessed_but_not_another_number(typed: str, meant: str | None) -> None:
    assert closest(typed, NAMES) == meant


def test_without_a_guess_there_is_another_step() -> None:
    assert next_step("x", NAMES, "list them") == "list them"
    assert next_step("flihgts", NAMES, "list them") == "did you mean flights?"
