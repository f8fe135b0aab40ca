"""`minibroker console`: a web page of any Kafka cluster, served by a process beside the brokers.

This module reads the options; `minibroker.console` is imported once they are good, and needs the extra `console`.
"""

from __future__ import annotations

import os
import secrets
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from minibroker.cli.failures import EXIT_OK, CommandFailed
from minibroker.cli.options import Cluster
from minibroker.cli.parameters import on_cluster

EPILOG = """Examples:

minibroker console --bootstrap-server localhost:9092

minibroker console --listen 127.0.0.1:8080 --allow-changes

minibroker serve --console  (a broker and its console in one command)"""

DEFAULT_LISTEN = "127.0.0.1:8080"
TOKEN_BYTES = 18
OWNED_PREFIX = "minibroker-console-"
SHORTEST_TOKEN = 16  # characters
PORT_MAX = 65_535


@on_cluster
def console(
    cluster: Cluster,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where browsers find the page; port 0 takes a free one.")
    ] = DEFAULT_LISTEN,
    control: Annotated[
        Path | None,
        typer.Option(metavar="SOCKET", help="The control socket of that broker, a minibroker: shows what is inside."),
    ] = None,
    allow_changes: Annotated[
        bool, typer.Option("--allow-changes", help="Let the page create topics, produce, reset groups and the like.")
    ] = False,
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The token that changes need; made there if it is missing. Else a new one."),
    ] = None,
    host_name: Annotated[
        list[str] | None,
        typer.Option("--host-name", metavar="NAME", help="Another name that browsers use; may be repeated."),
    ] = None,
    parent_pid: Annotated[int | None, typer.Option(hidden=True)] = None,
    owned_folder: Annotated[Path | None, typer.Option(hidden=True)] = None,
) -> int:
    """Serve a web page of the cluster: topics, messages, groups with their lag, clients."""
    host, port = listen_address(listen)
    from minibroker.console.listening import listening
    from minibroker.console.options import ConsoleOptions, is_loopback

    token = None
    if token_file is not None:
        token = token_in(token_file)
    elif allow_changes or not is_loopback(host):
        token = secrets.token_urlsafe(TOKEN_BYTES)
    options = ConsoleOptions(cluster, host, port, control, allow_changes, token, tuple(host_name or ()))
    with ExitStack() as at_end:
        # Of the broker that started this, which may have been killed.
        if owned_folder is not None and owned_folder.name.startswith(OWNED_PREFIX):
            at_end.callback(shutil.rmtree, owned_folder, ignore_errors=True)
        listener = at_end.enter_context(listening(options))
        try:
            from minibroker.console.server import serve
        except ModuleNotFoundError as error:
            raise CommandFailed(
                f"the console needs {error.name}, which is not installed; run: pip install 'minibroker[console]'"
            ) from error
        serve(options, listener, parent_pid=parent_pid)
    return EXIT_OK


def listen_address(text: str) -> tuple[str, int]:
    """Read HOST:PORT; port 0 is any free one. Raises typer.BadParameter."""
    host, _, port = text.strip().rpartition(":")
    if not host or not port.isdecimal() or int(port) > PORT_MAX:
        raise typer.BadParameter(f"--listen {text!r} is not HOST:PORT, such as {DEFAULT_LISTEN}")
    return host.removeprefix("[").removesuffix("]"), int(port)


def token_in(path: Path) -> str:
    """The token in a file, which only its owner can read when it is made here. Raises CommandFailed, BadParameter."""
    try:
        if not path.exists():
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
                file.write(secrets.token_urlsafe(TOKEN_BYTES) + "\n")
        token = path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not ASCII"
        raise CommandFailed(f"cannot read --token-file {path}: {reason}; name another") from error
    if len(token) < SHORTEST_TOKEN or not token.isprintable() or " " in token:
        raise typer.BadParameter(
            f"--token-file {path} holds no token of {SHORTEST_TOKEN} characters or more; name a new file to make one"
        )
    return token
