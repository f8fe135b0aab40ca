"""The command line: one module per noun, imported when the words name it, and all of them for `--help`.

Every failure is one line on standard error, with the next step. Exit statuses: 0 done, 1 a broker refused or a file
or the network failed, 2 usage error, 128 plus the number of the signal that ended the command.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.exceptions import TyperException

import minibroker
from minibroker import patience
from minibroker.any_cluster.shortfalls import noting
from minibroker.cli.completion import OwnArguments, options_of, rejoin_words
from minibroker.cli.habits import HELP, VERSION, as_options, written_here
from minibroker.cli.options import show_help_if_alone
from minibroker.cli.signals import Interrupted
from minibroker.cli.terminal import complain
from minibroker.errors import EXIT_FAILED, EXIT_OK, EXIT_USAGE, BadValue, CommandFailed

EPILOG = """First steps:

minibroker serve --data-dir data  (a broker on 127.0.0.1:9092, until Ctrl-C)

minibroker topics create flights --partitions 3

minibroker topics list

Exit status: 0 done; 1 a broker refused, or a file or the network failed: one line gives the reason and the next \
step; 2 usage error"""

HELP_OPTION_NAMES = ["-h", "--help"]
EXTRA_ARGUMENTS = re.compile(r"Got unexpected extra argument.* \((?P<words>.*)\)")
NO_SUCH = re.compile(r"(?P<refusal>No such (?:command|option)[: ]+'?(?P<name>[^\s']+)'?)")
# Texts that may be empty: keys, formats and client ids are, and a job reads its arguments itself.
MAY_BE_EMPTY = {("key", "TEXT"), ("text_format", "FORMAT"), ("client_id", "ID"), ("arguments", "[OPTION]...")}
VALIDATION = "Value error, "  # pydantic's prefix, in typer's message about a value

# Programs of their own, which read their own arguments: minibroker/__main__.py starts them before it imports this.
PROGRAMS = {
    "serve": "Start a broker; `minibroker serve --help` shows its options.",
    "console": "Serve a web page of a cluster; `minibroker console --help` shows its options.",
    "demo": "Replay a year of flights through a broker and a Spark job, and check the result; "
    "see `minibroker demo --help`.",
    "conform": "Judge any broker by what Apache Kafka answers to the same requests; see `minibroker conform --help`.",
    "lab": "Break a broker under a program of yours, and grade the program; see `minibroker lab --help`.",
    "simulate": "Look for lost records in a simulated cluster; see `minibroker simulate --help`.",
}
COMMANDS = {  # and the module that each is in
    "produce": "produce",
    "consume": "consume",
    **dict.fromkeys(("producers", "offsets", "health", "log-dirs", "apis"), "cluster_commands"),
    "dump-log": "dump_log",
    "explain": "explain",
    "transcript": "transcript",
    "check": "check",
}
GROUPS = {  # of commands
    **{name: name for name in ("topics", "groups", "configs", "acls", "quotas", "transactions", "users")},
    **{name: name for name in ("metrics", "jobs", "cluster", "features")},
    "config": "config_lint",
}


def minibroker_command(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", "-V", help="Show the version and exit.")] = False,
) -> None:
    if version:
        from minibroker.protocol.form import form

        print(f"minibroker {minibroker.__version__} ({form()})")
        raise typer.Exit(EXIT_OK)
    show_help_if_alone(context)


def app_of(words: Sequence[str] = ()) -> typer.Typer:
    """The command line with only the command that the words begin with; with all of them if they begin with none.

    So a command imports the modules that it needs, and no other is made.
    """
    app = typer.Typer(
        help="A Kafka broker that installs with pip.",
        epilog=EPILOG,
        context_settings={"help_option_names": HELP_OPTION_NAMES},
        pretty_exceptions_enable=False,
    )
    app.callback(invoke_without_command=True)(minibroker_command)
    named = [each for each in words[:1] if each in COMMANDS or each in GROUPS]
    for name in () if named else PROGRAMS:
        add_program(app, name)
    for name in named or COMMANDS:
        if name in COMMANDS:
            found = import_module(f"minibroker.cli.{COMMANDS[name]}").app.registered_commands
            app.registered_commands += [each for each in found if each.name == name]
    for name in named or GROUPS:
        if name in GROUPS:
            app.add_typer(import_module(f"minibroker.cli.{GROUPS[name]}").app, name=name)
    return app


def add_program(app: typer.Typer, name: str) -> None:
    arguments = typer.Argument(hidden=True, autocompletion=options_of(name))

    def run(arguments: Any = None) -> None:
        raise CommandFailed(f"`{name}` must be the first argument; use `minibroker {name} ...`")

    run.__doc__ = PROGRAMS[name]
    run.__annotations__ = {"arguments": Annotated[list[str] | None, arguments]}
    settings = {"ignore_unknown_options": True}
    app.command(name, cls=OwnArguments, add_help_option=False, context_settings=settings)(run)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status. Raises KeyboardInterrupt at a Ctrl-C."""
    rejoin_words(os.environ)
    words = as_options(sys.argv[1:] if arguments is None else arguments, list(GROUPS))
    command: Any = typer.main.get_command(app_of(words))
    prepare(command)
    try:
        with noting(complain) as shortfalls, patience.limited():
            status = command.main(words, prog_name="minibroker", standalone_mode=False)
        return int(status or (EXIT_FAILED if shortfalls else EXIT_OK))
    except CommandFailed as failure:
        complain(str(failure))
        return EXIT_FAILED
    except TyperException as error:
        complain(explained(error))
        return EXIT_USAGE
    except Interrupted as interrupted:
        return interrupted.status


def prepare(command: Any) -> None:
    """Make a command show its help, and our errors about values, as users expect them.

    Python's types stay out of the help: `<bool>` of a flag, `<list[str]>` of an argument with a name.
    """
    context = typer.Context(command, help_option_names=HELP_OPTION_NAMES)
    params = command.get_params(context)  # --help among them
    for param in params:
        if param.param_type_name == "argument" or param.is_flag:
            param.display_type_rich = lambda ctx: None
    named = {each.name: label_of(each) for each in params if (each.name, each.metavar) not in MAY_BE_EMPTY}
    command.callback = with_usage_errors(command.callback, named)
    for inner in getattr(command, "commands", {}).values():
        prepare(inner)


def label_of(param: Any) -> str:
    return param.metavar.strip("[].") if param.param_type_name == "argument" and param.metavar else str(param.opts[0])


def with_usage_errors(function: Callable[..., Any], named: Mapping[str, str]) -> Callable[..., Any]:
    """The command with typer's error in place of a BadValue: typer adds the command to it.

    A value that is empty is one, for the parameters that are `named`.
    """

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        try:
            for name, value in options.items():
                if name in named and ("" in value if isinstance(value, list) else value == ""):
                    raise BadValue(
                        f"{named[name]} is empty; write a name" + ", or leave it out" * (named[name][0] == "-")
                    )
            return function(*arguments, **options)
        except BadValue as error:
            raise typer.BadParameter(str(error)) from error

    return call


def explained(error: TyperException) -> str:
    """A usage error in one line, with the command that shows the help."""
    from minibroker.protocol.guesses import closest, with_guess  # which most commands do without

    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "minibroker"
    message = " ".join(error.format_message().split()).rstrip(".").replace(VALIDATION, "")
    message = with_guess(in_our_words(message, error))
    if context is not None and (extra := EXTRA_ARGUMENTS.search(message)):
        taken = [each.metavar or each.name for each in context.command.params if each.param_type_name == "argument"]
        message = f"one {taken[-1]} at a time" if taken else "it takes no arguments"
        message += f"; leave out {extra['words']}"
    unknown = NO_SUCH.match(message)
    message = message if unknown is None else unknown["refusal"]  # typer's own guesses stand behind it
    habit = written_here(command.rpartition(" ")[2], getattr(error, "option_name", ""), message)
    if habit is not None:
        return f"{message}; {habit}; see `{command} --help`"
    if unknown is not None and context is not None:
        meant = closest(unknown["name"], names_in(context))
        message += "" if meant is None else f"; did you mean {meant}?"
    return f"{message} See `{command} --help`" if message.endswith("?") else f"{message}; see `{command} --help`"


def names_in(context: typer.Context) -> list[str]:
    """The options and the commands that may be written there."""
    command: Any = context.command
    names = [name for each in command.get_params(context) for name in (*each.opts, *each.secondary_opts)]
    if context.parent is None:
        names += [HELP, VERSION, *PROGRAMS, *COMMANDS, *GROUPS]
    return names + list(getattr(command, "commands", {}))


def in_our_words(message: str, error: TyperException) -> str:
    """The message without pydantic's words for a value that typer has it check."""
    errors = getattr(error.__cause__, "errors", None)
    for found in errors() if errors is not None else ():
        value, limits = found["input"], found.get("ctx", {})
        ours = {
            "int_parsing": f"{value!r} is not a whole number",
            "float_parsing": f"{value!r} is not a number",
            "greater_than_equal": f"{value} is below {limits.get('ge')}",
            "less_than_equal": f"{value} is above {limits.get('le')}",
        }.get(found["type"])
        if ours is not None:
            message = message.replace(found["msg"], ours)
    return message
