"""The mutants fit the source: each is there once and can be compiled, and no module with logic is without one.

`make mutants` runs them; these tests do not.
"""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from tests.mutants.table import ROOT, Mutant, MutantError, lines_of_code, modules, modules_without, mutants

FEWEST = 60
LINES_WITHOUT = 30  # a module with more lines of code has a mutant, or a reason


@pytest.mark.parametrize("table", sorted({mutant.table for mutant in mutants()}))
def test_each_mutant_is_another_program(table: str) -> None:
    for mutant in mutants():
        if mutant.table == table:
            planted = mutant.planted()
            assert planted != (ROOT / mutant.file).read_text(encoding="utf-8"), mutant
            compile(planted, mutant.file, "exec")


def test_no_two_mutants_have_one_name() -> None:
    names = [str(mutant) for mutant in mutants()]

    assert sorted(set(names)) == sorted(names)


def test_a_mutant_whose_text_has_gone_names_itself_and_its_table(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    mutant = Mutant("some.toml", "a.py", "x is 1", "x = 2", "x = 3")

    with pytest.raises(MutantError, match=r"a\.py: x is 1: .* 0 times, .* update tests/mutants/some\.toml"):
        mutant.planted(tmp_path)


def test_every_killer_is_a_test() -> None:
    gone = [f"{mutant}: {mutant.killer}" for mutant in mutants() if mutant.killer and not mutant.has_killer()]

    assert gone == [], "remove the line `killer`, or run `python -m tests.mutants --only PATTERN`, which finds another"


def test_a_killer_is_remembered_in_the_mutants_own_table(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("class TestA:\n    async def test_b(self): ...\n", encoding="utf-8")
    row = "file = \"a.py\"\nbehaviour = \"x is \\\"1\\\"\"\n%stext = '''1'''\nbecomes = '''2'''\n"
    table = tmp_path / "some.toml"
    table.write_text("[[mutant]]\n" + row % "", encoding="utf-8")

    for killer in ("test_a.py::TestA::test_b[it's]", "test_a.py::test_c"):
        (read,) = tomllib.loads(table.read_text(encoding="utf-8"))["mutant"]
        Mutant("some.toml", **read).remember(killer, tmp_path)
        assert table.read_text(encoding="utf-8") == "[[mutant]]\n" + row % f"killer = '''{killer}'''\n"
        assert replace(Mutant("some.toml", **read), killer=killer).has_killer(tmp_path) == ("test_b" in killer)


def test_there_are_enough() -> None:
    assert len(mutants()) >= FEWEST


def test_every_module_with_logic_has_a_mutant_or_a_reason() -> None:
    named = {mutant.file for mutant in mutants()} | modules_without().keys()

    large = [str(path.relative_to(ROOT)) for path in modules() if lines_of_code(path) > LINES_WITHOUT]

    missing = [file for file in large if file not in named]
    assert missing == [], "add a mutant to tests/mutants/, or to `without` the reason why none can be killed"


def test_a_module_with_a_reason_has_no_mutant_and_is_there() -> None:
    assert modules_without().keys().isdisjoint(mutant.file for mutant in mutants())
    assert [file for file in modules_without() if not (ROOT / file).is_file()] == []
