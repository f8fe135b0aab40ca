"""`minibroker console`: a web page of any Kafka cluster, served by a process beside the brokers.

It reads its own arguments, as `serve` does: typer would take a fifth of the process's memory and half of its start.
Its socket listens before anything heavy is imported.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import socket
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from minibroker.any_cluster.bootstrap import (
    BOOTSTRAP_VARIABLE,
    DEFAULT_CLUSTER,
    DEFAULT_PORT,
    cluster_of,
    parse_bootstrap,
    parse_setting,
)
from minibroker.client.address import Address
from minibroker.client.local_names import is_loopback
from minibroker.console.options import ConsoleOptions
from minibroker.errors import EXIT_FAILED, EXIT_OK, BadValue, CommandFailed
from minibroker.protocol.arguments import Arguments
from minibroker.protocol.text import reason_of
from minibroker.registry_client import SchemaRegistry

EPILOG = """\
examples:
  minibroker console --bootstrap-server localhost:9092
  minibroker console --listen 127.0.0.1:8080 --allow-changes
  minibroker serve --console      a broker and its console in one command

exit status: 0 stopped in order, 1 it cannot start, 2 the command is invalid"""
DEFAULT_LISTEN = "127.0.0.1:8080"
BACKLOG = 100
TOKEN_BYTES = 18
SHORTEST_TOKEN = 16  # characters
OWNED_PREFIX = "minibroker-console-"
PORT_MAX = 65_535


def parser() -> Arguments:
    made = Arguments(
        prog="minibroker console",
        description="Serve a web page of a cluster: topics, messages, groups with their lag, clients, transactions.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument(
        *("--bootstrap-server", "-b"),
        metavar="HOST:PORT",
        help=f"a broker of the cluster, or several separated by commas, port {DEFAULT_PORT} unless given; "
        f"else the variable {BOOTSTRAP_VARIABLE}, else {DEFAULT_CLUSTER}",
    )
    made.add_argument(
        *("-X",),
        metavar="KEY=VALUE",
        dest="properties",
        action="append",
        default=[],
        help="a client property under Kafka's name, such as security.protocol=SSL; may be repeated",
    )
    made.add_argument("--command-config", metavar="FILE", type=Path, help="read client properties from this file")
    made.add_argument(
        "--listen",
        metavar="HOST:PORT",
        default=DEFAULT_LISTEN,
        help=f"where browsers find the page; port 0 takes a free one (default {DEFAULT_LISTEN})",
    )
    made.add_argument(
        "--control",
        metavar="SOCKET",
        type=Path,
        dest="controls",
        action="append",
        default=[],
        help="the control socket of that broker, a minibroker: shows what goes on inside. Repeat it for the brokers of "
        "a cluster: one of those that run is shown",
    )
    made.add_argument(
        "--schema-registry",
        metavar="URL",
        help="decode messages of serializers by this schema registry, such as http://127.0.0.1:8081",
    )
    made.add_argument(
        "--allow-changes",
        action="store_true",
        help="let the page create topics, produce, reset groups and the like, with the token in the printed address",
    )
    made.add_argument(
        "--token-file", metavar="FILE", type=Path, help="the token; made there if it is missing (default a new one)"
    )
    made.add_argument(
        "--host-name",
        metavar="NAME",
        action="append",
        default=[],
        help="another name that browsers use for this machine; may be repeated",
    )
    made.add_argument("--parent-pid", metavar="PID", type=int, help=argparse.SUPPRESS)
    made.add_argument("--owned-folder", metavar="DIR", type=Path, help=argparse.SUPPRESS)
    return made


def main(arguments: Sequence[str]) -> int:
    """Serve until a signal; return the exit status."""
    made = parser()
    given = made.parse_args(list(arguments))
    try:
        serve(given)
    except BadValue as error:
        made.error(str(error))
    except CommandFailed as failure:
        print(f"minibroker: {failure}", file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:  # before signals are handled: there is nothing to stop yet
        pass
    return EXIT_OK


def serve(given: argparse.Namespace) -> None:
    """Raises CommandFailed, and BadValue for an option that makes no sense."""
    options = options_of(given)
    with ExitStack() as at_end:
        if given.owned_folder is not None and given.owned_folder.name.startswith(OWNED_PREFIX):
            at_end.callback(remove_after, given.parent_pid, given.owned_folder)
        listener = at_end.enter_context(listening(options))
        try:
            from minibroker.console.server import serve as serve_page
        except ModuleNotFoundError as error:
            raise CommandFailed(
                f"the console needs {error.name}, which is not installed; run: pip install hypercorn starlette"
            ) from error
        serve_page(options, listener, parent_pid=given.parent_pid)


def remove_after(parent_pid: int | None, folder: Path) -> None:
    """Remove the folder of a broker that was killed; one that is there needs it until its own end."""
    if os.getppid() != parent_pid:
        shutil.rmtree(folder, ignore_errors=True)


def options_of(given: argparse.Namespace) -> ConsoleOptions:
    """Raises CommandFailed, BadValue."""
    host, port = listen_address(given.listen)
    bootstrap = None if given.bootstrap_server is None else parse_bootstrap(given.bootstrap_server)
    cluster = cluster_of(bootstrap, [parse_setting(each) for each in given.properties], given.command_config)
    token = None
    if given.token_file is not None:
        token = token_in(given.token_file)
    elif given.allow_changes or not is_loopback(host):
        token = secrets.token_urlsafe(TOKEN_BYTES)
    return ConsoleOptions(
        *(cluster, host, port, tuple(given.controls), given.allow_changes, token, tuple(given.host_name)),
        schema_registry=None if given.schema_registry is None else SchemaRegistry(given.schema_registry),
    )


def listen_address(text: str) -> tuple[str, int]:
    """Read HOST:PORT; port 0 is any free one. Raises BadValue."""
    host, _, port = text.strip().rpartition(":")
    if not host or not port.isdecimal() or int(port) > PORT_MAX:
        raise BadValue(f"--listen {text!r} is not HOST:PORT, such as {DEFAULT_LISTEN}")
    return host.removeprefix("[").removesuffix("]"), int(port)


def token_in(path: Path) -> str:
    """The token in a file, which only its owner can read when it is made here. Raises CommandFailed, BadValue."""
    try:
        if not path.exists():
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
                file.write(secrets.token_urlsafe(TOKEN_BYTES) + "\n")
        token = path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandFailed(f"cannot read --token-file {path}: {reason_of(error)}; name another") from error
    if len(token) < SHORTEST_TOKEN or not token.isprintable() or " " in token:
        raise BadValue(
            f"--token-file {path} holds no token of {SHORTEST_TOKEN} characters or more; name a new file to make one"
        )
    return token


def listening(options: ConsoleOptions) -> socket.socket:
    """A socket that listens there. Raises CommandFailed."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            options.host, options.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        raise CommandFailed(
            f"cannot listen on {Address(options.host, options.port)}: {error.strerror}; choose another address with "
            "--listen HOST:PORT (port 0 takes a free one)"
        ) from error
    return listener
