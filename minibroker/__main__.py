"""The command's door: `serve` goes straight to the broker, everything else to the command line client."""

from __future__ import annotations

import sys


def main() -> int:
    """Run `minibroker ...`; the exit status."""
    if len(sys.argv) > 1 and sys.argv[1] == "serve":
        from minibroker.broker.__main__ import serve

        return serve(sys.argv[2:])
    from minibroker.cli.app import main as cli_main

    return cli_main()


if __name__ == "__main__":
    sys.exit(main())
