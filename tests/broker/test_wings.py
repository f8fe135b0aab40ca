"""A broker without a wing: its folder and its lines in app.py are gone, and the books of the core pass."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sources import ROOT

# The books of the core, without those of wings and the conversations that ask a wing, or list all APIs.
BOOKS = (
    "(fetching or producing or sessions or topics or groups or offsets or followers or epochs or transactions)"
    " and not (authorization or delegation or turned or level or becomes or reassign"
    " or consumer_groups or share_group or beside or differences or faults)"
)
# The watch for followers that lag.
BESIDE = {"several": " and not (leaves or stays or restart)"}
# The folder of each wing in broker/wings/, with the name by which app.WINGS has it.
WINGS = {
    "quotas": "QuotaWing",
    "security/acls": "AclWing",
    "security": "SecurityWing",
    "looking": "LookingWing",
    "testing": "FaultWing|ResetWing|TranscriptWing",
    "consumer": "ConsumerWing",
    "share": "ShareWing",
    "several": "SeveralWing",
    "zookeeper_nodes": "ZooKeeperWing",
    "registry": "RegistryWing",
    "images": "Images",  # which serve asks before there is a broker
}


def copy_without(folder: str, directory: Path) -> Path:
    """Copy the package without a wing; return where Python finds it."""
    shutil.copytree(ROOT / "broker", directory / "broker", ignore=shutil.ignore_patterns("__pycache__"))
    package = directory / "src" / "minibroker"
    package.mkdir(parents=True)
    for path in (ROOT / "src" / "minibroker").iterdir():
        target = directory / "broker" if path.name == "broker" else path.resolve()
        (package / path.name).symlink_to(target)
    shutil.rmtree(directory / "broker" / "wings" / folder)
    app = directory / "broker" / "app.py"
    names = [name for each, name in WINGS.items() if each == folder or each.startswith(f"{folder}/")]
    kept = [line for line in app.read_text().splitlines() if not re.search(rf"\b({'|'.join(names)})\b", line)]
    app.write_text("\n".join(kept) + "\n")
    return package.parent


@pytest.mark.pure
@pytest.mark.slow
@pytest.mark.parametrize("folder", WINGS)
def test_a_broker_without_a_wing_passes_the_books_of_the_core(folder: str, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(copy_without(folder, tmp_path)), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/broker/test_conversations.py"]

    done = subprocess.run(
        [*command, "-k", BOOKS + BESIDE.get(folder, "")],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stdout[-5000:]
