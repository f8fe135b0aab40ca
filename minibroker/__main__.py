"""The command's door: `serve` goes straight to the broker, everything else to the command line client."""

from __future__ import annotations

import gc
import sys


def main() -> int:
    """Run `minibroker ...`; the exit status."""
    if len(sys.argv) > 1 and sys.argv[1] == "serve":
        gc.disable()  # until the broker is ready, which enables it: nothing of a start is garbage
        try:
            from minibroker.broker.__main__ import serve
        except KeyboardInterrupt:  # before the broker could see to signals: there is nothing to stop yet
            return 0
        return serve(sys.argv[2:])
    from minibroker.cli.app import main as cli_main

    return cli_main()


if __name__ == "__main__":
    sys.exit(main())
