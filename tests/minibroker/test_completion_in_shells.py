"""Tab in bash, zsh and fish, pressed in the shell itself: what the shell makes of the words is part of it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from typer.completion import get_completion_script  # type: ignore[attr-defined]

from minibroker.cli.completion import rejoin_words
from tests.integration.drivers.line_protocol import Deadline
from tests.minibroker.conftest import CommandLine

WIDE = struct.pack("HHHH", 24, 400, 0, 0)  # rows and columns: a line that wraps would be hard to find
ANSWER_SECONDS = 60
START_OF_LINE = "\x01"  # Ctrl-A, with readline and with zle
ESCAPE_SEQUENCE = re.compile(r"\x1b\[[0-9;?=>]*[a-zA-Z]|\x1b[=>]|\x1b\][^\x07]*\x07")
INTERACTIVE = {
    "bash": ["bash", "--noprofile", "--norc", "-i"],
    "zsh": ["zsh", "-f", "-i"],
}
PREPARED = {"bash": "source {}", "zsh": "autoload -Uz compinit && compinit -u -D && source {}"}
PROMPT = "ready> "  # what is typed before the shell shows it, the terminal echoes as it stands


@pytest.fixture
def script(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The completion script of the shell in `shell`, as `minibroker --install-completion` writes it."""
    shell = request.getfixturevalue("shell")
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed: apt install {shell}")
    path = tmp_path / f"minibroker.{shell}"
    path.write_text(get_completion_script(prog_name="minibroker", complete_var="_MINIBROKER_COMPLETE", shell=shell))
    return path


def with_our_command() -> dict[str, str]:
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "TERM": "xterm"}


def completed(shell: str, script: Path, typed: str) -> str:
    """The line after Tab, which the shell itself prints by `echo`."""
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, WIDE)
    with subprocess.Popen(
        INTERACTIVE[shell],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env=with_our_command(),
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    ) as process:
        os.close(terminal)
        try:
            os.write(controller, f"{PREPARED[shell].format(script)}; PS1='rea''dy> '\n".encode())
            read_until(controller, rf"^{PROMPT}\Z")
            os.write(controller, f"{typed}\t{START_OF_LINE}echo \n".encode())
            return read_until(controller, r"^minibroker .*$(?=\n)")
        finally:
            process.kill()
            os.close(controller)


def read_until(terminal: int, line: str) -> str:
    """The first match in the output."""
    seen, deadline = "", Deadline(ANSWER_SECONDS)
    while True:
        if not select.select([terminal], [], [], deadline.seconds_left(f"{line} in {seen!r}"))[0]:
            continue
        seen += os.read(terminal, 4096).decode(errors="replace")
        text = ESCAPE_SEQUENCE.sub("", seen).replace("\r", "\n")
        if found := re.search(line, text, re.MULTILINE):
            return found[0].rstrip()


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_tab_after_an_address_completes_topics_of_its_cluster(cli: CommandLine, shell: str, script: Path) -> None:
    topic = cli.topic()

    for address in (f"-b {cli.bootstrap}", f"--bootstrap-server={cli.bootstrap}", f"-X client.id=x -b {cli.bootstrap}"):
        typed = f"minibroker consume {address} {topic[:-3]}"
        assert completed(shell, script, typed) == f"minibroker consume {address} {topic}"


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.parametrize("shell", ["fish"])
def test_tab_in_fish_completes_topics_of_the_cluster(cli: CommandLine, shell: str, script: Path) -> None:
    topic = cli.topic()
    line = f"minibroker consume -b {cli.bootstrap} {topic[:-3]}"

    done = subprocess.run(
        [shell, "--no-config", "-c", f"source {script}; complete --do-complete '{line}'"],
        env=with_our_command(),
        capture_output=True,
        text=True,
        check=True,
    )

    assert (done.stdout.split(), done.stderr) == ([topic], "")


@pytest.mark.parametrize(
    ("words", "number", "joined", "joined_number"),
    [
        ("m consume -b h : 9092 ", "6", "m consume -b h:9092 ", "4"),
        ("m\nconsume\n-b\nh\n:\n90", "5", "m\nconsume\n-b\nh:90", "3"),
        ("m consume -b a : 1,b : 2 t", "8", "m consume -b a:1,b:2 t", "4"),
        ("m consume -b [ :: 1] : 9092 t", "8", "m consume -b [::1]:9092 t", "4"),
        ("m topics list -X a = b -", "7", "m topics list -X a=b -", "5"),
        ("m consume", "2", "m consume", "2"),
    ],
)
def test_words_that_bash_divides_are_joined_again(words: str, number: str, joined: str, joined_number: str) -> None:
    environment = {"COMP_WORDS": words, "COMP_CWORD": number}

    rejoin_words(environment)

    assert environment == {"COMP_WORDS": joined, "COMP_CWORD": joined_number}


def test_outside_of_bash_nothing_is_joined() -> None:
    environment = {"HOME": "/root"}

    rejoin_words(environment)

    assert environment == {"HOME": "/root"}
