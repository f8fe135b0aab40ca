"""The entry point of the command: runs `serve` in the broker, every other command in the client."""

from __future__ import annotations

import atexit
import errno
import gc
import os
import signal
import sys
from typing import Any

import minibroker
from minibroker.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK

GC_GENERATION_0_THRESHOLD = 50_000
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
AGAIN_SECONDS = 0.01
HELP_WORDS = {"help", "-h", "--help", "version", "-V", "--version"}


def main() -> int:
    """Run `minibroker ...`; return the exit status."""
    sys.unraisablehook = interrupt_again
    try:
        try:
            return run()
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except (BrokenPipeError, SystemExit) as end:
        if isinstance(end, SystemExit) and not isinstance(end.__context__, BrokenPipeError):
            raise
        give_up_output()
        return EXIT_OK if HELP_WORDS & set(sys.argv) else EXIT_FAILED  # the reader had enough
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        give_up_output()
        print(
            f"minibroker: cannot write the output: {error.strerror}; make room, or write it elsewhere", file=sys.stderr
        )
        return EXIT_FAILED


def interrupt_again(unraisable: Any) -> None:
    """Raise a Ctrl-C once more that came where Python drops exceptions: in the lock of an import, or a destructor."""
    if unraisable.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(unraisable)
        return
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, AGAIN_SECONDS)


def give_up_output() -> None:
    """Discard what is left of the output: Python would flush it once more at exit, and report that this failed."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run() -> int:
    if sys.argv[1:2] == ["help"] and sys.argv[2:3] in (
        ["serve"],
        ["console"],
        ["demo"],
        ["lab"],
        ["simulate"],
        ["conform"],
    ):  # which read their own arguments
        sys.argv[1:] = [*sys.argv[2:], "--help"]
    if len(sys.argv) > 1 and sys.argv[1] == "serve":
        gc.disable()  # the broker enables it when it is ready: a start leaves no garbage
        try:
            from minibroker.broker.__main__ import serve
        except KeyboardInterrupt:  # before the broker handles signals: there is nothing to stop yet
            return 0
        return serve(sys.argv[2:])
    if sys.argv[1:2] == ["simulate"]:
        from minibroker.simulation.__main__ import main as simulation_main

        return simulation_main(sys.argv[2:])
    if sys.argv[1:] in (["--version"], ["-V"]):
        from minibroker.protocol.form import form

        print(f"minibroker {minibroker.__version__} ({form()})")
        return 0
    try:
        return client_main()
    except KeyboardInterrupt:  # also while modules are imported, a quarter of a short command's time
        return EXIT_INTERRUPTED


def client_main() -> int:
    # What is imported stays. Searching it for garbage, now and at the exit, takes a quarter of a short command's time.
    gc.set_threshold(GC_GENERATION_0_THRESHOLD)
    atexit.register(gc.freeze)
    if sys.argv[1:2] == ["console"]:
        from minibroker.console.command_line import main as console_main

        return console_main(sys.argv[2:])
    if sys.argv[1:2] == ["demo"]:
        from minibroker.demo.__main__ import main as demo_main

        return demo_main(sys.argv[2:])
    if sys.argv[1:2] == ["conform"]:
        from minibroker.conformance.__main__ import main as conform_main

        return conform_main(sys.argv[2:])
    if sys.argv[1:2] == ["lab"]:
        from minibroker.lab.__main__ import main as lab_main

        return lab_main(sys.argv[2:])
    from minibroker.cli.app import main as cli_main

    return cli_main()  # imports the rest when a command needs it


if __name__ == "__main__":
    sys.exit(main())
