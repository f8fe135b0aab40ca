"""`pip install .`: all of the package and nothing else, without pyspark, under 70 MB with all it brings.

The slow tests build for real, in a copy of the tree and in fresh virtual environments: sdist, wheel from the sdist,
installation of the wheel, and the tests of the unpacked sdist. They need an index.
"""

from __future__ import annotations

import email
import email.message
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import minibroker
from build_tools.package_page import page
from minibroker.conformance.recordings import NAMES
from tests.sources import PARTS
from tests.unpacking import unpack

ROOT = Path(__file__).parents[2]
MOST_ADDED_BYTES = 70_000_000
# What a clone has beside its files.
NOT_FILES = shutil.ignore_patterns(
    ".git", ".venv*", ".deps", ".*_cache", ".hypothesis", "__pycache__", "*.egg-info", "build", "dist", "data", "out",
)  # fmt: skip
FAST = "not slow and not integration and not spark"
# The files of an sdist are those of the clone, whose tests all run: these show that they find what they need.
SDIST_TESTS = ("tests/purgatory", "tests/fetch_path/test_rows_69_to_74_files.py", "tests/test_layering.py")
RELATIVE_LINK = re.compile(r"\]\((?!https?://|#)")
BUILD = "import sys, setuptools.build_meta as backend; print(getattr(backend, sys.argv[1])(sys.argv[2]))"


def modules_in_the_tree() -> set[str]:
    """Every module as it is named in a wheel: minibroker/broker/app.py for broker/app.py."""
    source = ROOT / "src"
    folders = [source / "minibroker", *(each for each in (source / "minibroker").iterdir() if each.is_symlink())]
    return {str(module.relative_to(source)) for folder in folders for module in folder.rglob("*.py")}


def files_of_the_page() -> set[str]:
    """The files that the console serves to browsers, as they are named in a wheel."""
    source = ROOT / "src"
    static = source / "minibroker" / "console" / "static"
    return {str(path.relative_to(source)) for path in static.rglob("*") if path.is_file()}


def test_every_link_of_the_package_leads_to_a_folder_of_the_project() -> None:
    links = {each.name: each.resolve() for each in (ROOT / "src" / "minibroker").iterdir() if each.is_symlink()}

    assert links == {name: ROOT / name for name in PARTS}


def test_every_folder_with_modules_is_a_package() -> None:
    missing = [
        module for module in modules_in_the_tree() if not (ROOT / "src" / module).with_name("__init__.py").exists()
    ]

    assert not missing


def run(*command: object, cwd: Path | None = None) -> str:
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


class Environment:
    """A fresh virtual environment."""

    def __init__(self, path: Path) -> None:
        run(sys.executable, "-m", "venv", "--without-pip", path)  # unpacking pip takes longer than all else
        self.bin = path / "bin"
        self._site_packages = Path(
            run(self.bin / "python", "-c", "import site; print(site.getsitepackages()[0])").strip()
        )

    def install(self, *what: object) -> None:
        pip = (sys.executable, "-m", "pip", "--python", self.bin / "python")
        run(*pip, "install", "--quiet", "--disable-pip-version-check", *what)

    def size_bytes(self) -> int:
        """Measure what site-packages takes on the disk, as du counts it."""
        return sum(path.lstat().st_blocks * 512 for path in self._site_packages.rglob("*"))

    def names(self) -> set[str]:
        """List the names that can be imported at the top."""
        return {path.name.removesuffix(".py") for path in self._site_packages.iterdir()}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel that was built from nothing but the sdist."""
    folder = tmp_path_factory.mktemp("built")
    builder = Environment(folder / "builder")
    builder.install("setuptools>=77")
    source = folder / "source"
    shutil.copytree(ROOT, source, symlinks=True, ignore=NOT_FILES)
    run(builder.bin / "python", "-c", BUILD, "build_sdist", folder, cwd=source)
    (sdist,) = folder.glob("*.tar.gz")
    unpack(sdist, folder / "unpacked")
    unpacked = unpacked_in(folder)
    run(builder.bin / "python", "-c", BUILD, "build_wheel", folder, cwd=unpacked)
    return folder


def unpacked_in(folder: Path) -> Path:
    (unpacked,) = (folder / "unpacked").iterdir()
    return unpacked


def metadata_of(wheel: Path) -> email.message.Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(name))


@pytest.mark.parametrize(
    ("readme", "source", "made"),
    [
        ("[docs/a.md](docs/a.md), [below](#here)", None, "`docs/a.md`, [below](#here)"),
        ("[a recipe](docs/a.md)", None, "a recipe (`docs/a.md`)"),
        ("[a recipe](docs/a.md)", "https://example.org/m/", "[a recipe](https://example.org/m/blob/main/docs/a.md)"),
        ("Text.\n\n![A](docs/a.png)\n\nMore.", None, "Text.\n\nMore."),
        (
            "![A](docs/a.png)\n\nMore.",
            "https://example.org/m",
            "![A](https://example.org/m/raw/main/docs/a.png)\n\nMore.",
        ),
        ('Text.\n\n<picture>\n  <img alt="A" src="docs/a.png">\n</picture>\n\nMore.', None, "Text.\n\nMore."),
        (
            '<source srcset="docs/b.png">\n<img alt="A" src="docs/a.png">',
            "https://example.org/m",
            '<source srcset="https://example.org/m/raw/main/docs/b.png">\n'
            '<img alt="A" src="https://example.org/m/raw/main/docs/a.png">',
        ),
        ("[elsewhere](https://example.org)", "https://example.org/m", "[elsewhere](https://example.org)"),
    ],
)
def test_links_of_the_packages_page_do_not_need_a_clone(readme: str, source: str | None, made: str) -> None:
    assert page(readme, source) == made


def test_the_licence_is_whole_and_named() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")

    assert (project["license"], project["license-files"]) == ("Apache-2.0", ["LICENSE"])
    assert "Version 2.0, January 2004" in text
    assert [f"\n   {number}. " in text for number in range(1, 10)] == [True] * 9
    assert "END OF TERMS AND CONDITIONS" in text


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.timeout(600)
def test_the_metadata_have_summary_licence_and_addresses(built: Path) -> None:
    (wheel,) = built.glob("*.whl")

    metadata = metadata_of(wheel)
    page = metadata.get_payload()

    assert metadata["Author"] == "minibroker developers"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert "broker for tests" in metadata["Summary"]
    classifiers = metadata.get_all("Classifier") or []
    assert {f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13)} <= set(classifiers)
    assert "Typing :: Typed" in classifiers
    assert any(each.startswith("Development Status ::") for each in classifiers)
    assert isinstance(page, str)
    assert page.startswith("# minibroker\n")
    assert RELATIVE_LINK.findall(page) == []
    assert any(name.endswith("/LICENSE") for name in zipfile.ZipFile(wheel).namelist())


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.timeout(600)
def test_an_unpacked_sdist_is_the_clone(built: Path) -> None:
    unpacked = unpacked_in(built)

    lost = {path.relative_to(built / "source") for path in (built / "source").rglob("*")} - {
        path.relative_to(unpacked) for path in unpacked.rglob("*")
    }

    assert {path for path in lost if not (built / "source" / path).is_dir()} == set()
    assert (unpacked / "src/minibroker/broker").readlink() == Path("../../broker")


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.timeout(900)
def test_an_unpacked_sdist_passes_its_tests(built: Path, tmp_path: Path) -> None:
    unpacked = unpacked_in(built)
    environment = Environment(tmp_path / "fresh")

    environment.install(f"{unpacked}[test]")

    command = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", FAST, *SDIST_TESTS)
    done = run(environment.bin / "python", *command, cwd=unpacked)
    assert re.search(r"^[1-9][0-9]+ passed\b(?!.*failed)", done.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.timeout(600)
def test_a_wheel_holds_every_module_and_nothing_else(built: Path) -> None:
    (wheel,) = built.glob("*.whl")

    names = zipfile.ZipFile(wheel).namelist()

    inside = {name for name in names if ".dist-info/" not in name}
    others = {
        "minibroker/py.typed",
        "minibroker/spark_jobs/Sending.java",
        "minibroker/broker/wings/looking/metrics.txt",
        "minibroker/metrics/dashboard.txt",
        *(f"minibroker/conformance/recorded/{name}.json.gz" for name in (*NAMES, "books")),
    }
    assert inside == modules_in_the_tree() | files_of_the_page() | others
    assert wheel.name == f"minibroker-{minibroker.__version__}-py3-none-any.whl"


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.timeout(600)
def test_installed_it_works_brings_no_pyspark_and_stays_under_70_mb(built: Path, tmp_path: Path) -> None:
    environment = Environment(tmp_path / "fresh")
    empty_bytes, empty_names = environment.size_bytes(), environment.names()

    environment.install(*built.glob("*.whl"))

    brought = environment.names() - empty_names
    assert "minibroker" in brought
    assert not brought & {"pyspark", "broker", "storage", "protocol", "tests"}
    assert environment.size_bytes() - empty_bytes < MOST_ADDED_BYTES
    assert (
        run(environment.bin / "minibroker", "--version", cwd=tmp_path)
        == f"minibroker {minibroker.__version__} (pure Python)\n"
    )
    assert "--partitions" in run(environment.bin / "minibroker", "topics", "create", "--help", cwd=tmp_path)
    program = "from minibroker import Broker\nwith Broker() as broker: print(broker.is_running)"
    assert run(environment.bin / "python", "-c", program, cwd=tmp_path) == "True\n"
