"""`minibroker metrics ...`: the metrics of any Kafka cluster for Prometheus, and a dashboard for Grafana."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from minibroker.any_cluster.bootstrap import Cluster
from minibroker.cli.options import noun
from minibroker.cli.parameters import OutputOption, changing_cluster, on_cluster
from minibroker.cli.shown import Shown
from minibroker.errors import EXIT_OK, BadValue, CommandFailed

if TYPE_CHECKING:
    from minibroker.metrics.scraper import Scraper

EPILOG = """Examples:

minibroker metrics serve -b kafka.example.com:9092 --listen 127.0.0.1:9308

minibroker metrics dashboard > dashboard.json

A minibroker serves its metrics by itself: minibroker serve --metrics 127.0.0.1:9308"""
NOT_INSTALLED = "metrics need prometheus-client; run: pip install prometheus-client"
DEFAULT_LISTEN = "127.0.0.1:9308"
PORT_MAX = 65_535

app = noun(help="Serve metrics to Prometheus, and print a dashboard for Grafana.", epilog=EPILOG)

ControlOption = Annotated[
    Path | None,
    typer.Option(
        "--control",
        metavar="SOCKET",
        help="The control socket of a minibroker, which gives all metrics; without it there are those of any Kafka.",
        show_default=False,
    ),
]


@app.command("serve", epilog="Example: minibroker metrics serve -b 127.0.0.1:9092 --listen 127.0.0.1:9308")
@changing_cluster
def serve(
    cluster: Cluster,
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Where to serve; port 0 takes a free one.")
    ] = DEFAULT_LISTEN,
    control: ControlOption = None,
    output: OutputOption = "text",
) -> int:
    """Serve the metrics of a cluster at http://HOST:PORT/metrics, until Ctrl-C."""
    host, port = host_and_port(listen)
    scraper = scraper_of(cluster, control)
    import socket

    from minibroker.cli.signals import interruption
    from minibroker.metrics.endpoint import Endpoint

    try:
        listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else error  # Python's own text has the address once more
        raise CommandFailed(
            f"cannot listen on {listen}: {reason}; choose another address with --listen HOST:PORT"
        ) from error
    with interruption(), Endpoint(listener, scraper) as endpoint:
        url = f"http://{address_of(listener)}/metrics"
        print(json.dumps({"url": url}) if output == "json" else f"metrics are at {url}", flush=True)
        endpoint.serve_forever()
    return EXIT_OK


@app.command("show", epilog="Example: minibroker metrics show | grep lag")
@on_cluster
def show(cluster: Cluster, control: ControlOption = None) -> Shown:
    """Print the metrics of a cluster once, as Prometheus reads them."""
    scraper = scraper_of(cluster, control)
    from minibroker.errors import BrokerError
    from minibroker.metrics.exposition import exposition

    try:
        found = scraper.scrape()
    except BrokerError as error:
        raise CommandFailed(f"{error}; correct --control, or leave it out") from error
    samples = [sample for metric in found.collect() for sample in metric.samples]
    documents = [{"name": each.name, "labels": each.labels, "value": each.value} for each in samples]
    return Shown(documents, lambda: print(exposition(found)[0].decode(), end=""))


@app.command("dashboard", epilog="Example: minibroker metrics dashboard > dashboard.json")
def dashboard(output: OutputOption = "json") -> int:
    """Print a dashboard of these metrics, to import in Grafana; as text, only its queries."""
    from minibroker.metrics.dashboard import PANELS
    from minibroker.metrics.dashboard import dashboard as made

    print(json.dumps(made(), indent=2) if output == "json" else PANELS, end="" if output == "text" else "\n")
    return EXIT_OK


def scraper_of(cluster: Cluster, control: Path | None) -> Scraper:
    """Raises CommandFailed if prometheus-client is not installed."""
    try:
        from minibroker.metrics.scraper import Scraper
    except ModuleNotFoundError as error:
        raise CommandFailed(NOT_INSTALLED) from error
    if control is None:
        return Scraper(cluster)
    from minibroker.control import Control

    return Scraper(call=Control(control).call)


def host_and_port(text: str) -> tuple[str, int]:
    """Raises BadValue."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > PORT_MAX:
        raise BadValue(f"{text!r} is not HOST:PORT, such as {DEFAULT_LISTEN}")
    return host.strip("[]"), int(port)


def address_of(listener: Any) -> str:
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
