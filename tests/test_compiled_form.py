"""What `compiled_form.py` hands to mypyc: the sources as they are, each statement on its line, nothing lazy lost."""

from __future__ import annotations

import ast
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sources import ROOT

FORM: dict[str, Any] = runpy.run_path(str(ROOT / "compiled_form.py"))
LISTED = FORM["listed"]()
MODULES = [ROOT / "src" / module for modules in LISTED.modules().values() for module in modules]
# They take all that they are given at once, or save what is complete.
CONSUMERS = {
    *("all", "any", "Counter", "dict", "frozenset", "list", "max", "min", "next", "set", "sorted", "sum", "tuple"),
    *("extend", "fromkeys", "join", "update", "write_checkpoint", "_change"),
}


def prepared(text: str, **classes: list[str]) -> list[str]:
    lines: list[str] = FORM["prepared"](text, **classes).splitlines()
    return lines


def test_slots_and_constants_are_prepared_on_their_lines() -> None:
    text = '''from __future__ import annotations

LIMIT = 5
_pack = struct.Struct(">i").pack
Alias = dict[str, int]
count = 0


class Task(Base):
    """A task."""

    __slots__ = (
        "_next",
        "name",
    )

    def drop(self) -> None:
        del self._next


def grow() -> None:
    global count
    count += 1
'''

    lines = prepared(text)

    assert len(lines) == len(text.splitlines())
    assert lines[0] == "from __future__ import annotations; from typing import Final"
    assert lines[2:6] == [
        "LIMIT: Final = 5",
        '_pack: Final = struct.Struct(">i").pack',
        "Alias = dict[str, int]",
        "count = 0",
    ]
    assert lines[11:15] == ["    __deletable__ = ['_next']", "", "", ""]
    assert lines[16:] == text.splitlines()[16:]


def test_classes_are_decorated_in_the_blank_line_before_them() -> None:
    text = "from __future__ import annotations\n\n\nclass Open:\n    pass\n\n\nclass Plain(list):\n    pass\n"

    lines = prepared(text, open_classes=["Open"], python_classes=["Plain"])

    assert lines[2] == "@mypyc_attr(allow_interpreted_subclasses=True)"
    assert lines[6] == "@(lambda python_class: python_class)"
    assert (lines[3], lines[7]) == ("class Open:", "class Plain(list):")


@pytest.mark.parametrize("kind", ["open_classes", "python_classes"])
def test_every_listed_class_is_there(kind: str) -> None:
    for module, names in getattr(LISTED, kind).items():
        tree = ast.parse((ROOT / "src" / "minibroker" / module).read_text(encoding="utf-8"))
        assert set(names) <= {node.name for node in tree.body if isinstance(node, ast.ClassDef)}


def test_every_module_that_stays_python_is_there() -> None:
    assert [name for name in LISTED.python if not (ROOT / "src" / "minibroker" / name).is_file()] == []


def lazy_expressions(path: Path) -> Iterator[str]:
    """Generator expressions that nothing consumes where they stand."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    consumed = {
        id(argument)
        for node in ast.walk(tree)
        for argument in (
            node.args
            if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in CONSUMERS
            else [node.value]
            if isinstance(node, ast.Starred)
            or (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple))
            else ()
        )
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.GeneratorExp) and id(node) not in consumed:
            yield f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT / "src" / "minibroker")))
def test_mypyc_may_make_lists_of_generator_expressions(path: Path) -> None:
    """It does, at once: where one must stay lazy, write a function with `yield`, or keep the module in Python."""
    assert list(lazy_expressions(path)) == []
