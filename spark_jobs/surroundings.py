"""Looks before Spark starts whether something listens at a job's addresses, and whether its folders can be written.

The rule: each failure is one line with the next step, in a second or two; Spark and Java would take minutes.
"""

from __future__ import annotations

import argparse
import os
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import unquote, urlsplit

from minibroker.spark_jobs.errors import JobFailed
from minibroker.spark_jobs.kafka_options import broker_options

CONNECT_SECONDS = 3.0
MASTER = "spark://"
MASTERS = (MASTER, "local", "yarn", "k8s://")
WRITTEN = ("output", "checkpoint", "event_log", "picture")


def check_surroundings(arguments: argparse.Namespace) -> None:
    """Raise JobFailed if the master or no broker can be reached, or a folder cannot be written."""
    if not arguments.master.startswith(MASTERS):
        raise JobFailed(f"--master {arguments.master}: a master is local[*], spark://HOST:7077, yarn or k8s://ADDRESS")
    if arguments.master.startswith(MASTER) and "PYSPARK_GATEWAY_PORT" not in os.environ:
        masters = arguments.master.removeprefix(MASTER)
        step = "start one, or give another --master"
        _require_a_listener(masters, f"no Spark master at {arguments.master}", step)
    if hasattr(arguments, "bootstrap_servers"):
        brokers = [broker_options(arguments)["kafka.bootstrap.servers"]]
        brokers += [getattr(arguments, "against_bootstrap_servers", None) or brokers[0]]
        for each in dict.fromkeys(brokers):
            _require_a_listener(each, f"no broker at {each}", "start one, or give another -b HOST:PORT")
    for name in WRITTEN:
        if (path := local_path(getattr(arguments, name, None))) is not None:
            _require_writable(path, f"--{name.replace('_', '-')} {path}")


def local_path(path: str | Path | None) -> Path | None:
    """Return a path of this machine, without links, dots and `file:`; None if it is elsewhere."""
    parts = urlsplit(str(path or ""))
    if path is None or (parts.scheme and parts.scheme != "file"):
        return None
    return Path(os.path.realpath(unquote(parts.path) if parts.scheme else path))


def _require_a_listener(addresses: str, what: str, step: str) -> None:
    """Have one of these addresses accept a connection. Raises JobFailed."""
    with ThreadPoolExecutor() as trying:
        reasons = list(trying.map(_reason_not_to_connect, addresses.split(",")))
    if all(reasons):
        raise JobFailed(f"{what}: {reasons[0]}; {step}")


def _reason_not_to_connect(address: str) -> str:
    host, colon, port = address.strip().rpartition("://")[2].rpartition(":")
    if not colon or not port.isdecimal():
        return f"{address!r} is not HOST:PORT"
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        return getattr(error, "strerror", None) or str(error)
    return ""


def _require_writable(path: Path, what: str) -> None:
    """Raise JobFailed unless a file can be made at the path, or in the folder that it is."""
    at: Sequence[Path] = [path, *path.parents]
    existing = next(each for each in at if each.exists())
    if existing != path and not existing.is_dir():
        raise JobFailed(f"{what}: {existing} is no directory")
    if not os.access(existing, os.W_OK) or os.statvfs(existing).f_flag & os.ST_RDONLY:
        raise JobFailed(f"{what}: {existing} cannot be written")
    if os.statvfs(existing).f_blocks and not os.statvfs(existing).f_bavail:
        raise JobFailed(f"{what}: no space is left on the disk of {existing}")
