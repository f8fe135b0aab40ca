"""`minibroker demo`: broker, replay, Spark job, check, table and picture, then an orderly stop.

The rule: it ends by itself, with status 0 only if Spark's result equals the one computed from the flights, row for row;
SIGINT, SIGTERM and SIGHUP end it and its processes at any moment, and so does `kill -9`. With `--bootstrap-servers`
it uses another broker, and a new topic there. With `--console` a web page shows it all, with two consumers of a group
beside the Spark job, and the broker stays until a signal ends it.
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from minibroker.protocol.arguments import Arguments

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
END_SECONDS = 20
PARENT_POLL_SECONDS = 0.5
ANY_PORT = "127.0.0.1:0"
WITH_PARENT = "--end-with-parent"
received: list[int] = []  # the status for each signal


def end_on_signals() -> None:
    """Have signals raise SystemExit, so that all is ended on the way out."""
    for number in STOP_SIGNALS:
        # Under nohup, SIGHUP stays ignored.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)


@contextmanager
def signals_held() -> Iterator[None]:
    """Let signals wait: modules written in Cython, as pandas', turn an exception in their import into a TypeError."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def _end(number: int, _: FrameType | None) -> None:
    # The end of this process is enough for the others to end. SIGALRM brings it about, should the exception be lost.
    signal.alarm(END_SECONDS)
    # make, which has a Ctrl-C too and ends by it, would report another status as an error.
    is_known_to_make = number == signal.SIGINT and WITH_PARENT in sys.argv
    received.append(0 if is_known_to_make else 128 + number)
    sys.exit(received[0])


def end_with(parent_pid: int) -> None:
    """End this process when its parent has ended, even if the parent was killed."""
    while os.getppid() == parent_pid:
        time.sleep(PARENT_POLL_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)


def days_per_second(text: str) -> float:
    """A pace above 0. Raises argparse.ArgumentTypeError."""
    try:
        days = float(text)
    except ValueError:
        days = math.nan
    if not 0 < days < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a number of days above 0, such as 2.5")
    return days


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; exit with status 0, with 1 and the reason, or as a signal asks."""
    end_on_signals()
    try:
        return run(arguments)
    except BaseException:
        if received:  # any error after a signal comes from it: Cython and C turn the exit into a TypeError, or others
            raise SystemExit(received[0]) from None
        raise


def run(arguments: Sequence[str] | None) -> int:
    cli = Arguments(prog="minibroker demo", description="A year of flights, Kafka and Spark.", allow_abbrev=False)
    cli.add_argument("--out", type=Path, default=Path("out"), help="folder for all output")
    cli.add_argument("--days", type=int, help="only the first days of the year")
    cli.add_argument("--bootstrap-servers", metavar="HOST:PORT", help="use this broker instead of starting one")
    cli.add_argument(
        "--console", metavar="HOST:PORT", nargs="?", const=ANY_PORT, help="show it on a web page there, until Ctrl-C"
    )
    cli.add_argument("--days-per-second", metavar="DAYS", type=days_per_second, help="the pace of the flights")
    cli.add_argument(WITH_PARENT, action="store_true", help="end when the process that started this has ended")
    chosen = cli.parse_args(arguments)
    try:
        with signals_held():
            if chosen.end_with_parent:  # a thread that holds them too, or it would take them
                threading.Thread(target=end_with, args=[os.getppid()], daemon=True).start()
            from rich.console import Console

            from minibroker.demo.player import DAYS_PER_SECOND
            from minibroker.demo.run import Demo, DemoFailed
    except ModuleNotFoundError as missing:
        sys.exit(f"demo: {missing.name} is not installed: in a clone, pip install -e '.[demo]'")
    bootstrap: str | None = chosen.bootstrap_servers
    topic = f"flights-{time.time_ns() // 1_000_000}" if bootstrap else "flights"
    demo = Demo(
        chosen.out.absolute(),
        topic=topic,
        days=chosen.days,
        console=Console(),
        days_per_second=chosen.days_per_second or DAYS_PER_SECOND,
        listen=chosen.console,
    )
    try:
        demo.run(bootstrap)
    except DemoFailed as reason:
        sys.exit(f"demo: {reason}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
