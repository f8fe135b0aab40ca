"""`python -m tests.books SUBJECT [BOOK...]`: hold the conversations of books with a broker; 1 if it answers otherwise.

A subject is `memory`, `process`, `compiled` (after `make wheel`), `kafka-2.0.1`, `kafka-3.9.1` or `kafka-4.4.0`. With
`--record` what it answers is written into the books: as the answers if it is `memory`, else as those of its release
(`2.0<`), where they are others; name the row of docs/differences.md that says why (`row ...` below the title).
"""

from __future__ import annotations

import argparse
import sys
from itertools import groupby

from minibroker.protocol.text import counted
from tests.books import Book, Script, as_recorded, read_book, written
from tests.books.conversations import FOLDER, held_again
from tests.books.subjects import RELEASES, SUBJECTS, Otherwise, groups_of, held_by


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.books", description=__doc__)
    parser.add_argument("subject", choices=SUBJECTS)
    parser.add_argument("books", nargs="*", help="names of books, all of tests/golden/conversations/ unless given")
    parser.add_argument("--slow", action="store_true", help="also the conversations that wait, for real seconds")
    parser.add_argument("--record", action="store_true", help="write the answers into the books")
    options = parser.parse_args()
    paths = [FOLDER / f"{name}.txt" for name in options.books] or sorted(FOLDER.glob("*.txt"))
    books = [read_book(path) for path in paths]
    if options.subject == "memory":
        return in_memory(books, is_recorded=options.record)
    return over_the_wire(options.subject, books, options)


def in_memory(books: list[Book], *, is_recorded: bool) -> int:
    failed = 0
    for book in books:
        texts = list(held_again(book))
        failed += sum(
            script.text.rstrip("\n") != text for script, text in zip(book.scripts.values(), texts, strict=True)
        )
        if is_recorded:
            written(book.path, [book.head, *texts])
    print(f"memory: {counted(failed, 'conversation')} answered otherwise")
    return 1 if failed and not is_recorded else 0


def over_the_wire(name: str, books: list[Book], options: argparse.Namespace) -> int:
    held, failed = 0, 0
    for book in books:
        found: dict[str, list[Otherwise]] = {}
        for scripts in groups_of(name, book, is_slow=options.slow):
            for script, differences in held_by(name, book, scripts):
                held += 1
                found[script.title] = differences
        for title, differences in found.items():
            failed += bool(differences)
            for each in differences:
                lines = [
                    f"-- {book.path.stem}: {title}, v{each.version}",
                    f"> {book.scripts[title].steps[each.number]}",
                ]
                lines += [*(f"< {line}" for line in each.expected), *(f"{name}< {line}" for line in each.found)]
                print("\n".join(lines), flush=True)
        if options.record and any(found.values()):
            texts = [
                as_recorded(marked(name, script, found.get(script.title, [])), script.answers)
                for script in book.scripts.values()
            ]
            written(book.path, [book.head, *texts])
    print(f"{name}: {counted(held, 'conversation')}, {counted(failed, 'difference')}")
    return 1 if failed and not options.record else 0


def marked(name: str, script: Script, differences: list[Otherwise]) -> Script:
    """The conversation with what this release answers otherwise."""
    marks = [dict(each) for each in script.marks]
    for number, group in groupby(sorted(differences), key=lambda each: each.number):
        found = {each.version: each.found or ["nothing"] for each in group}
        lines = [
            line for version, answer in found.items() for line in (f"v{version}:", *(f"  {each}" for each in answer))
        ]
        is_one = script.versions is None or (len(set(map(tuple, found.values()))) == 1 and len(found) > 1)
        marks[number][RELEASES[name]] = next(iter(found.values())) if is_one else lines
    return script._replace(marks=marks)


if __name__ == "__main__":
    sys.exit(main())
