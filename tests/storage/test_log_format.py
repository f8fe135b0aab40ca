"""docs/log_format.md shows the bytes that are really written, and names every file that is."""

from __future__ import annotations

import re
from pathlib import Path

from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch
from minibroker.storage.config import LogConfig
from tests.storage.logs import end_transaction, open_log, send

DOCUMENT = Path(__file__).parents[2] / "docs" / "log_format.md"
_FILE = re.compile(r"^`([^`\n]+)`\n\n```\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_BYTES = re.compile(r"(?:[0-9a-f]{2} {1,2})*[0-9a-f]{2}(?= |$)")


def documented_files() -> dict[str, bytes]:
    """Return the files of the example: on each line the bytes come first, then words about them."""
    found = {}
    for name, block in _FILE.findall(DOCUMENT.read_text().split("## Example", 1)[1]):
        lines = (_BYTES.match(line) for line in block.splitlines())
        found[name] = b"".join(bytes.fromhex(line[0]) for line in lines if line is not None)
    return found


def test_the_documented_example_is_written_to_the_byte(tmp_path: Path) -> None:
    directory = tmp_path / "orders-0"
    log = open_log(directory, LogConfig(index_interval_bytes=0))
    at = 1_700_000_000_000
    two = [Record(0, at, b"k", b"one"), Record(1, at + 5, None, b"two", (("h", b"x"),))]
    one = [Record(0, at + 10, b"k", b"three")]

    send(log, build_batch(two, producer_id=7, producer_epoch=0, base_sequence=0))
    send(log, build_batch(one, producer_id=7, producer_epoch=0, base_sequence=2, is_transactional=True))
    end_transaction(log, 7, is_commit=False)
    log.close()

    written = {path.name: path.read_bytes() for path in directory.iterdir()}
    assert documented_files() == written
