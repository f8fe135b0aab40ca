"""`python -m tests.books SUBJECT [BOOK...]`: hold the conversations of books with a broker; 1 if it answers otherwise.

A subject is `memory`, `process`, `compiled` (after `make wheel`), `kafka-2.0.1`, `kafka-3.9.1` or `kafka-4.4.0`. With
`--record` what it answers is written into the books: as the answers if it is `memory`, else as those of its release
(`2.0<`), where they are others; name the row of docs/differences.md that says why (`row ...` below the title). What
lies in a file of its own (a matrix of rights, drawn settings, the books kafka-2.0.1/...) is recorded by its name too.
"""

from __future__ import annotations

import argparse
import sys

from minibroker.protocol.text import counted
from tests.books import Book, as_recorded, read_book, written
from tests.books.conversations import FOLDER, held_again
from tests.books.subjects import COMPILED, SUBJECTS, groups_of, held_by
from tests.conformance.recordings import compare
from tests.conformance.subjects import RECORDED

BESIDE = ", ".join(name for names in RECORDED.values() for name in names)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.books", description=__doc__)
    parser.add_argument("subject", choices=SUBJECTS)
    parser.add_argument("books", nargs="*", help=f"names of books, all of {FOLDER.name}/ unless given; or {BESIDE}")
    parser.add_argument("--slow", action="store_true", help="also the conversations that wait, for real seconds")
    parser.add_argument("--record", action="store_true", help="write the answers into the books")
    options = parser.parse_args()
    beside = RECORDED.get(options.subject, {})
    if options.books and set(options.books) <= beside.keys():
        return max(compare(name, beside[name], is_recorded=options.record) for name in options.books)
    if options.subject == "compiled" and not COMPILED.exists():
        parser.error("the compiled form is not built: run `make wheel`")
    unknown = [name for name in options.books if not (FOLDER / f"{name}.txt").exists()]
    if unknown:
        parser.error(f"{unknown[0]!r} is no book of {options.subject}; {FOLDER} has them all")
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
    count, failed = 0, 0
    for group in groups_of(name, books, is_slow=options.slow):
        for held in held_by(name, group):
            differences = held.shown(name)
            print("".join(f"{each}\n" for each in differences), end="", flush=True)
            count += bool(held.versions)
            failed += bool(differences)
            if options.record and differences:
                book = read_book(held.book.path)  # another subject may have been recorded meanwhile
                scripts = book.scripts | {held.script.title: held.marked(name, book.scripts[held.script.title])}
                written(book.path, [book.head, *(as_recorded(each, each.answers) for each in scripts.values())])
    print(f"{name}: {counted(count, 'conversation')}, {counted(failed, 'difference')}")
    return 1 if failed and not options.record else 0


if __name__ == "__main__":
    sys.exit(main())
