"""The command line: one noun a module, loaded when it is used, so that `--help` stays quick.

Exit statuses: 0 done, 1 the broker or a file said no, 2 the command was not understood.
"""

from __future__ import annotations

import sys

import typer

from minibroker.cli import dump_log, topics

app = typer.Typer(
    name="minibroker",
    help="A Kafka broker that installs with pip.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)
app.add_typer(topics.app, name="topics")
app.command("dump-log")(dump_log.dump_log)


@app.command(
    "serve",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
)
def serve(context: typer.Context) -> None:
    """Start a broker (its own options: minibroker serve --help)."""
    # The real door is minibroker/__main__.py, which never gets here: this entry is for the list of commands.
    raise typer.Exit(2)


def main() -> int:
    """Run the command line; the exit status."""
    from minibroker.cli.failures import CommandFailed

    try:
        app()
    except CommandFailed as failure:
        print(f"minibroker: {failure}", file=sys.stderr)
        return 1
    return 0
