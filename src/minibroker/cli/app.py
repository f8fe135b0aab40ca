"""The command line: one noun a module, which imports what it needs once it is used, so that `--help` stays quick.

Whatever goes wrong is one line on standard error, with what to do about it. Exit statuses: 0 done, 1 the broker, a
file or the network said no, 2 the command was not understood, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.exceptions import TyperException

import minibroker
from minibroker.cli import (
    cluster_commands,
    config_lint,
    configs,
    consume,
    dump_log,
    groups,
    produce,
    topics,
    transcript,
)
from minibroker.cli.completion import ServeCommand, serve_options
from minibroker.cli.failures import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE, CommandFailed
from minibroker.cli.options import show_help_if_alone

EPILOG = """First steps:

minibroker serve --data-dir data  (a broker on 127.0.0.1:9092, until Ctrl-C)

minibroker topics create flights --partitions 3

minibroker topics list

Exit status: 0 done; 1 the broker, a file or the network said no, and one line says why and what to do; \
2 the command was not understood"""

HELP_OPTION_NAMES = ["-h", "--help"]
VALIDATION = "Value error, "  # pydantic's word before what typer says of a value

app = typer.Typer(
    help="A Kafka broker that installs with pip.",
    epilog=EPILOG,
    context_settings={"help_option_names": HELP_OPTION_NAMES},
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def minibroker_command(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    if version:
        print(f"minibroker {minibroker.__version__}")
        raise typer.Exit(EXIT_OK)
    show_help_if_alone(context)


# The broker reads its own arguments: minibroker/__main__.py hands them over before anything here is imported.
@app.command("serve", cls=ServeCommand, add_help_option=False, context_settings={"ignore_unknown_options": True})
def serve(
    arguments: Annotated[list[str] | None, typer.Argument(hidden=True, autocompletion=serve_options)] = None,
) -> None:
    """Start a broker; `minibroker serve --help` shows its options."""
    raise CommandFailed("nothing may come before `serve`; use `minibroker serve ...`")


app.add_typer(topics.app, name="topics")
app.command("produce", epilog=produce.EPILOG)(produce.produce)
app.command("consume", epilog=consume.EPILOG)(consume.consume)
app.add_typer(groups.app, name="groups")
app.add_typer(configs.app, name="configs")
app.command("offsets", epilog="Example: minibroker offsets flights --at @2013-01-01T06:00:00Z")(
    cluster_commands.offsets
)
app.command("health", epilog=cluster_commands.HEALTH_EPILOG)(cluster_commands.health)
app.command("apis", epilog="Example: minibroker apis -o json")(cluster_commands.apis)
app.add_typer(config_lint.app, name="config")
app.command("dump-log", epilog=dump_log.EPILOG)(dump_log.dump_log)
app.command("transcript", epilog=transcript.EPILOG)(transcript.transcript)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status."""
    command = typer.main.get_command(app)
    leave_types_out(command)
    try:
        status = command.main(arguments, prog_name="minibroker", standalone_mode=False)
        sys.stdout.flush()
        return EXIT_OK if status is None else int(status)
    except CommandFailed as failure:
        complain(str(failure))
        return EXIT_FAILED
    except TyperException as error:
        complain(explained(error))
        return EXIT_USAGE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough. Python would try to flush it once more, and say that it cannot.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED


def leave_types_out(command: Any) -> None:
    """Have the help not name the types of Python: `<bool>` of a flag, `<list[str]>` of an argument with a name."""
    context = typer.Context(command, help_option_names=HELP_OPTION_NAMES)
    for param in command.get_params(context):  # --help among them
        if param.param_type_name == "argument" or param.is_flag:
            param.display_type_rich = lambda ctx: None
    for inner in getattr(command, "commands", {}).values():
        leave_types_out(inner)


def complain(message: str) -> None:
    from minibroker.cli import terminal

    terminal.complain(message)


def explained(error: TyperException) -> str:
    """A mistake in the command, in one line with the way to the help."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "minibroker"
    said = " ".join(error.format_message().split()).rstrip(".?").replace(VALIDATION, "")
    return f"{said}; see `{command} --help`"
