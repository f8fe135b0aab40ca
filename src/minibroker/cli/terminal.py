"""Output for people: rich's tables and colours on a terminal, the same text without them elsewhere.

rich is imported when there is something to print: that takes longer than most commands. Lines are never wrapped,
and text from a broker or a file is never read as rich's markup, nor by the terminal: any client chooses its
client id, its group and its configs.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence

ANY_WIDTH = 100_000  # of a pipe or file, which has no width
NARROWEST = 24  # columns of a long name that is wrapped
GAP = 2
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")  # of one line


def visible(text: str) -> str:
    """The text with what a terminal would interpret escaped, as `consume` escapes it in records."""
    return CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, left: Sequence[str] = ()) -> None:
    """Print rows under a header, aligned to the right; the columns named in `left` to the left.

    Long names are wrapped at the width of the terminal. In one that is narrower than the rest, rows are cut nowhere:
    the terminal itself wraps them.
    """
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    texts = [[visible(str(cell)) for cell in row] for row in rows]
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    needed = -GAP
    for index, name in enumerate(columns):
        widest = max(map(cell_len, [name, *(row[index] for row in texts)]))
        least = min(widest, NARROWEST) if name in left else widest
        table.add_column(name, justify="left" if name in left else "right", overflow="fold", min_width=least)
        needed += least + GAP
    for row in texts:
        table.add_row(*map(Text, row))
    console = Console(file=sys.stdout)
    console.width = max(needed, console.width) if sys.stdout.isatty() else ANY_WIDTH
    console.print(table)


def print_line(text: str, style: str = "") -> None:
    """Print one line to standard output, in that style of rich where there are colours."""
    from rich.console import Console
    from rich.text import Text

    Console(file=sys.stdout).print(Text(visible(text), style), soft_wrap=True)


def complain(message: str, style: str = "red") -> None:
    """Print one line to standard error; what is no failure has no red."""
    from rich.console import Console
    from rich.text import Text

    line = Text.assemble(("minibroker:", style), " ", visible(message))
    Console(file=sys.stderr).print(line, soft_wrap=True)
