"""`minibroker users ...`: list, add and remove the users that log in by SCRAM, on minibroker or any Apache Kafka from
2.7 on; or in the data directory of a broker that is not running, which needs a first user.

This module reads arguments and passwords, and prints; `user_admin` asks the broker. A password is never an argument:
other users of the machine see those.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from minibroker.admin.users import chosen_mechanisms
from minibroker.any_cluster.bootstrap import Cluster
from minibroker.any_cluster.user_admin import credentials
from minibroker.cli.options import noun
from minibroker.cli.parameters import IfExistsOption, OutputOption, changing_cluster, on_cluster
from minibroker.cli.shown import Shown, results, table
from minibroker.errors import EXIT_OK, BadValue, CommandFailed
from minibroker.protocol.text import reason_of

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MIN_ITERATIONS, DEFAULT_ITERATIONS, MAX_ITERATIONS = 4096, 4096, 16_384
GENERATED_BYTES = 18
STANDARD_INPUT = "-"
BYTE_ORDER_MARK = "\ufeff"  # editors of Windows write it

UsersArgument = Annotated[list[str], typer.Argument(metavar="USER", show_default=False)]
DataDirOption = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        help="Instead of asking a broker: the data directory of a broker that is not running.",
        show_default=False,
    ),
]
MechanismsOption = Annotated[
    list[str] | None,
    typer.Option("--mechanism", "-m", metavar="NAME", help=f"Only for {' or '.join(MECHANISMS)}; may be repeated."),
]

app = noun(help="List, add and remove the users that log in by SCRAM.")


@app.command("list", epilog="Example: minibroker users list -o json")
@on_cluster
def list_users(
    cluster: Cluster,
    data_dir: DataDirOption = None,
) -> Shown:
    """List users with their mechanisms and iterations."""
    with credentials(cluster, data_dir) as stored:
        listed = stored.users()
    none = "no users yet; add one with `minibroker users add USER`"
    return table(listed, ("<USER", "<MECHANISM", "ITERATIONS"), without=none)


@app.command(
    "add",
    epilog="""Examples:

minibroker users add alice  (asks for the password)

minibroker users add alice --generate

minibroker users add admin --password-file secret --data-dir data  (before the broker's first start)""",
)
@changing_cluster
def add_user(
    user: Annotated[str, typer.Argument(metavar="USER", show_default=False)],
    cluster: Cluster,
    password_file: Annotated[
        Path | None,
        typer.Option(
            "--password-file",
            metavar="FILE",
            help="Read the password from the first line of this file; - for standard input.",
            show_default=False,
        ),
    ] = None,
    generate: Annotated[
        bool, typer.Option("--generate", help="Make up a password, and print it: it is shown this once.")
    ] = False,
    iterations: Annotated[
        int,
        typer.Option("--iterations", metavar="N", min=MIN_ITERATIONS, max=MAX_ITERATIONS, help="Rounds of hashing."),
    ] = DEFAULT_ITERATIONS,
    mechanisms: MechanismsOption = None,
    data_dir: DataDirOption = None,
    output: OutputOption = "text",
) -> int:
    """Add a user, or change its password; for both mechanisms unless one is named."""
    if generate and password_file is not None:
        raise BadValue("--generate and --password-file exclude each other")
    chosen = chosen_mechanisms(mechanisms)
    password = new_password() if generate else read_password(user, password_file)
    with credentials(cluster, data_dir) as stored:
        outcomes = stored.add(user, password, mechanisms=chosen, iterations=iterations)
    status = results(outcomes).print(output)
    if generate and status == EXIT_OK:
        print(password, file=sys.stderr if output == "json" else sys.stdout)
    return status


@app.command("remove", epilog="Example: minibroker users remove alice")
@changing_cluster
def remove_users(
    users: UsersArgument,
    cluster: Cluster,
    mechanisms: MechanismsOption = None,
    if_exists: IfExistsOption = False,
    data_dir: DataDirOption = None,
) -> Shown:
    """Remove users, or their passwords for one mechanism. Connections that are open stay open."""
    chosen = chosen_mechanisms(mechanisms)
    with credentials(cluster, data_dir) as stored:
        outcomes = stored.remove(users, mechanisms=chosen, may_be_absent=if_exists)
    return results(outcomes)


def new_password() -> str:
    import secrets

    return secrets.token_urlsafe(GENERATED_BYTES)


def read_password(user: str, file: Path | None) -> str:
    """Read the password of a user from a file, or ask for it twice. Raises CommandFailed."""
    if file is None and not sys.stdin.isatty():
        raise CommandFailed(
            "cannot ask for the password without a terminal; name a file with --password-file, or use --generate"
        )
    if file is None:
        return asked_password(user)
    try:
        with sys.stdin if str(file) == STANDARD_INPUT else file.open(encoding="utf-8") as lines:
            password = lines.readline().rstrip("\r\n").removeprefix(BYTE_ORDER_MARK)
    except (OSError, UnicodeDecodeError) as error:
        raise CommandFailed(f"cannot read {file}: {reason_of(error)}; name a text file with --password-file") from None
    if not password:
        raise CommandFailed(f"the first line of {file} is empty; write the password there")
    return password


def asked_password(user: str) -> str:
    """Ask without an echo, twice. Raises CommandFailed."""
    from getpass import getpass

    password = getpass(f"password of {user}: ")
    if not password:
        raise CommandFailed("a password must not be empty")
    if getpass("once more: ") != password:
        raise CommandFailed("the passwords differ; try again")
    return password
