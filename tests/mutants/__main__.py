"""`python -m tests.mutants`: plants each mutant in a copy of the tree, and runs the fast tests until one fails.

The test that killed the mutant last time runs first, its `killer` in the table, then the test files that resemble the
mutant most, the rest of its package's, and all others. Only a `killer` changes, where another test was the first to
notice: commit it with the mutants and the tests.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.table import ROOT, Mutant, MutantError, mutants

FAST = "not slow and not integration and not spark"
FOLDERS = (
    "broker",
    "protocol",
    "storage",
    "purgatory",
    "schemas",
    "simulation",
    "conformance",
    "zookeeper",
    "transcript",
    "spark_jobs",
    "src",
    "tests",
    "benchmarks",
)
LINKS = ("build_tools", "docs", "docker", ".deps", ".venv", ".venvs", ".ci")
# These read the tree, not what it does: a mutant is to be killed by a test of behaviour.
OF_THE_TREE = (
    "tests/test_layering.py",
    "tests/test_tooling.py",
    "tests/test_documents.py",
    "tests/test_installing.py",
    "tests/mutants/",
    "tests/integration/",
)
ALSO_OF = {"fetch_path": "broker"}
# Test files whose cases are text in a folder of their own.
CASES_OF = {
    "tests/broker/test_conversations.py": "tests/golden/conversations",
    "tests/broker/test_settings_rows.py": "tests/golden/settings",
    "tests/minibroker/test_command_sessions.py": "tests/golden/commands",
    "tests/storage/test_histories.py": "tests/golden/histories",
}
MOST_LIKELY = 3  # test files
WEIGHT_OF_TEST_NAMES = 3
TEST_SECONDS = 20  # a mutant may make a test hang, which takes a quarter of a second without it
PRELOADED_IS_FINE = "ignore:Module already imported:pytest.PytestAssertRewriteWarning"
PASSED, NOT_FOUND, NOTHING_SELECTED = 0, 4, 5  # of pytest


@dataclass(frozen=True)
class Outcome:
    mutant: Mutant
    killer: str | None  # the node id of a test; None if all tests passed
    seconds: float

    def __str__(self) -> str:
        how = f"killed by {self.killer}" if self.killer else "SURVIVED"
        return f"{self.mutant}\n    {how} ({self.seconds:.0f} s)"


class Copy:
    """A copy of the tree, and the process that runs its tests."""

    def __init__(self, path: Path) -> None:
        self.path = path
        copy_tree(path)
        self._process = subprocess.Popen(
            [sys.executable, str(path / "tests/mutants/forked.py")],
            cwd=path,
            env=os.environ | {"PYTHONPATH": str(path / "src")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def pytest(self, arguments: list[str]) -> tuple[int, str]:
        """Run the fast ones of these tests; return the exit status and the output."""
        options = ["-q", "-n", "0", "-p", "no:cacheprovider", "-p", "tests.mutants.settled", "-W", PRELOADED_IS_FINE]
        options += ["--timeout", str(TEST_SECONDS), "--tb", "no", "-m", FAST]
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([*options, *arguments]) + "\n")
        self._process.stdin.flush()
        status, output = json.loads(self._process.stdout.readline())
        return status, output

    def first_failure(self, tests: list[str]) -> str | None:
        """Run the fast tests of the files, or a test by its id; return the first that fails, if any does."""
        status, output = self.pytest([*tests, "-x"])
        is_gone = status == NOT_FOUND and "not found: " in output
        if is_gone or status in (PASSED, NOTHING_SELECTED):
            return None
        found = re.search(r"^(?:FAILED|ERROR) (\S+?(?:\[.*\])?)(?: - .*)?$", output, re.MULTILINE)
        if found is not None:
            return found[1]
        if status < 0:
            return f"one of {' '.join(tests)}, which ended the process ({status})"
        if "while loading conftest" in output:
            return "all tests: it cannot be imported"
        raise RuntimeError(f"pytest has status {status}, and no test failed:\n{output}")

    def close(self) -> None:
        self._process.communicate()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", metavar="PATTERN", default="", help="a regular expression on `FILE: BEHAVIOUR`")
    parser.add_argument("--jobs", type=int, metavar="N", default=os.cpu_count() or 1, help="mutants at a time")
    parser.add_argument("--near", action="store_true", help="only the tests of the mutant's own package")
    options = parser.parse_args()
    chosen = [mutant for mutant in mutants() if re.search(options.only, str(mutant))]
    try:
        for mutant in chosen:
            mutant.planted()
    except MutantError as error:
        sys.exit(str(error))
    if not chosen:
        sys.exit(f"no mutant matches {options.only!r}; see tests/mutants/*.toml")
    started = time.monotonic()
    with copies_of_the_tree(min(options.jobs, len(chosen))) as copies:
        outcomes = list(run_all(chosen, copies, is_near=options.near))
        survivors = [outcome for outcome in outcomes if outcome.killer is None]
        failing = fail_without_a_mutant([outcome.killer for outcome in outcomes if outcome.killer], copies[0])
    for survivor in survivors:
        print(f"survived: {survivor.mutant}")
    if failing:
        print(f"These tests fail without a mutant too, and prove nothing:\n{failing}")
    minutes = (time.monotonic() - started) / 60
    print(f"{len(chosen)} mutants, {len(chosen) - len(survivors)} killed, {len(survivors)} survived, {minutes:.1f} min")
    sys.exit(1 if survivors or failing else 0)


def run_all(chosen: list[Mutant], copies: list[Copy], *, is_near: bool) -> Iterator[Outcome]:
    likely = Likely(copies[0].path)
    free: queue.SimpleQueue[Copy] = queue.SimpleQueue()
    for copy in copies:
        free.put(copy)

    def run(mutant: Mutant) -> Outcome:
        copy = free.get()
        stages = [*([[mutant.killer]] if mutant.killer else []), *likely.stages(mutant, is_near=is_near)]
        try:
            return hunt(mutant, copy, stages)
        finally:
            free.put(copy)

    with ThreadPoolExecutor(len(copies)) as pool:
        for done in as_completed([pool.submit(run, mutant) for mutant in chosen]):
            outcome = done.result()
            print(outcome, flush=True)
            if outcome.killer is not None:
                outcome.mutant.remember(outcome.killer)
            yield outcome


@contextmanager
def copies_of_the_tree(count: int) -> Iterator[list[Copy]]:
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ExitStack() as at_end:
        copies = [Copy(Path(folder) / str(number)) for number in range(count)]
        for copy in copies:
            at_end.callback(copy.close)
        yield copies


def copy_tree(path: Path) -> None:
    path.mkdir()
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, path / folder, symlinks=True)
    for each in ROOT.iterdir():
        if each.is_file() and each.name != ".git":
            shutil.copy2(each, path)
        elif each.name in LINKS:
            (path / each.name).symlink_to(each)


def hunt(mutant: Mutant, copy: Copy, stages: list[list[str]]) -> Outcome:
    """Plant the mutant in the copy, run tests until one fails, and take it out again."""
    path = copy.path / mutant.file
    source = path.read_text(encoding="utf-8")
    started = time.monotonic()
    path.write_text(mutant.planted(copy.path), encoding="utf-8")
    forget_compiled(path)
    try:
        killer = next(filter(None, map(copy.first_failure, stages)), None)
    finally:
        path.write_text(source, encoding="utf-8")
        forget_compiled(path)
    return Outcome(mutant, killer, time.monotonic() - started)


def forget_compiled(path: Path) -> None:
    """Remove what Python has compiled of a file: it notices a change by time and size, which may be the same."""
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink(missing_ok=True)


class Likely:
    """The order in which test files are likely to notice a mutant: by the words that they share with it."""

    def __init__(self, root: Path) -> None:
        self._words: dict[str, Counter[str]] = {}
        for path in sorted((root / "tests").rglob("test_*.py")):
            file = str(path.relative_to(root))
            if not file.startswith(OF_THE_TREE):
                self._words[file] = words_of_tests(path.read_text(encoding="utf-8"))
        for file, folder in CASES_OF.items():
            for cases in (root / folder).glob("*.txt"):
                self._words[file].update(words_of(cases.read_text(encoding="utf-8")))
        self._files_with = Counter(word for words in self._words.values() for word in words)

    def stages(self, mutant: Mutant, *, is_near: bool) -> list[list[str]]:
        module, package = Path(mutant.file).stem, package_of(mutant.file)
        near = [file for file in self._words if folder_of(file) == package or f"/test_{package}" in file]
        likeness = {file: self._likeness(mutant, file) for file in near}
        near.sort(key=lambda file: -likeness[file])
        named = [file for file in near if f"/test_{module}" in file]
        first = list(dict.fromkeys((*named, *near[:MOST_LIKELY])))
        rest = [file for file in near if file not in first]
        others = [] if is_near else [file for file in self._words if file not in near]
        return [stage for stage in (first, rest[:MOST_LIKELY], rest[MOST_LIKELY:], others) if stage]

    def _likeness(self, mutant: Mutant, file: str) -> float:
        words = set(words_of(f"{mutant.file} {mutant.behaviour} {mutant.text}"))
        has = self._words[file]
        return sum(
            min(has[word], 2 * WEIGHT_OF_TEST_NAMES) * math.log(len(self._words) / self._files_with[word])
            for word in words & has.keys()
        )


def words_of(text: str) -> list[str]:
    """The words in a text, also in names; of long ones the beginning, which plural and tense leave as it is."""
    return [word[:6] for word in re.findall(r"[a-z]{3,}", text.lower())]


def words_of_tests(source: str) -> Counter[str]:
    words = Counter(words_of(source))
    for name in re.findall(r"def test_(\w+)", source):
        for word in words_of(name):
            words[word] += WEIGHT_OF_TEST_NAMES
    return words


def package_of(file: str) -> str:
    """The folder of tests of a module: the name of its package, `minibroker` for most of the toolkit."""
    parts = Path(file).parts
    if parts[0] != "src":
        return parts[0]
    if "demo" in parts:
        return "spark_jobs"
    return parts[2] if (ROOT / "tests" / parts[2]).is_dir() else parts[1]


def folder_of(test_file: str) -> str:
    """The package a test file belongs to, by its folder in `tests/`."""
    folder = Path(test_file).parts[1]
    return ALSO_OF.get(folder, folder)


def fail_without_a_mutant(killers: list[str], copy: Copy) -> str:
    """Run the killing tests on the unchanged tree; return what fails, which should be nothing."""
    tests = sorted({killer for killer in killers if "::" in killer and " " not in killer.partition("[")[0]})
    status, output = copy.pytest(tests)
    return "" if status == PASSED else output[-3000:]


if __name__ == "__main__":
    main()
