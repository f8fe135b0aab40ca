"""Reads the command lines of programs that argparse describes: `serve`, `console` and the demo."""

from __future__ import annotations

import argparse
import re
import sys
from typing import NoReturn

from minibroker.protocol.guesses import closest, with_guess

EXIT_USAGE = 2
OPTION = re.compile(r"(?<![\w-])--[\w-]+")
NOT_OF_TYPE = re.compile(r"invalid int value: ('[^']*')")
UNKNOWN = "unrecognized arguments: "


class Arguments(argparse.ArgumentParser):
    """Refuses a command line in one line, without the usage, with the option or the value that was probably meant."""

    def error(self, message: str) -> NoReturn:
        refuse(self, message)


def refuse(parser: argparse.ArgumentParser, message: str) -> NoReturn:
    """Print that error, and end with the status of a usage error."""
    message = with_guess(NOT_OF_TYPE.sub(r"\1 is not a whole number", message))
    options = OPTION.findall(parser.format_usage())
    for word in OPTION.findall(message) if message.startswith(UNKNOWN) else ():
        if (meant := closest(word, options)) is not None:
            message = f"{message}; did you mean {meant}?"
            break
    see = " See" if message.endswith("?") else "; see"
    print(f"minibroker: {message}{see} `{parser.prog} --help`", file=sys.stderr)
    raise SystemExit(EXIT_USAGE)
