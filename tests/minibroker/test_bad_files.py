"""Every command that reads a file, with files that are damaged, of another format, or cannot be read.

None ends with a traceback: a line names the file, and the line where it has lines.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from minibroker import Broker
from tests.minibroker.command_sessions import run

FILES = {
    "empty": b"",
    "word": b"hello\n",
    "semicolons": b"orders;0;1\n",
    "nul": b"orders,0,1\n\0\0,\0\n",
    "latin": b"orders,0,1\n\xe9t\xe9,0,1\n",
    "bom": b"\xef\xbb\xbforders,0,1\r\n",
    "utf16": "orders,0,1\n".encode("utf-16"),
    "cut off": b'{"value": "a"',
    "open quote": b'"orders,0,1\norders,0,1\n',
    "escape": b"a=\\u12\n",
    "long": b"9" * 5000 + b"," + b"9" * 5000 + b"," + b"9" * 5000,
    "deep": b"[" * 400_000,
}
COMMANDS = [
    "groups reset billing --from-file {}",
    "topics list --command-config {}",
    "produce orders --file {}",
    "produce orders --json --file {}",
    "produce orders --length-prefixed --file {}",
    "produce orders --value-encoding base64 --file {}",
    "produce orders {}",
    "config lint {}",
    "check {}",
    "transcript {}",
    "dump-log {}",
    "jobs checkpoint {}",
    "users add ann --password-file {}",
    "topics list -X security.protocol=SSL -X ssl.truststore.location={}",
    "topics list -X security.protocol=SSL -X ssl.keystore.location={}",
]


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with Broker() as broker:
        broker.create_topic("orders")
        yield broker.bootstrap_servers


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.sample(of=lambda command: not command.startswith("produce") or "--json" in command)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_that_cannot_be_used_is_an_error_in_a_line(command: str, bootstrap: str, tmp_path: Path) -> None:
    for name, data in FILES.items():
        (tmp_path / name.replace(" ", "-")).write_bytes(data)
    (tmp_path / "folder").mkdir()
    (tmp_path / "forbidden").write_bytes(b"orders,0,1\n")
    (tmp_path / "forbidden").chmod(0)
    wrong = []
    for path in (*sorted(tmp_path.iterdir()), tmp_path / "absent"):
        words = command.format(path).split()
        asks = words[0] not in ("config", "check", "transcript", "dump-log")
        try:
            status, out, err = run([*words, *(["-b", bootstrap] if asks else [])], b"")
        except Exception as error:
            wrong.append(f"{command.format(path.name)}: {error!r}")
            continue
        is_told = status == 0 or err.strip() or out.strip()
        cannot_be_read = path.name in ("absent", "folder", *(["forbidden"] if os.geteuid() else []))
        if not is_told or "Traceback" in err or (cannot_be_read and status == 0):
            wrong.append(f"{command.format(path.name)}: {status} {out[:200]}{err[:500]}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.parametrize("data", [b"orders,0,1\nhello\n", b"orders,0,1\norders;0;1\n", b"orders,0,1\n\0\0,\0\n"])
def test_the_line_of_a_plan_is_named(data: bytes, bootstrap: str, tmp_path: Path) -> None:
    (tmp_path / "plan").write_bytes(data)

    status, _, err = run(["groups", "reset", "billing", "--from-file", str(tmp_path / "plan"), "-b", bootstrap], b"")

    assert status == 1
    assert "plan line 2: " in err
