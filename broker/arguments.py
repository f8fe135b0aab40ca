"""The command line of `minibroker serve`: each option, its default and its check."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from minibroker.broker.config.profiles import RELEASES
from minibroker.broker.serve_options import DEFAULT_FAULTS_MAX
from minibroker.protocol.arguments import Arguments
from minibroker.storage.quick_groups import QUICK_GROUPS

DEFAULT_CONSOLE = "127.0.0.1:8080"
QUICK_SETTINGS = [f"{name}={value}" for name, value in QUICK_GROUPS.items()]
PORT_MAX = 65_535
DEFAULT_RECORD_BYTES = 64 * 1024
RECORD_BYTES_MAX = 16 * 1024 * 1024
DEFAULT_TRANSCRIPT_BYTES = 64 * 1024 * 1024
TRANSCRIPT_BYTES_MAX = 1 << 40
FAULTS_MAX = 1_000_000
BUSY_POLL_MS_MAX = 1000
BROKERS_MAX = 30


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = Arguments(
        prog="minibroker serve",
        description="Start a broker. It serves until SIGTERM, SIGHUP or Ctrl-C, then stops in order with status 0.",
        epilog="exit status: 0 stopped in order, 1 the broker cannot start, 2 the command is invalid",
        allow_abbrev=False,  # a typing error must not choose another option
    )
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        type=addresses,
        help="address to listen on; port 0 takes a free one (default 127.0.0.1:9092); NAME://HOST:PORT,... for several",
    )
    parser.add_argument("--data-dir", metavar="DIR", help="directory of the topics (default ./minibroker-data)")
    parser.add_argument(
        "--ready-file", metavar="FILE", type=Path, help="write host:port to this file once the broker answers requests"
    )
    parser.add_argument("--config", metavar="FILE", type=Path, help="a server.properties as Kafka has it")
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        type=key_and_value,
        action="append",
        default=[],
        dest="settings",
        help="one setting by Kafka's name, such as log.retention.ms=60000; wins over --config; may be repeated "
        "(groups are quick on this machine without --config, --environment and --act-as: "
        + ", ".join(QUICK_SETTINGS)
        + ")",
    )
    parser.add_argument(
        "--environment",
        action="store_true",
        help="read KAFKA_* variables as the apache/kafka image does: KAFKA_LOG_RETENTION_MS is log.retention.ms; "
        "they win over --config, and --set over them",
    )
    parser.add_argument(
        "--create-topics",
        metavar="TOPICS",
        help="create these topics, unless they exist, before the broker is ready: orders:3,clicks for three partitions "
        "and for the default; NAME:PARTITIONS:REPLICAS:CLEANUP_POLICY in full",
    )
    parser.add_argument(
        "--act-as",
        metavar="RELEASE",
        choices=RELEASES,
        help="offer only what this release of Apache Kafka has, with its defaults: " + ", ".join(RELEASES),
    )
    parser.add_argument(
        "--busy-poll-ms",
        metavar="MS",
        type=number_of("milliseconds", BUSY_POLL_MS_MAX),
        default=0,
        help="poll for this time after a request instead of sleeping at once: half the latency, for up to a whole core "
        "while requests keep coming; not while other processes want the core (default 0)",
    )
    parser.add_argument(
        "--console",
        metavar="PORT",
        nargs="?",
        const=DEFAULT_CONSOLE,
        type=console_address,
        help="serve a web page of the broker at http://127.0.0.1:PORT (default 8080, HOST:PORT for another host), by a "
        "process beside it; its address is printed, with the token that changes need",
    )
    parser.add_argument(
        "--console-config",
        metavar="FILE",
        type=Path,
        help="client properties with which the console logs in to a secured broker, as --command-config of commands",
    )
    parser.add_argument(
        "--metrics",
        metavar="HOST:PORT",
        type=host_and_port,
        help="serve metrics to Prometheus at http://HOST:PORT/metrics, by a process beside the broker (default none)",
    )
    parser.add_argument(
        "--schema-registry",
        metavar="HOST:PORT",
        type=host_and_port,
        help="serve Confluent's schema registry at http://HOST:PORT, its schemas in the topic _schemas; port 0 takes a "
        "free one; needs the extra `schemas` (default none)",
    )
    parser.add_argument(
        "--brokers",
        metavar="N",
        type=number_of("brokers", BROKERS_MAX, least=1),
        help=f"start a cluster of N brokers, 1 to {BROKERS_MAX}, with the ports after that of --listen; they "
        "replicate to each other, and each has its process, and its directory under --data-dir",
    )
    parser.add_argument(
        "--cluster",
        metavar="DIR",
        type=Path,
        help="be one of several brokers on this machine, which share this directory; each has a broker.id, an address "
        "and a data directory of its own (`minibroker serve --brokers 3` starts three)",
    )
    parser.add_argument(
        "--zookeeper",
        metavar="HOST:PORT/ROOT",
        nargs="?",
        const="",
        type=ensemble,
        help="join the cluster of Apache Kafka 2.0 brokers in this ZooKeeper, or in that of zookeeper.connect; several "
        "HOST:PORT with commas. Without this option zookeeper.connect has no effect",
    )
    add_options_of_tests(parser)
    parser.add_argument("--check", action="store_true", help="only read the settings, print their errors, and end")
    parser.add_argument(
        "--log-level", default="INFO", choices=("DEBUG", "INFO", "WARNING", "ERROR"), help="default INFO"
    )
    parser.add_argument(
        "--parent-pid",
        metavar="PID",
        type=int,
        help="stop when process PID, the parent of this one, has ended in any way",
    )
    return parser.parse_args(arguments)


def add_options_of_tests(parser: argparse.ArgumentParser) -> None:
    """Add the options for tests of clients, which Kafka does not have."""
    parser.add_argument(
        "--control",
        metavar="PATH",
        type=Path,
        help="create a Unix socket there, for tests to advance this broker's clock, make faults and explain requests "
        "(default none)",
    )
    parser.add_argument(
        "--transcript",
        metavar="FILE",
        type=Path,
        help="record every request and response there, for `minibroker transcript`; appends to an existing file",
    )
    parser.add_argument(
        "--transcript-record-bytes",
        metavar="N",
        type=number_of("bytes", RECORD_BYTES_MAX),
        default=DEFAULT_RECORD_BYTES,
        help=f"keep this much of the records in a request or response (default {DEFAULT_RECORD_BYTES})",
    )
    parser.add_argument(
        "--transcript-max-bytes",
        metavar="N",
        type=number_of("bytes", TRANSCRIPT_BYTES_MAX),
        default=DEFAULT_TRANSCRIPT_BYTES,
        help=f"stop recording when the file has this size (default {DEFAULT_TRANSCRIPT_BYTES})",
    )
    parser.add_argument(
        "--count",
        action="store_true",
        help="with --control: count for the metrics from the start, not from the first look at them",
    )
    parser.add_argument(
        "--faults-max",
        metavar="N",
        type=number_of("faults", FAULTS_MAX),
        default=DEFAULT_FAULTS_MAX,
        help=f"remember the counts of this many faults, the newest (default {DEFAULT_FAULTS_MAX})",
    )


def addresses(text: str) -> str:
    """Check HOST:PORT, or the same list as in `listeners`."""
    for element in text.split(","):
        host_and_port(element.rpartition("://")[2])
    return text


def host_and_port(text: str) -> str:
    """Check HOST:PORT; an empty host is every interface, as in Kafka."""
    _, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > PORT_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT, such as 127.0.0.1:9092")
    return text


def ensemble(text: str) -> str:
    """Check the servers of a ZooKeeper, as zookeeper.connect has them; none for those of that setting."""
    from minibroker.zookeeper.session import parse_ensemble

    try:
        if text:
            parse_ensemble(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def console_address(text: str) -> str:
    """Check PORT or HOST:PORT; a port alone is of this machine only."""
    return host_and_port(text if ":" in text else f"127.0.0.1:{text}")


def number_of(unit: str, most: int, least: int = 0) -> Callable[[str], int]:
    """Make the reader of an option's number."""

    def read(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number of {unit} from {least} to {most}")
        return int(text)

    return read


def key_and_value(text: str) -> str:
    name, equals, _ = text.partition("=")
    if not equals or not name.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE, such as log.retention.ms=60000")
    return text
