"""The command's door: `serve` goes straight to the broker, everything else to the command line client."""

from __future__ import annotations

import gc
import sys

import minibroker

# The extra `cli`: a broker alone does without it.
CLI_PACKAGES = ("typer", "rich", "kafka")


def main() -> int:
    """Run `minibroker ...`; the exit status."""
    if len(sys.argv) > 1 and sys.argv[1] == "serve":
        gc.disable()  # until the broker is ready, which enables it: nothing of a start is garbage
        try:
            from minibroker.broker.__main__ import serve
        except KeyboardInterrupt:  # before the broker could see to signals: there is nothing to stop yet
            return 0
        return serve(sys.argv[2:])
    if sys.argv[1:] == ["--version"]:
        print(f"minibroker {minibroker.__version__}")
        return 0
    try:
        from minibroker.cli.app import main as cli_main

        return cli_main()  # which imports the rest when a command needs it
    except ModuleNotFoundError as missing:
        if missing.name not in CLI_PACKAGES:
            raise
        print(f"minibroker: this command needs {missing.name}: pip install 'minibroker[cli]'", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
