"""Regular expressions of topics, transactional ids and clients, matched in bounded time.

The syntax is that of RE2, which Kafka takes too: it has no backreferences and no lookaround, so an expression is a set
of states that move together, once for each character of a text. Python's `re` backtracks, and `(a+)+b` would stop the
broker. Classes of Unicode (`\\pL`) and octal escapes are refused. Lines within a text (`(?m)`) and the other case of
ranges beyond ASCII are not looked for.
"""

from __future__ import annotations

import string
from bisect import bisect_right
from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import NamedTuple

Characters = tuple[tuple[int, int], ...]  # ranges of code points: sorted, apart from each other, both ends included
LAST_CHARACTER = 0x10FFFF
SMALL, CAPITAL = (ord("a"), ord("z")), (ord("A"), ord("Z"))
BETWEEN_CASES = SMALL[0] - CAPITAL[0]


def characters(found: Iterable[str]) -> Characters:
    return united([(ord(each), ord(each)) for each in found])


def united(ranges: Iterable[tuple[int, int]]) -> Characters:
    """Return the characters that are in any of these ranges."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(high, found[-1][1])
        else:
            found.append((low, high))
    return tuple(found)


def all_but(excluded: Characters) -> Characters:
    starts = [0, *[high + 1 for _, high in excluded]]
    ends = [*[low - 1 for low, _ in excluded], LAST_CHARACTER]
    return tuple([(start, end) for start, end in zip(starts, ends, strict=True) if start <= end])


WORD_CHARACTERS = frozenset(string.ascii_letters + string.digits + "_")
WORD, DIGITS = characters(WORD_CHARACTERS), characters(string.digits)
PERL_SPACE, ALL_BUT_NEWLINE = characters("\t\n\f\r "), all_but(characters("\n"))
ALL: Characters = ((0, LAST_CHARACTER),)
ESCAPED_CLASSES = {
    "d": DIGITS, "D": all_but(DIGITS), "w": WORD, "W": all_but(WORD), "s": PERL_SPACE, "S": all_but(PERL_SPACE),
}  # fmt: skip
POSIX_CLASSES: dict[str, Characters] = {
    "alnum": characters(string.ascii_letters + string.digits),
    "alpha": characters(string.ascii_letters),
    "ascii": ((0x00, 0x7F),),
    "blank": characters("\t "),
    "cntrl": ((0x00, 0x1F), (0x7F, 0x7F)),
    "digit": DIGITS,
    "graph": ((0x21, 0x7E),),
    "lower": characters(string.ascii_lowercase),
    "print": ((0x20, 0x7E),),
    "punct": characters(string.punctuation),
    "space": characters(string.whitespace),
    "upper": characters(string.ascii_uppercase),
    "word": WORD,
    "xdigit": characters(string.hexdigits),
}
CONTROL_ESCAPES = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
MOST_REPETITIONS = 1000
MOST_INSTRUCTIONS = 5_000
MOST_NESTED = 100
MOST_STEPS_REMEMBERED = 10_000


class RegexError(ValueError):
    """An expression that is not valid here; the message is re2j's where it has one."""


class At(Enum):
    """A condition between two characters."""

    START = auto()
    END = auto()
    WORD_EDGE = auto()
    NO_WORD_EDGE = auto()


class Step(NamedTuple):
    """An instruction: take a character of `characters`, or none if `at` holds there, and go on at each of `after`."""

    after: tuple[int, ...]
    characters: Characters | None = None
    at: At | None = None


# A part of an expression: adds its instructions to a program, which goes on at the given one; returns its first.
Part = Callable[["Program", int], int]
MATCH = 0


class Program:
    """The instructions of an expression; the one at MATCH ends it."""

    def __init__(self) -> None:
        self.steps: list[Step] = [Step(())]

    def add(self, step: Step) -> int:
        if len(self.steps) >= MOST_INSTRUCTIONS:
            raise RegexError("expression is too large")
        self.steps.append(step)
        return len(self.steps) - 1

    def change(self, place: int, step: Step) -> None:
        self.steps[place] = step


class Regex:
    """A regular expression that matches whole texts. Raises RegexError."""

    def __init__(self, pattern: str) -> None:
        if len(pattern) > MOST_INSTRUCTIONS:
            raise RegexError("expression is too large")
        program = Program()
        self._start = frozenset({Parser(pattern).parse()(program, MATCH)})
        self._steps = program.steps
        self._remembered: dict[tuple[frozenset[int], bool | None, str], frozenset[int]] = {}

    def matches(self, text: str) -> bool:
        states, before = self._start, ""
        for character in text:
            states = self._next(states, before, character)
            if not states:
                return False
            before = character
        return MATCH in self._reached(states, before, "")

    def _next(self, states: frozenset[int], before: str, character: str) -> frozenset[int]:
        key = (states, before in WORD_CHARACTERS if before else None, character)
        found = self._remembered.get(key)
        if found is None:
            if len(self._remembered) >= MOST_STEPS_REMEMBERED:
                self._remembered.clear()
            reached = [self._steps[each] for each in self._reached(states, before, character)]
            found = self._remembered[key] = frozenset(
                after for step in reached if step.characters is not None and is_among(character, step.characters)
                for after in step.after
            )  # fmt: skip
        return found

    def _reached(self, states: frozenset[int], before: str, after: str) -> set[int]:
        """The instructions that these lead to without a character, between these two characters."""
        reached: set[int] = set()
        waiting = list(states)
        while waiting:
            place = waiting.pop()
            if place not in reached:
                reached.add(place)
                step = self._steps[place]
                if step.characters is None and (step.at is None or holds(step.at, before, after)):
                    waiting += step.after
        return reached


def is_among(character: str, found: Characters) -> bool:
    code = ord(character)
    place = bisect_right(found, (code, LAST_CHARACTER)) - 1
    return place >= 0 and code <= found[place][1]


def holds(at: At, before: str, after: str) -> bool:
    if at is At.START:
        return not before
    if at is At.END:
        return not after
    return ((before in WORD_CHARACTERS) != (after in WORD_CHARACTERS)) == (at is At.WORD_EDGE)


class Parser:
    """Reads an expression; each method reads one kind of part from the present place on."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._place = 0
        self._depth = 0
        self._ignores_case = False
        self._takes_newlines = False

    def parse(self) -> Part:
        part = self._alternatives()
        if self._place < len(self._pattern):
            raise RegexError("unexpected )")
        return part

    def _peek(self) -> str:
        return self._pattern[self._place : self._place + 1]

    def _take(self, text: str) -> bool:
        if self._pattern.startswith(text, self._place):
            self._place += len(text)
            return True
        return False

    def _alternatives(self) -> Part:
        found = [self._sequence()]
        while self._take("|"):
            found.append(self._sequence())
        return found[0] if len(found) == 1 else alternatives(found)

    def _sequence(self) -> Part:
        found: list[Part] = []
        while self._peek() not in ("", "|", ")"):
            if self._take("\\Q"):
                end = self._pattern.find("\\E", self._place)
                quoted = self._pattern[self._place : end if end >= 0 else None]
                self._place = len(self._pattern) if end < 0 else end + 2
                found += [taken(self._folded(characters(each))) for each in quoted]
                continue
            part = self._atom()
            if part is not None:
                found.append(self._repeated(part))
        return sequence(found)

    def _atom(self) -> Part | None:
        character = self._peek()
        self._place += 1
        if character == "(":
            return self._group()
        if character == "[":
            return taken(self._class())
        if character == ".":
            return taken(ALL if self._takes_newlines else ALL_BUT_NEWLINE)
        if character in "^$":
            return asserted(At.START if character == "^" else At.END)
        if character == "\\":
            return self._escape()
        if character in "*+?":
            raise RegexError("missing argument to repetition operator")
        return taken(self._folded(characters(character)))

    def _folded(self, found: Characters) -> Characters:
        """Return the characters in both cases, if case does not matter; ranges beyond ASCII as they are."""
        if not self._ignores_case:
            return found
        both = list(found)
        for low, high in found:
            if low == high:
                cases = chr(low).lower() + chr(low).upper()
                both += characters(cases) if len(cases) == 2 else ()  # ß has no single capital
            for (first, last), distance in ((SMALL, -BETWEEN_CASES), (CAPITAL, BETWEEN_CASES)):
                if low <= last and first <= high:
                    both.append((max(low, first) + distance, min(high, last) + distance))
        return united(both)

    def _group(self) -> Part | None:
        """A group; None for flags that hold up to the end of the group around them."""
        self._depth += 1
        if self._depth > MOST_NESTED:
            raise RegexError("expression nests too deeply")
        flags = self._ignores_case, self._takes_newlines
        if self._take("?") and self._flags():
            self._depth -= 1
            return None
        part = self._alternatives()
        if not self._take(")"):
            raise RegexError("missing closing )")
        self._depth -= 1
        self._ignores_case, self._takes_newlines = flags
        return part

    def _flags(self) -> bool:
        """Read what follows `(?`; return whether that was all of it."""
        if self._take("P<") or self._take("<"):
            end = self._pattern.find(">", self._place)
            if end < 0 or not self._pattern[self._place : end].isidentifier():
                raise RegexError("invalid named capture")
            self._place = end + 1
            return False
        is_set = True
        while (character := self._peek()) not in ("", ":", ")"):
            self._place += 1
            if character == "-":
                is_set = False
            elif character == "i":
                self._ignores_case = is_set
            elif character == "s":
                self._takes_newlines = is_set
            elif character not in "mU":
                raise RegexError("invalid or unsupported Perl syntax")
        if not character:
            raise RegexError("invalid or unsupported Perl syntax")
        self._place += 1
        return character == ")"

    def _escape(self) -> Part:
        character = self._peek()
        if character in ("A", "z", "b", "B"):
            self._place += 1
            return asserted({"A": At.START, "z": At.END, "b": At.WORD_EDGE, "B": At.NO_WORD_EDGE}[character])
        return taken(self._folded(self._escaped()))

    def _escaped(self) -> Characters:
        """The characters that an escape stands for."""
        character = self._peek()
        self._place += 1
        if not character:
            raise RegexError("trailing backslash at end of expression")
        if character in ESCAPED_CLASSES:
            return ESCAPED_CLASSES[character]
        if character == "C":
            return ALL
        if character in CONTROL_ESCAPES:
            return characters(CONTROL_ESCAPES[character])
        if character == "x":
            return characters(self._hexadecimal())
        if character.isalnum():
            raise RegexError("invalid escape sequence")
        return characters(character)

    def _hexadecimal(self) -> str:
        digits = self._pattern[self._place : self._place + 2]
        length = 2
        if digits[:1] == "{":
            end = self._pattern.find("}", self._place)
            digits, length = self._pattern[self._place + 1 : max(end, 0)], end + 1 - self._place
        if len(digits) < 1 + (length == 2) or not set(digits) <= set(string.hexdigits) or int(digits, 16) > 0x10FFFF:
            raise RegexError("invalid escape sequence")
        self._place += length
        return chr(int(digits, 16))

    def _class(self) -> Characters:
        """A class of characters, after its bracket."""
        is_negated = self._take("^")
        found: list[tuple[int, int]] = []
        is_first = True
        while is_first or self._peek() != "]":
            is_first = False
            if not self._peek():
                raise RegexError("missing closing ]")
            if self._take("[:"):
                found += self._posix_class()
                continue
            low, lows = self._class_member()
            if self._peek() == "-" and self._pattern[self._place + 1 : self._place + 2] not in ("]", ""):
                self._place += 1
                high, _ = self._class_member()
                if low is None or high is None or high < low:
                    raise RegexError("invalid character class range")
                found.append((low, high))
            else:
                found += lows
        self._place += 1
        folded = self._folded(united(found))
        return all_but(folded) if is_negated else folded

    def _class_member(self) -> tuple[int | None, Characters]:
        """One character, or an escape of many, for which there is no range."""
        if not self._take("\\"):
            character = self._peek()
            self._place += 1
            return ord(character), characters(character)
        escape = self._peek()
        found = self._escaped()
        return (None if escape in ESCAPED_CLASSES or escape == "C" else found[0][0]), found

    def _posix_class(self) -> Characters:
        end = self._pattern.find(":]", self._place)
        name = self._pattern[self._place : max(end, self._place)]
        found = POSIX_CLASSES.get(name.removeprefix("^"))
        if found is None:
            raise RegexError("invalid character class range")
        self._place = end + 2
        return all_but(found) if name.startswith("^") else found

    def _repeated(self, part: Part) -> Part:
        bounds = self._repetition()
        if bounds is None:
            return part
        self._take("?")  # fewest first: the same whole names match
        if self._repetition() is not None:
            raise RegexError("invalid nested repetition operator")
        return repeated(part, *bounds)

    def _repetition(self) -> tuple[int, int | None] | None:
        """Read how often the part before comes; None if that is not said."""
        for operator, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(operator):
                return bounds
        end = self._pattern.find("}", self._place) if self._peek() == "{" else -1
        least, comma, most = self._pattern[self._place + 1 : max(end, 0)].partition(",")
        if end < 0 or not is_number(least) or (most and not is_number(most)):
            return None  # a brace like any other character
        self._place = end + 1
        low = int(least)
        high = low if not comma else int(most) if most else None
        if max(low, high or 0) > MOST_REPETITIONS or (high is not None and high < low):
            raise RegexError("invalid repeat count")
        return low, high


def is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= len(str(MOST_REPETITIONS))


# -- parts ----------------------------------------------------------------------------------------------------


def taken(found: Characters) -> Part:
    return lambda program, after: program.add(Step((after,), found))


def asserted(at: At) -> Part:
    return lambda program, after: program.add(Step((after,), at=at))


def sequence(parts: list[Part]) -> Part:
    def add(program: Program, after: int) -> int:
        for part in reversed(parts):
            after = part(program, after)
        return after

    return add


def alternatives(parts: list[Part]) -> Part:
    return lambda program, after: program.add(Step(tuple(part(program, after) for part in parts)))


def repeated(part: Part, least: int, most: int | None) -> Part:
    def add(program: Program, after: int) -> int:
        end = after
        if most is None:
            loop = program.add(Step(()))
            program.change(loop, Step((part(program, loop), end)))
            after = loop
        else:
            for _ in range(most - least):
                after = program.add(Step((part(program, after), end)))
        for _ in range(least):
            after = part(program, after)
        return after

    return add
