"""What `compiled_form.py` hands to mypyc: the sources as they are, each statement on its line, nothing lazy lost."""

from __future__ import annotations

import ast
import runpy
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minibroker.protocol.errors import KafkaProtocolError
from minibroker.protocol.messages.fetch import FetchRequest
from tests.sources import ROOT

FORM: dict[str, Any] = runpy.run_path(str(ROOT / "compiled_form.py"))
LISTED = FORM["listed"]()
MODULES = [ROOT / "src" / module for modules in LISTED.modules().values() for module in modules]
# They take all that they are given at once, or save what is complete.
CONSUMERS = {
    *("all", "any", "Counter", "dict", "frozenset", "list", "max", "min", "next", "set", "sorted", "sum", "tuple"),
    *("extend", "fromkeys", "join", "update", "write_checkpoint", "_change"),
}


def prepared(text: str, **classes: Any) -> list[str]:
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


FIELDS: dict[str, list[str | None]] = {"Row": [None, None, "-1"], "Derived": [None, "NO_OFFSET"]}


@pytest.mark.parametrize(
    ("made", "direct"),
    [
        ("Row(1, 2, 3)", "tuple.__new__(Row, (1, 2, 3, ))"),
        ("Row(1, Row(2, 3))", "tuple.__new__(Row, (1, tuple.__new__(Row, (2, 3, -1, )), -1, ))"),
        ("Row((1), 'é',)", "tuple.__new__(Row, ((1), 'é',-1, ))"),
        ("Row(\n    1,\n    [2],\n)", "tuple.__new__(Row, (\n    1,\n    [2],\n-1, ))"),
        ("store(Row(1, 2), 3)", "store(tuple.__new__(Row, (1, 2, -1, )), 3)"),
        ("Row(1, b=2)", None),
        ("Row(*values)", None),
        ("Row(1)", None),
        ("Derived(1)", None),
        ("Unknown(1, 2)", None),
        ("module.Row(1, 2)", None),
    ],
)
def test_named_tuples_are_made_directly(made: str, direct: str | None) -> None:
    text = f"from rows import Derived, Row, Unknown\nrow = {made}\n"

    lines = prepared(text, named_tuples=FIELDS)

    assert "\n".join(lines[1:]).partition(" = ")[2] == (made if direct is None else direct)


def test_every_prepared_module_is_python() -> None:
    fields = FORM["named_tuples_of"](ast.parse(path.read_text(encoding="utf-8")) for path in FORM["package_files"]())

    assert fields["LogAppendInfo"] == [None] * 9
    for path in MODULES:
        text = path.read_text(encoding="utf-8")
        ready = FORM["prepared"](text, named_tuples=fields)
        before, after = ast.parse(text), ast.parse(ready)
        assert {node.lineno for node in before.body} == {node.lineno for node in after.body}, path


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


# They are called twice by mypyc 2.4 where they give the bound of a slice, and change nothing.
PURE_CALLS = {"bisect_left", "floor_slot", "index", "len", "max", "min"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT / "src" / "minibroker")))
def test_bounds_of_slices_may_be_calculated_twice(path: Path) -> None:
    """As mypyc 2.4 does where it does not know the type that is sliced: a call that acts stands before the slice."""
    slices = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Slice)]
    parts = [part for each in slices for part in ast.walk(each)]

    calls = {ast.unparse(part.func).rpartition(".")[2] for part in parts if isinstance(part, ast.Call)}
    assert calls <= PURE_CALLS
    assert not any(isinstance(part, ast.Await | ast.NamedExpr) for part in parts)


def test_a_traceback_has_the_lines_of_the_sources_in_both_forms() -> None:
    with pytest.raises(KafkaProtocolError) as refused:
        FetchRequest.decode(99, b"")

    text = "".join(traceback.format_exception(refused.value))

    assert "minibroker/protocol/schema.py" in text
    assert 'raise KafkaProtocolError(f"{self.name} has no version {version}")' in text
