"""Builds the compiled form of the package with mypyc: `make wheel`, or `MINIBROKER_COMPILE=1 pip install .`.

pyproject.toml lists what is compiled ([tool.minibroker.compiled]); ARCHITECTURE.md has the reasons for what is not. The
sources are compiled as they stand, but for what only mypyc needs, done to a copy in `build/`:

    __slots__         left out, as the layout of a native class is fixed anyway; mypyc asks which attributes are deleted
    constants         Final, which spares a look-up of the name at each use
    NamedTuples       made by tuple.__new__, as their own __new__ does it, without the call of a Python function
    members           of imported enums, each looked up once: a class of an enum looks for them by a Python function
    __loader__        empty, so that tracebacks show lines of the sources
    classes           a decorator for those that classes in Python inherit from, and for those that must stay Python
    codecs            written out as modules by protocol/codegen_module.py, from the declarations of the messages

The C code is compiled twice: with counters, then by what they have counted under a load (`Profile`).

Lines keep their numbers, so tracebacks and profilers show the lines of the real sources.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src"
PACKAGE = "minibroker"
CODECS = Path(PACKAGE, "protocol", "codecs")
LOAD = ROOT / "build_tools" / "compiled_profile.py"
REQUESTS_OF_LOAD = ROOT / "benchmarks" / "frames.py"
OPEN_DECORATOR = "@mypyc_attr(allow_interpreted_subclasses=True)"
# Any decorator that mypyc does not know keeps a class out of its hands.
PYTHON_DECORATOR = "@(lambda python_class: python_class)"
# Never true when it runs; for mypy, which knows this name, always.
IMPORT_OF_DECORATOR = "\n\nMYPY = False\nif MYPY:\n    from mypy_extensions import mypyc_attr\n"
# A traceback asks a module's loader for its lines, which that of a shared library does not have, and else sys.path.
SOURCE_ON_PATH = "\n__loader__: object = ()  # not None, which importlib would replace\n"
LITERAL = re.compile(r"None|True|False|-?\d+|''|\(\)")
CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]+|_?[a-z][a-z0-9_]+")
CONSTANT_TYPE = re.compile(r"Callable\[|dict\[|int$")  # mypyc 2.4 loses the None of a Final[int | None]
MYPY_OPTIONS = (
    "--python-version=3.11",
    "--config-file=",
    "--ignore-missing-imports",
    "--disable-error-code=used-before-def",
)


NamedFields = dict[str, str | None]  # the texts of defaults
Edit = tuple[int, int, str, int]  # line, column in bytes, what to insert there, bytes to leave out after it


class Compiled(NamedTuple):
    """The lists in pyproject.toml. Modules are paths below `src/minibroker`."""

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
    enums: Mapping[str, Collection[str]] | None = None,
) -> str:
    """The source of a module as mypyc reads it; each statement stays on its line.

    `named_tuples` has the fields of NamedTuples by class, `enums` the members of enums.
    """
    tree = ast.parse(text)
    edits = [*made_final(tree), *made_directly(tree, text, named_tuples or {}), *looked_up_once(tree, enums or {})]
    lines = edited(text, sorted(edits, reverse=True)).splitlines()
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


def made_final(tree: ast.Module) -> Iterator[Edit]:
    """The edits that make a constant of each name in capitals, and of each function bound, that is assigned once."""
    assigned: dict[str, list[ast.Assign | ast.AnnAssign]] = {}
    for statement in tree.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign) and (name := name_of(statement)):
            assigned.setdefault(name, []).append(statement)
    changed = {name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names}
    for name, statements in assigned.items():
        if len(statements) > 1 or name in changed or not CONSTANT.fullmatch(name):
            continue
        (statement,) = statements
        if isinstance(statement, ast.Assign):
            yield statement.lineno, statement.col_offset + len(name), ": Final", 0
        elif statement.value is not None and CONSTANT_TYPE.match(ast.unparse(statement.annotation)):
            annotation = statement.annotation
            assert annotation.end_lineno is not None and annotation.end_col_offset is not None
            yield annotation.lineno, annotation.col_offset, "Final[", 0
            yield annotation.end_lineno, annotation.end_col_offset, "]", 0


def name_of(statement: ast.Assign | ast.AnnAssign) -> str:
    """The one name that the statement sets; empty if it sets something else."""
    target, *others = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return target.id if isinstance(target, ast.Name) and not others else ""


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
                found[node.name] = {
                    field.target.id: None if field.value is None else ast.unparse(field.value)
                    for field in node.body
                    if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
                }
    return {name: fields for name, fields in found.items() if names[name] == 1}


def made_directly(tree: ast.Module, text: str, named_tuples: Mapping[str, NamedFields]) -> Iterator[Edit]:
    """The edits that make each `Row(a, y=b)` a `tuple.__new__(Row, (a, b))`.

    Calls stay that name fields in another order, or leave out a default which is not a literal.
    """
    lines = text.encode().splitlines()
    known = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    known |= {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in known):
            continue
        fields = named_tuples.get(node.func.id)
        given = [*node.args, *(each.value for each in node.keywords)]
        if fields is None or not given or any(isinstance(each, ast.Starred) for each in node.args):
            continue
        if [each.arg for each in node.keywords] != list(fields)[len(node.args) : len(given)]:
            continue
        left_out = list(fields.values())[len(given) :]
        if not all(default is not None and LITERAL.fullmatch(default) for default in left_out):
            continue
        assert node.end_lineno is not None and node.end_col_offset is not None and node.func.end_col_offset is not None
        last = given[-1]
        assert last.end_lineno is not None
        ending = [*lines[last.end_lineno - 1 : node.end_lineno - 1], lines[node.end_lineno - 1][: node.end_col_offset]]
        after = b"".join(ending)[last.end_col_offset :]
        comma = "" if after.lstrip(b" )").startswith(b",") else ", "
        yield node.lineno, node.func.col_offset, "tuple.__new__(", 0
        yield node.lineno, node.func.end_col_offset, ", ", 0
        for keyword in node.keywords:
            name = f"{keyword.arg}=".encode()
            assert lines[keyword.lineno - 1].startswith(name, keyword.col_offset), ast.unparse(node)
            yield keyword.lineno, keyword.col_offset, "", len(name)
        yield node.end_lineno, node.end_col_offset - 1, "".join((comma, *(f"{default}, " for default in left_out))), 0
        yield node.end_lineno, node.end_col_offset, ")", 0


def enums_of(trees: Iterable[ast.Module]) -> dict[str, set[str]]:
    """The members of all enums, by the names of the classes."""
    return {
        node.name: {
            target.id
            for statement in node.body
            if isinstance(statement, ast.Assign)
            for target in statement.targets
            if isinstance(target, ast.Name)
        }
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base).endswith("Enum") for base in node.bases)
    }


def looked_up_once(tree: ast.Module, enums: Mapping[str, Collection[str]]) -> Iterator[Edit]:
    """The edits that make each `ErrorCode.NONE` a constant of the module, set after its last import."""
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    imported = {alias.asname or alias.name for node in imports for alias in node.names} & enums.keys()
    used = set()
    for node in evaluated(tree):
        if not (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in imported):
            continue
        if node.attr in enums[node.value.id]:
            used.add((node.value.id, node.attr))
            assert node.end_col_offset is not None and node.lineno == node.end_lineno
            name = f"_{node.value.id}_{node.attr}"
            yield node.lineno, node.col_offset, name, node.end_col_offset - node.col_offset
    if used:
        last = imports[-1]
        assert last.end_lineno is not None and last.end_col_offset is not None
        constants = "".join(f"; _{name}_{member}: Final = {name}.{member}" for name, member in sorted(used))
        yield last.end_lineno, last.end_col_offset, constants, 0


def evaluated(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of which the value counts: not those of annotations, types and patterns."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "pattern") or (isinstance(node, ast.Subscript) and name == "slice"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield child
                yield from evaluated(child)


def edited(text: str, edits: Iterable[Edit]) -> str:
    """The text after edits, the last of it first."""
    lines = text.splitlines()
    for number, column, new, left_out in edits:
        line = lines[number - 1].encode()
        lines[number - 1] = (line[:column] + new.encode() + line[column + left_out :]).decode()
    return "\n".join(lines) + "\n"


def is_slots(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Assign)
        and isinstance(statement.targets[0], ast.Name)
        and statement.targets[0].id == "__slots__"
    )


def names_in(statement: ast.stmt) -> set[str]:
    constants = (each.value for each in ast.walk(statement) if isinstance(each, ast.Constant))
    return {each for each in constants if isinstance(each, str)}


def prepare(tree: Path, compiled: Compiled) -> None:
    """Write the package to `tree` as mypyc reads it. Files that are as they were keep their times."""
    kept = set()
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in package_files()]
    named_tuples, enums = named_tuples_of(trees), enums_of(trees)
    for source in package_files():
        module = source.relative_to(SOURCE)
        below = str(module.relative_to(PACKAGE))
        text = prepared(
            source.read_text(encoding="utf-8"),
            compiled.open_classes.get(below, ()),
            compiled.python_classes.get(below, ()),
            named_tuples,
            enums,
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
    command = [sys.executable, "-c", program, *families]
    done = subprocess.run(command, env=environment_with(SOURCE), stdout=subprocess.PIPE, check=True)
    return {"__init__": "", **json.loads(done.stdout)}


def environment_with(folder: Path) -> dict[str, str]:
    """The variables of a Python that imports from `folder` first, then from where pip has told this one to."""
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def write_if_changed(path: Path, text: str) -> None:
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def optimisation() -> str:
    """The level of gcc's -O: 2, or less in MINIBROKER_COMPILE_OPT, to compile sooner, and without a profile.

    3 makes nothing faster, and takes twice as long; s takes half as much time again for each request.
    """
    return os.environ.get("MINIBROKER_COMPILE_OPT", "2")


def extensions(build: Path) -> list[Any]:
    """Generate the C code in `build`; return its extension modules for setuptools."""
    from mypyc.build import mypycify

    compiled = listed()
    tree = build / "source"
    prepare(tree, compiled)
    groups = compiled.modules()
    # From its cache mypyc 2.4 takes an enum of another group for a native class. Equal C code is not compiled again.
    shutil.rmtree(build / "cache", ignore_errors=True)
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
    # Groups call each other by tables, so calls within one need not be found by name. Looking for what to warn of takes
    # half of gcc's time, and nobody writes this code.
    for each in made:
        each.extra_compile_args = [*each.extra_compile_args, "-fvisibility=hidden", "-w"]  # all have the same list
    return made


class Profile:
    """A profile of the code under a load (`compiled_profile.py`): which parts are hot, and how branches go.

    A commit takes four fifths of the time then, and other small requests a twentieth less.
    """

    COUNTING: ClassVar[list[str]] = ["-fprofile-generate", "-fprofile-update=prefer-atomic"]
    # What was not run is compiled as without a profile, instead of as small as can be.
    USING: ClassVar[list[str]] = ["-fprofile-use", "-fprofile-partial-training", "-fprofile-correction"]

    def __init__(self, build: Path) -> None:
        self._build = build
        self._digest = build / "profile" / "of"
        self.lib = build / "profile" / "lib"
        self.temp = build / "profile" / "temp"

    @staticmethod
    def is_wanted() -> bool:
        """Whether this build is for use, by a compiler that understands the flags."""
        if optimisation() != "2":
            return False
        compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC"))
        version = subprocess.run([*compiler, "--version"], capture_output=True, text=True, check=True).stdout
        if "Free Software Foundation" in version:
            return True
        print(f"{compiler[0]} is not gcc: the compiled form is made without a profile")
        return False

    def is_of_this_code(self) -> bool:
        """Whether the profile of an earlier build is of the same C code."""
        return self._digest.exists() and self._digest.read_text() == self._digest_now()

    def take(self) -> None:
        """Run a load on the modules in `lib`, beside which the rest of the package is put."""
        for counters in self.temp.rglob("*.gcda"):
            counters.unlink()
        shutil.copytree(
            SOURCE / PACKAGE, self.lib / PACKAGE, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
        )
        command = [sys.executable, "-m", f"build_tools.{LOAD.stem}", str(self.lib)]
        done = subprocess.run(command, cwd=ROOT, env=environment_with(SOURCE), check=False)
        if done.returncode:
            raise SystemExit("no profile of the compiled form: MINIBROKER_COMPILE_OPT=1 makes it without one")

    def put_beside(self, temp: Path) -> None:
        """Put the counters where gcc looks for them: beside the object files in `temp`."""
        for counters in self.temp.rglob("*.gcda"):
            target = temp / counters.relative_to(self.temp)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(counters, target)

    def keep(self) -> None:
        """Note for the next build what the profile is of."""
        self._digest.write_text(self._digest_now())

    def _digest_now(self) -> str:
        sources = sorted(path for path in (self._build / "c").rglob("*") if path.suffix in (".c", ".h"))
        return hashlib.sha256(b"".join(path.read_bytes() for path in [LOAD, REQUESTS_OF_LOAD, *sources])).hexdigest()
