"""`new` makes a NamedTuple without a look at its fields: each call in the source has a value for each of them."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sources import PARTS, ROOT, source_files, tree_of

# Those that may have such calls: parsing all takes a second of every process that collects tests.
FILES = [path for path in source_files(*PARTS) if "new(" in path.read_text(encoding="utf-8")]
CALLS = [(path, call) for path in FILES for call in ast.walk(tree_of(path)) if
         isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "new"]  # fmt: skip


def fields_of(path: Path, call: ast.Call) -> tuple[str, ...]:
    """The fields of the NamedTuple that a call names, by its name in the module of the call."""
    module = importlib.import_module("minibroker." + ".".join(path.relative_to(ROOT).with_suffix("").parts))
    fields: tuple[str, ...] = getattr(module, ast.unparse(call.args[0]))._fields
    return fields


def values_of(path: Path, call: ast.Call) -> Iterator[ast.expr]:
    """The values of a call: of the tuple that it has, or that the name it has was last given."""
    values = call.args[1]
    if isinstance(values, ast.Name):
        given = [each for each in ast.walk(tree_of(path)) if isinstance(each, ast.Assign)
                 and each.lineno < call.lineno and ast.unparse(each.targets[0]) == values.id]  # fmt: skip
        values = given[-1].value
    assert isinstance(values, ast.Tuple), "write the tuple out, so that its values can be counted"
    yield from values.elts


@pytest.mark.parametrize(("path", "call"), [pytest.param(*each, id=f"{each[0].stem}-{number}")
                                            for number, each in enumerate(CALLS)])  # fmt: skip
def test_a_new_row_has_all_its_fields(path: Path, call: ast.Call) -> None:
    fields, values = fields_of(path, call), list(values_of(path, call))

    if any(isinstance(each, ast.Starred) for each in values):
        assert len(values) < len(fields)
    else:
        assert len(values) == len(fields), f"{path}:{call.lineno} has {len(values)} values for {', '.join(fields)}"


def test_the_calls_are_found() -> None:
    assert {"fetch.py", "produce.py"} <= {path.name for path, _ in CALLS}
