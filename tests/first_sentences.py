"""Checks the first sentences of docstrings, as `make lint` does: `python -m tests.first_sentences`.

A docstring begins with its verb, or with a subject that has a name. In the first sentence a thing has its name, instead
of `those that`, `of which` or `of what`.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator

from tests.sources import PACKAGES, ROOT, source_files, tree_of

DOCUMENTED = (*PACKAGES, "benchmarks", "build_tools", "docs", "tests")
WITHOUT_SUBJECT = re.compile(r"(What|Whatever|Who|Whoever|That|Those|Where) ")
WITHOUT_NAME = re.compile(r"\b(those that|of which|of what)\b")
BEGINNING = re.compile(rf'"""\s*{WITHOUT_SUBJECT.pattern}|{WITHOUT_NAME.pattern}')  # to parse only files that may fail
KINDS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
ADVICE = (
    "begin with a noun or the verb, and name the thing: `The prefix of ...`, `Read ...`; see Words in CONTRIBUTING.md"
)


def refused() -> Iterator[str]:
    named = set(source_files(*PACKAGES))  # where the second rule holds as well
    for path in source_files(*DOCUMENTED):
        if BEGINNING.search(path.read_text(encoding="utf-8")) is None:
            continue
        for node in ast.walk(tree_of(path)):
            text = ast.get_docstring(node) if isinstance(node, KINDS) else None
            first = re.split(r"(?<=\.)\s|\n\n", text)[0].replace("\n", " ") if text else ""
            if WITHOUT_SUBJECT.match(first) or (path in named and WITHOUT_NAME.search(first)):
                yield f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}: {first}"


if __name__ == "__main__":
    found = list(refused())
    sys.exit("\n".join([*found, ADVICE]) if found else 0)
