"""`compiled_form.py` hands the sources to mypyc as they are, each statement on its line, nothing lazy lost.

mypyc 2.4 evaluates the bounds of a slice twice where it does not know what is sliced: a test looks for such slices. It
hands `**options` on to a compiled `__init__` as if they were one argument, believes a `type: ignore`, takes a frozenset
without the keys of a dict, which is a set, for a frozenset, and fails on a NamedTuple's field that is a memoryview: the
tests of the compiled form meet these.
"""

from __future__ import annotations

import ast
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.frames import FrameError
from build_tools import compiled_form, compiled_profile
from minibroker.protocol.errors import KafkaProtocolError
from minibroker.protocol.messages.fetch import FetchRequest
from tests.sources import ROOT, tree_of

LISTED = compiled_form.listed()
MODULES = [ROOT / "src" / module for modules in LISTED.modules().values() for module in modules]
# They take all that they are given at once, or save what is complete.
CONSUMERS = {
    *("all", "any", "Counter", "dict", "frozenset", "list", "max", "min", "next", "set", "sorted", "sum", "tuple"),
    *("extend", "fromkeys", "join", "update", "write_checkpoint", "_change"),
}


def prepared(text: str, **classes: Any) -> list[str]:
    return compiled_form.prepared(text, **classes).splitlines()


def test_slots_and_constants_are_prepared_on_their_lines() -> None:
    text = '''from __future__ import annotations

LIMIT = 5
_pack = struct.Struct(">i").pack
TABLE: dict[str, int] = {
    "a": 1,
}
_unpack: Callable[..., tuple[int]] = struct.Struct(">i").unpack
OPTION: int | None = 1
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
    assert lines[2:11] == [
        "LIMIT: Final = 5",
        '_pack: Final = struct.Struct(">i").pack',
        "TABLE: Final[dict[str, int]] = {",
        '    "a": 1,',
        "}",
        '_unpack: Final[Callable[..., tuple[int]]] = struct.Struct(">i").unpack',
        "OPTION: int | None = 1",
        "Alias = dict[str, int]",
        "count = 0",
    ]
    assert lines[16:20] == ["    __deletable__ = ['_next']", "", "", ""]
    assert lines[21:] == text.splitlines()[21:]


def test_classes_are_decorated_in_the_blank_line_before_them() -> None:
    text = "from __future__ import annotations\n\n\nclass Open:\n    pass\n\n\nclass Plain(list):\n    pass\n"

    lines = prepared(text, open_classes=["Open"], python_classes=["Plain"])

    assert lines[2] == "@mypyc_attr(allow_interpreted_subclasses=True)"
    assert lines[6] == "@(lambda python_class: python_class)"
    assert (lines[3], lines[7]) == ("class Open:", "class Plain(list):")


FIELDS: dict[str, dict[str, str | None]] = {
    "Row": {"a": None, "b": None, "c": "-1"},
    "Derived": {"a": None, "b": "NO_OFFSET"},
}


@pytest.mark.parametrize(
    ("made", "direct"),
    [
        ("Row(1, 2, 3)", "tuple.__new__(Row, (1, 2, 3, ))"),
        ("Row(1, Row(2, 3))", "tuple.__new__(Row, (1, tuple.__new__(Row, (2, 3, -1, )), -1, ))"),
        ("Row((1), 'é',)", "tuple.__new__(Row, ((1), 'é',-1, ))"),
        ("Row(\n    1,\n    [2],\n)", "tuple.__new__(Row, (\n    1,\n    [2],\n-1, ))"),
        ("store(Row(1, 2), 3)", "store(tuple.__new__(Row, (1, 2, -1, )), 3)"),
        ("Row(1, b=2)", "tuple.__new__(Row, (1, 2, -1, ))"),
        (
            "Row(\n    a=Row(1, b='é'),\n    b=(2),\n)",
            "tuple.__new__(Row, (\n    tuple.__new__(Row, (1, 'é', -1, )),\n    (2),\n-1, ))",
        ),
        ("Row(b=1, a=2)", None),
        ("Row(1, c=2)", None),
        ("Row(1, **values)", None),
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


def test_a_member_of_an_imported_enum_is_looked_up_once() -> None:
    text = """from __future__ import annotations
from codes import (
    Code,
)
from others import Other  # not an enum


class Own(Enum):
    A = 1


def check(code: Literal[Code.BAD], others: list[Code]) -> bool:
    match code:
        case Code.BAD:
            return False
    return code is Code.NONE or (code, Code.NONE) == (Code.BAD, Own.A) or Code.of(code) is Other.NONE
"""

    lines = prepared(text, enums={"Code": {"BAD", "NONE"}, "Own": {"A"}})

    changed = {number: line for number, line in enumerate(lines) if line != text.splitlines()[number]}
    assert changed == {
        0: "from __future__ import annotations; from typing import Final",
        4: "from others import Other; _Code_BAD: Final = Code.BAD; _Code_NONE: Final = Code.NONE  # not an enum",
        15: "    return code is _Code_NONE or (code, _Code_NONE) == (_Code_BAD, Own.A) or Code.of(code) is Other.NONE",
    }


@pytest.mark.pure
@pytest.mark.nightly  # every build of a wheel shows it, but for the numbers of lines
def test_every_prepared_module_is_python() -> None:
    trees = [tree_of(path) for path in compiled_form.package_files()]
    fields, enums = compiled_form.named_tuples_of(trees), compiled_form.enums_of(trees)

    assert list(fields["LogAppendInfo"].values()) == [None] * 6
    assert {"NONE", "CORRUPT_MESSAGE"} < enums["ErrorCode"]
    for path in MODULES:
        text = path.read_text(encoding="utf-8")
        ready = compiled_form.prepared(text, named_tuples=fields, enums=enums)
        before, after = tree_of(path), ast.parse(ready)
        assert {node.lineno for node in before.body} == {node.lineno for node in after.body if not is_new(node)}, path


def is_new(statement: ast.stmt) -> bool:
    """Whether it sets the constant of a member of an enum."""
    if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.value, ast.Attribute):
        return False
    return ast.unparse(statement.target) == "_" + ast.unparse(statement.value).replace(".", "_")


@pytest.mark.parametrize("kind", ["open_classes", "python_classes"])
def test_every_listed_class_is_there(kind: str) -> None:
    for module, names in getattr(LISTED, kind).items():
        tree = ast.parse((ROOT / "src" / "minibroker" / module).read_text(encoding="utf-8"))
        assert set(names) <= {node.name for node in tree.body if isinstance(node, ast.ClassDef)}


def test_every_module_that_stays_python_is_there() -> None:
    assert [name for name in LISTED.python if not (ROOT / "src" / "minibroker" / name).is_file()] == []


def lazy_expressions(path: Path) -> Iterator[str]:
    """Generator expressions that nothing consumes where they stand."""
    tree = tree_of(path)
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


@pytest.mark.pure
@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT / "src" / "minibroker")))
def test_mypyc_may_make_lists_of_generator_expressions(path: Path) -> None:
    """It does, at once: where one must stay lazy, write a function with `yield`, or keep the module in Python."""
    assert list(lazy_expressions(path)) == []


# They are called twice by mypyc 2.4 where they give the bound of a slice, and change nothing.
PURE_CALLS = {"bisect_left", "floor_slot", "index", "len", "max", "min"}


@pytest.mark.pure
@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT / "src" / "minibroker")))
def test_bounds_of_slices_may_be_calculated_twice(path: Path) -> None:
    """As mypyc 2.4 does where it does not know the type that is sliced: a call that acts stands before the slice."""
    slices = [node for node in ast.walk(tree_of(path)) if isinstance(node, ast.Slice)]
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


@pytest.mark.pure
def test_a_build_imports_what_pip_has_put_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/pip/overlay")
    assert compiled_form.environment_with(Path("/here"))["PYTHONPATH"] == "/here:/pip/overlay"

    monkeypatch.delenv("PYTHONPATH")
    assert compiled_form.environment_with(Path("/here"))["PYTHONPATH"] == "/here"


# -- the profile that gcc compiles by


@pytest.mark.slow
@pytest.mark.pure
def test_all_of_the_profiles_load_is_answered_and_the_broker_ends_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ROUNDS", "TRANSACTIONS"):
        monkeypatch.setattr(compiled_profile, name, 11)

    with compiled_profile.broker() as bootstrap_servers:
        compiled_profile.load(bootstrap_servers)


@pytest.mark.slow
@pytest.mark.pure
def test_a_load_that_is_refused_ends_the_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_profile, "PARTITIONS", 0)

    with pytest.raises(FrameError, match="CREATE_TOPICS"), compiled_profile.broker() as bootstrap_servers:
        compiled_profile.load(bootstrap_servers)


@pytest.mark.pure
def test_a_profile_is_of_the_c_code_that_it_was_taken_of(tmp_path: Path) -> None:
    source = tmp_path / "c" / "storage" / "log.c"
    source.parent.mkdir(parents=True)
    source.write_text("int a;")
    profile = compiled_form.Profile(tmp_path)
    assert not profile.is_of_this_code()

    profile.temp.mkdir(parents=True)
    profile.keep()

    assert profile.is_of_this_code()
    source.write_text("int b;")
    assert not profile.is_of_this_code()


@pytest.mark.pure
def test_what_was_counted_is_put_beside_the_object_files(tmp_path: Path) -> None:
    profile = compiled_form.Profile(tmp_path / "build")
    counters = profile.temp / "tmp" / "log.gcda"
    counters.parent.mkdir(parents=True)
    counters.write_bytes(b"counted")

    profile.put_beside(tmp_path / "temp")

    assert (tmp_path / "temp" / "tmp" / "log.gcda").read_bytes() == b"counted"


@pytest.mark.pure
@pytest.mark.parametrize(
    ("optimisation", "compiler", "is_wanted"),
    [
        ("2", "gcc (Debian 12.2.0) 12.2.0 / Copyright (C) 2022 Free Software Foundation, Inc.", True),
        ("2", "Debian clang version 14.0.6", False),
        ("1", "gcc (Debian 12.2.0) 12.2.0 / Copyright (C) 2022 Free Software Foundation, Inc.", False),
    ],
)
def test_a_profile_is_taken_for_gcc_and_for_use(
    optimisation: str, compiler: str, is_wanted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINIBROKER_COMPILE_OPT", optimisation)
    monkeypatch.setenv("CC", f"echo '{compiler}'")

    assert compiled_form.Profile(tmp_path).is_wanted() == is_wanted
