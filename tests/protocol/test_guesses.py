"""Names that were probably meant."""

from __future__ import annotations

import pytest

from minibroker.broker.arguments import parse_arguments
from minibroker.protocol.guesses import closest, next_step

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


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("--lisen 1:1", "unrecognized arguments: --lisen 1:1; did you mean --listen? See `minibroker serve --help`"),
        ("--cluste=here", "unrecognized arguments: --cluste=here; did you mean --cluster? See"),
        ("--nonsense", "unrecognized arguments: --nonsense; see `minibroker serve --help`"),
        ("orders", "unrecognized arguments: orders; see"),
        ("--log-level info", "'ERROR'); did you mean INFO? See"),
        ("--parent-pid x", "argument --parent-pid: 'x' is not a whole number; see"),
        ("--act-as 5.0", "'4.4'); see"),
    ],
)
def test_a_wrong_option_of_serve_is_one_line_with_the_one_that_was_meant(
    arguments: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        parse_arguments(arguments.split())

    (line,) = capsys.readouterr().err.splitlines()
    assert complaint in line
