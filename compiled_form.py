"""Builds the compiled form of the package with mypyc: `make wheel`, or `MINIBROKER_COMPILE=1 pip install .`.

pyproject.toml lists what is compiled ([tool.minibroker.compiled]); ARCHITECTURE.md has the reasons for what is not. The
sources are compiled as they stand, but for what only mypyc needs, done to a copy in `build/`:

    __slots__         left out, as the layout of a native class is fixed anyway; mypyc asks which attributes are deleted
    constants         Final, which spares a look-up of the name at each use
    NamedTuples       made by tuple.__new__, as their own __new__ does it, without the call of a Python function
    __loader__        empty, so that tracebacks show lines of the sources
    classes           a decorator for those that classes in Python inherit from, and for those that must stay Python
    codecs            written out as modules by protocol/codegen_module.py, from the declarations of the messages

Lines keep their numbers, so tracebacks and profilers show the lines of the real sources.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent
SOURCE = ROOT / "src"
PACKAGE = "minibroker"
CODECS = Path(PACKAGE, "protocol", "codecs")
OPEN_DECORATOR = "@mypyc_attr(allow_interpreted_subclasses=True)"
# Any decorator that mypyc does not know keeps a class out of its hands.
PYTHON_DECORATOR = "@(lambda python_class: python_class)"
# Never true when it runs; for mypy, which knows this name, always.
IMPORT_OF_DECORATOR = "\n\nMYPY = False\nif MYPY:\n    from mypy_extensions import mypyc_attr\n"
# A traceback asks a module's loader for its lines, which that of a shared library does not have, and else sys.path.
SOURCE_ON_PATH = "\n__loader__: object = ()  # not None, which importlib would replace\n"
LITERAL = re.compile(r"None|True|False|-?\d+|''|\(\)")
CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]+|_?[a-z][a-z0-9_]+")
MYPY_OPTIONS = (
    "--python-version=3.11",
    "--config-file=",
    "--ignore-missing-imports",
    "--disable-error-code=used-before-def",
)


NamedFields = list[str | None]
Insertion = tuple[int, int, str]  # line, column in bytes, text


class Compiled(NamedTuple):
    """What pyproject.toml lists. Modules are paths below `src/minibroker`."""

    groups: dict[str, list[str]]
    python: list[str]
    open_classes: dict[str, list[str]]
    python_classes: dict[str, list[str]]
    codecs: list[str]

    def modules(self) -> dict[str, list[str]]:
        """The modules of each group, which becomes one shared library, in which calls are direct."""
        return {
            name: sorted(
                {
                    str(path.relative_to(SOURCE))
                    for pattern in patterns
                    for path in (SOURCE / PACKAGE).glob(pattern)
                    if path.name != "__init__.py" and str(path.relative_to(SOURCE / PACKAGE)) not in self.python
                }
            )
            for name, patterns in self.groups.items()
        }


def listed() -> Compiled:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    table: dict[str, Any] = project["tool"]["minibroker"]["compiled"]
    return Compiled(table["groups"], table["python"], table["open-classes"], table["python-classes"], table["codecs"])


def prepared(
    text: str,
    open_classes: Sequence[str] = (),
    python_classes: Sequence[str] = (),
    named_tuples: Mapping[str, NamedFields] | None = None,
) -> str:
    """The source of a module as mypyc reads it; each statement stays on its line.

    `named_tuples` has the fields of NamedTuples by class, each with the text of its default.
    """
    tree = ast.parse(text)
    lines = inserted(text, sorted(made_directly(tree, text, named_tuples or {}), reverse=True)).splitlines()
    for constant in constants(tree):
        line = lines[constant.lineno - 1]
        end = constant.targets[0].end_col_offset
        lines[constant.lineno - 1] = f"{line[:end]}: Final{line[end:]}"
    deleted = {
        target.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Delete)
        for target in node.targets
        if isinstance(target, ast.Attribute)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef):
            continue
        for statement in node.body:
            if is_slots(statement):
                assert statement.end_lineno is not None
                names = sorted(deleted & names_in(statement))
                native = f"__deletable__ = {names!r}" if names else "pass"
                replaced = [" " * statement.col_offset + native]
                replaced += [""] * (statement.end_lineno - statement.lineno)
                lines[statement.lineno - 1 : statement.end_lineno] = replaced
        if node.name in open_classes or node.name in python_classes:
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            assert not lines[first - 2].strip(), f"no blank line before class {node.name}"
            lines[first - 2] = OPEN_DECORATOR if node.name in open_classes else PYTHON_DECORATOR
    future = next((slot for slot, line in enumerate(lines) if line.startswith("from __future__")), None)
    if future is not None:
        lines[future] += "; from typing import Final"
    return "\n".join(lines) + "\n" + (IMPORT_OF_DECORATOR if open_classes else "")


def constants(tree: ast.Module) -> list[ast.Assign]:
    """The constants of a module: names in capitals, and functions bound there, that are assigned once."""
    assigned = [each for each in tree.body if isinstance(each, ast.Assign) and len(each.targets) == 1]
    names = Counter(each.targets[0].id for each in assigned if isinstance(each.targets[0], ast.Name))
    changed = {name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names}
    return [
        each
        for each in assigned
        if isinstance(each.targets[0], ast.Name)
        and CONSTANT.fullmatch(each.targets[0].id)
        and names[each.targets[0].id] == 1
        and each.targets[0].id not in changed
    ]


def named_tuples_of(trees: Iterable[ast.Module]) -> dict[str, NamedFields]:
    """The fields of all NamedTuples, by the names of the classes; without names that another class has too."""
    found: dict[str, NamedFields] = {}
    names: Counter[str] = Counter()
    for tree in trees:
        for node in ast.walk(tree):
            if not isinstance(node, ast.ClassDef):
                continue
            names[node.name] += 1
            if [ast.unparse(base) for base in node.bases] == ["NamedTuple"]:
                found[node.name] = [
                    None if field.value is None else ast.unparse(field.value)
                    for field in node.body
                    if isinstance(field, ast.AnnAssign)
                ]
    return {name: fields for name, fields in found.items() if names[name] == 1}


def made_directly(tree: ast.Module, text: str, named_tuples: Mapping[str, NamedFields]) -> Iterator[Insertion]:
    """The insertions, by line and column, that make each `Row(a, b)` a `tuple.__new__(Row, (a, b))`.

    Calls with keywords stay, and those that leave out a default which is not a literal.
    """
    lines = text.encode().splitlines()
    known = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    known |= {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in known):
            continue
        fields = named_tuples.get(node.func.id)
        if fields is None or not node.args or node.keywords or any(isinstance(each, ast.Starred) for each in node.args):
            continue
        left_out = fields[len(node.args) :]
        if not all(default is not None and LITERAL.fullmatch(default) for default in left_out):
            continue
        assert node.end_lineno is not None and node.end_col_offset is not None and node.func.end_col_offset is not None
        last = node.args[-1]
        assert last.end_lineno is not None
        ending = [*lines[last.end_lineno - 1 : node.end_lineno - 1], lines[node.end_lineno - 1][: node.end_col_offset]]
        after = b"".join(ending)[last.end_col_offset :]
        comma = "" if after.lstrip(b" )").startswith(b",") else ", "
        yield node.lineno, node.func.col_offset, "tuple.__new__("
        yield node.lineno, node.func.end_col_offset, ", "
        yield node.end_lineno, node.end_col_offset - 1, "".join((comma, *(f"{default}, " for default in left_out)))
        yield node.end_lineno, node.end_col_offset, ")"


def inserted(text: str, insertions: Iterable[Insertion]) -> str:
    """The text with insertions, the last of it first."""
    lines = text.splitlines()
    for number, column, new in insertions:
        line = lines[number - 1].encode()
        lines[number - 1] = (line[:column] + new.encode() + line[column:]).decode()
    return "\n".join(lines) + "\n"


def is_slots(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Assign)
        and isinstance(statement.targets[0], ast.Name)
        and statement.targets[0].id == "__slots__"
    )


def names_in(statement: ast.stmt) -> set[str]:
    return {each.value for each in ast.walk(statement) if isinstance(each, ast.Constant)}


def prepare(tree: Path, compiled: Compiled) -> None:
    """Write the package to `tree` as mypyc reads it. Files that are as they were keep their times."""
    kept = set()
    named_tuples = named_tuples_of(ast.parse(path.read_text(encoding="utf-8")) for path in package_files())
    for source in package_files():
        module = source.relative_to(SOURCE)
        below = str(module.relative_to(PACKAGE))
        text = prepared(
            source.read_text(encoding="utf-8"),
            compiled.open_classes.get(below, ()),
            compiled.python_classes.get(below, ()),
            named_tuples,
        )
        write_if_changed(tree / module, text + SOURCE_ON_PATH)
        kept.add(tree / module)
    for name, text in written_codecs(compiled.codecs).items():
        module = CODECS / f"{name}.py"
        write_if_changed(tree / module, text)
        kept.add(tree / module)
    for path in tree.rglob("*.py"):
        if path not in kept:
            path.unlink()


def package_files() -> list[Path]:
    """The modules of the package, below `src` as they are imported."""
    return [
        Path(folder, name)
        for folder, _, names in os.walk(SOURCE / PACKAGE, followlinks=True)
        for name in names
        if name.endswith(".py")
    ]


def written_codecs(families: Sequence[str]) -> dict[str, str]:
    """The modules of codecs by name, with an empty `__init__`."""
    program = (
        "import json, sys; from minibroker.protocol.codegen_module import modules; "
        "print(json.dumps(modules(sys.argv[1:])))"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    command = [sys.executable, "-c", program, *families]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    return {"__init__": "", **json.loads(done.stdout)}


def write_if_changed(path: Path, text: str) -> None:
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def optimisation() -> str:
    """The level of gcc's -O: 3, or less in MINIBROKER_COMPILE_OPT, for tests of what takes long to compile."""
    return os.environ.get("MINIBROKER_COMPILE_OPT", "3")


def extensions(build: Path) -> list[Any]:
    """Generate the C code in `build`; return its extension modules for setuptools."""
    from mypyc.build import mypycify

    compiled = listed()
    tree = build / "source"
    prepare(tree, compiled)
    groups = compiled.modules()
    groups["codecs"] = sorted(str(path.relative_to(tree)) for path in (tree / CODECS).glob("[!_]*.py"))
    here = Path.cwd()
    os.chdir(tree)  # paths in tracebacks are relative to it, as to a folder of sys.path
    try:
        made: list[Any] = mypycify(
            [*MYPY_OPTIONS, f"--cache-dir={build / 'cache'}", *(each for names in groups.values() for each in names)],
            opt_level=optimisation(),
            debug_level="0",
            target_dir=str(build / "c"),
            separate=[(names, f"{PACKAGE}.{name}") for name, names in groups.items()],
        )
    finally:
        os.chdir(here)
    return made
