"""`minibroker serve`: reads the command line, listens, and only then imports the rest.

The order is what makes the start fast: a client may connect 20 ms after the command was given, and waits in the
backlog for the 100 ms that the imports take.
"""

from __future__ import annotations

import argparse
import gc
import logging
import sys
from pathlib import Path

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="minibroker serve",
        description="Start a broker. It serves until SIGTERM or Ctrl-C, then stops in order with status 0.",
    )
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="address to listen on; port 0 takes a free one (default 127.0.0.1:9092)",
    )
    parser.add_argument("--data-dir", metavar="DIR", help="where topics are kept (default ./minibroker-data)")
    parser.add_argument(
        "--ready-file", metavar="FILE", type=Path, help="written with host:port once requests are answered"
    )
    parser.add_argument("--config", metavar="FILE", type=Path, help="a server.properties as Kafka has it")
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        dest="settings",
        help="one setting by Kafka's name; wins over --config",
    )
    parser.add_argument(
        "--log-level", default="INFO", choices=["DEBUG", "INFO", "WARNING", "ERROR"], help="default INFO"
    )
    return parser.parse_args(arguments)


def fail(message: str) -> int:
    print(f"minibroker: {message}", file=sys.stderr)
    return EXIT_FAILED


def serve(arguments: list[str]) -> int:
    """Run a broker until it is told to stop; the exit status."""
    gc.disable()  # until the start is over: nothing of it is garbage
    options = parse_arguments(arguments)
    logging.basicConfig(
        level=options.log_level, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    from minibroker.broker.config import ConfigError, load_config

    try:
        config = load_config(options.config, options.settings, listen=options.listen, data_dir=options.data_dir)
    except ConfigError as error:
        return fail(str(error))
    if options.ready_file is not None:
        options.ready_file.unlink(missing_ok=True)
    from minibroker.broker.network.listen import listen

    try:
        listeners = [listen(host, port) for host, port in config.listen_addresses]
    except OSError as error:
        return fail(f"{error.strerror}; choose another address with --listen HOST:PORT (port 0 takes a free one)")
    return run(config, listeners, options.ready_file)


def run(config, listeners, ready_file) -> int:  # type: ignore[no-untyped-def]
    from minibroker.broker.app import run as run_app
    from minibroker.broker.cluster.topic_store import TopicStoreError
    from minibroker.storage.log_manager import LogDirectoryError

    try:
        return run_app(config, listeners, ready_file)
    except (LogDirectoryError, TopicStoreError) as error:
        return fail(str(error))


if __name__ == "__main__":
    sys.exit(serve(sys.argv[1:]))
