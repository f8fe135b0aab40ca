"""Guesses the name that was meant by one that does not exist: the existing name that is most like it."""

from __future__ import annotations

import re
from collections.abc import Iterable

ALIKE = 0.75  # of 1: one wrong letter in four
DIGITS = re.compile(r"\d+")
NOT_A_CHOICE = re.compile(r"(?<![^\s'])(?P<word>[^\s']++)'? (?:is not one of|\(choose from) (?P<choices>.+)")


def closest(name: str, names: Iterable[str]) -> str | None:
    """The most similar of the names, whatever their case; None if none is alike.

    A name with another number, such as flights-2 for flights-1, is not taken for a misspelling.
    """
    import difflib  # only after a mistake

    asked = name.lower()
    alike = {
        each.lower(): each
        for each in names
        if each.lower() == asked or DIGITS.sub("", each.lower()) != DIGITS.sub("", asked)
    }
    found = difflib.get_close_matches(asked, alike, n=1, cutoff=ALIKE)
    return alike[found[0]] if found else None


def next_step(name: str, names: Iterable[str], otherwise: str) -> str:
    """The name that was probably meant, else another step."""
    meant = closest(name, names)
    return otherwise if meant is None else f"did you mean {meant}?"


def with_guess(message: str) -> str:
    """The message about a word that is not one of the choices it lists, with the one that was probably meant."""
    found = NOT_A_CHOICE.search(message)
    meant = None if found is None else closest(found["word"], re.findall(r"[\w.-]+", found["choices"]))
    return message if meant is None else f"{message}; did you mean {meant}?"
