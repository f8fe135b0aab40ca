"""Output for people: rich's tables and colours on a terminal, the same text without them elsewhere.

Import it when there is something to print: rich takes longer to load than most commands to run. Lines are never
wrapped, and text from a broker or a file is never read as rich's markup, nor by the terminal: any client chooses its
client id, its group and its configs.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

ANY_WIDTH = 100_000  # of a pipe or file, which has no width
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")  # of one line


def visible(text: str) -> str:
    """The text with what a terminal would interpret escaped, as `consume` escapes it in records."""
    return CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, left: Sequence[str] = ()) -> None:
    """Print rows under a header, aligned to the right; the columns named in `left` to the left."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in columns:
        table.add_column(name, justify="left" if name in left else "right", overflow="fold")
    for row in rows:
        table.add_row(*(Text(visible(str(cell))) for cell in row))
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else ANY_WIDTH)
    console.print(table)


def print_line(text: str, style: str = "") -> None:
    """Print one line to standard output, in that style of rich where there are colours."""
    Console(file=sys.stdout).print(Text(visible(text), style), soft_wrap=True)


def complain(message: str, style: str = "red") -> None:
    """Print one line to standard error; what is no failure has no red."""
    line = Text.assemble(("minibroker:", style), " ", visible(message))
    Console(file=sys.stderr).print(line, soft_wrap=True)
