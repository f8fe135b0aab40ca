"""Plants a change of the source in this process, before the modules are imported: an old rule of Kafka's history, or a
mutant. Each is a TOML file of a clone, in tests/simulation/.

    story = "what was wrong, and how it was found"
    brokers = 3
    [[change]]
    file = "broker/replica/following.py"
    text = '''what the file has once'''
    becomes = '''what it has then'''
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tests" / "simulation"


class PlantError(Exception):
    """A change cannot be planted; the message says what to do."""


class ChangedSource(SourceFileLoader):
    """Loads a module from other text than its file has."""

    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__(name, path)
        self._text = text

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._text, self.path, "exec")


class Planter(MetaPathFinder):
    """Finds the modules that are changed."""

    def __init__(self, texts: dict[Path, str]) -> None:
        self._texts = texts

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if not name.startswith("minibroker."):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.origin is None:
            return None
        text = self._texts.get(Path(spec.origin).resolve())
        if text is not None:
            spec.loader = ChangedSource(name, spec.origin, text)
        return spec


def names_in(kind: str) -> list[str]:
    """The names of the changes of a kind, `history` or `mutants`."""
    return sorted(path.stem for path in (FOLDER / kind).glob("*.toml"))


def plant(kind: str, name: str) -> dict[str, Any]:
    """Have modules be imported with the change; return what the file says of it. Raises PlantError."""
    path = FOLDER / kind / f"{name}.toml"
    if not path.is_file():
        known = ", ".join(map(repr, names_in(kind)))
        raise PlantError(
            f"invalid choice: {name!r} (choose from {known})"
            if known
            else f"{path.parent} is not there: planting works in a clone"
        )
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    texts: dict[Path, str] = {}
    for change in document["change"]:
        file = ROOT / change["file"]
        text = texts.get(file) or file.read_text(encoding="utf-8")
        if text.count(change["text"]) != 1:
            raise PlantError(f"{path}: {change['file']} has the text {text.count(change['text'])} times, not once")
        texts[file] = text.replace(change["text"], change["becomes"])
    loaded = [
        each for each, module in sys.modules.items() if Path(getattr(module, "__file__", "") or "").resolve() in texts
    ]
    if loaded:
        raise PlantError(f"{', '.join(loaded)} is imported already")
    sys.meta_path.insert(0, Planter(texts))
    return document
