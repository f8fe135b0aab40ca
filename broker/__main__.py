"""`minibroker serve`: reads the command line, listens, and only then imports the rest.

The order makes the start fast: a client may connect 20 ms after the command was given, and waits in the backlog for the
100 ms of the imports. An error that keeps the broker from starting is one line on standard error and status 1, an
invalid command one line and status 2. SIGTERM, SIGHUP and Ctrl-C end the broker with status 0, also during its start.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import socket
import sys
import threading
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from minibroker.broker.arguments import QUICK_SETTINGS, parse_arguments
from minibroker.broker.banner import address_of, banner, bootstrap_of, named_addresses
from minibroker.broker.config.profiles import EVERYTHING, RELEASES, profile_of
from minibroker.broker.serve_options import ServeOptions
from minibroker.broker.starting import StartError, stop_signals

if TYPE_CHECKING:
    from minibroker.broker.cluster.first_topics import FirstTopic
    from minibroker.broker.config.kafka_config import KafkaConfig
    from minibroker.broker.wings.images.images import Images
    from minibroker.broker.wings.testing.control.console_child import ConsoleChild
    from minibroker.broker.wings.testing.control.control_server import ControlServer
    from minibroker.broker.wings.testing.control.metrics_endpoint import MetricsEndpoint
    from minibroker.transcript.recorder import Recorder

EXIT_OK = 0
EXIT_FAILED = 1

PARENT_POLL_SECONDS = 0.5
STOP_SECONDS = 30.0
REGISTRY_URL = "schema.registry.url="  # in the ready file, behind the listeners
ANY_ADDRESS = ("", "0.0.0.0", "::")
THIS_MACHINE = {"127.0.0.1", "localhost", "[::1]"}

logger = logging.getLogger("minibroker.broker")


def serve(arguments: list[str]) -> int:
    """Run a broker until a signal stops it; return the exit status."""
    stop_at_once_on_signals()
    options = parse_arguments(arguments)
    try:
        if not sys.platform.startswith("linux") and (options.brokers or options.cluster) is not None:
            raise StartError("several brokers on one machine share locks of Linux; serve one, or run the image")
        if options.brokers is not None:
            launch_cluster(options, arguments)
        else:
            start_and_run(options)
    except StartError as failure:
        from minibroker.protocol.text import without_java_types

        for line in without_java_types(str(failure)).splitlines():
            print(f"minibroker: {line}", file=sys.stderr)
        return EXIT_FAILED
    return EXIT_OK


def launch_cluster(options: argparse.Namespace, arguments: list[str]) -> None:
    """Run the brokers of a cluster. Raises StartError."""
    from minibroker.broker.wings.several.launcher import LaunchFailed, launch

    if options.cluster is not None:
        raise StartError("--brokers makes a cluster, and --cluster joins one: give one of them")
    if options.zookeeper is not None:
        raise StartError("--brokers makes a cluster of its own: leave --zookeeper away, or --brokers")
    if options.control is not None:
        raise StartError("each broker of --brokers has a control socket, in the data directory; leave --control away")
    try:
        launch(options, arguments)
    except LaunchFailed as error:
        raise StartError(str(error)) from error
    except OSError as error:
        raise StartError(f"cannot use the data directory: {error}; name another with --data-dir DIR") from error


def stop_at_once_on_signals() -> None:
    """Let signals end the process at once during the start: it leaves nothing to clean up (the next broker replaces a
    control socket that stays), and an imported module could swallow an exception."""
    for number in stop_signals():
        signal.signal(number, lambda number, frame: os._exit(EXIT_OK))


def start_and_run(options: argparse.Namespace) -> None:
    """Start in the order of the module's docstring, serve and stop. Raises StartError."""
    logging.basicConfig(
        level=options.log_level, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    if options.parent_pid is not None:
        threading.Thread(target=stop_with_parent, args=[options.parent_pid], daemon=True).start()
    images = images_of(options)
    config = config_of(options, images)
    serving = ServeOptions(
        busy_poll_ms=options.busy_poll_ms,
        faults_max=options.faults_max,
        counts=options.count,
        cluster_dir=options.cluster,
        topics=topics_to_create(options, config, images),
        zookeeper=zookeeper_of(options, config),
        schema_registry_address=options.schema_registry,
    )
    if serving.cluster_dir is not None or serving.zookeeper is not None:
        check_between_brokers(config)
    if options.check:
        from minibroker.broker.app import check

        check(config, serving)
        return
    with ExitStack() as at_end:
        if options.metrics is not None:
            serving = serving._replace(metrics=at_end.enter_context(closing(metrics_at(options.metrics))))
        if options.act_as is not None:
            logger.info("acting as Apache Kafka %s, for clients", RELEASES[options.act_as])
        if options.schema_registry is not None:
            registry = at_end.enter_context(closing(registry_at(options.schema_registry)))
            serving = serving._replace(schema_registry=registry)
        listeners = listen_on(config)
        run(config, listeners, options.ready_file, with_what_tests_ask_for(options, config, serving, at_end))


def config_of(options: argparse.Namespace, images: Images | None) -> KafkaConfig:
    """Read the settings from all their sources. Raises StartError."""
    from minibroker.broker.config.kafka_config import ConfigError, load_config, log_warnings

    try:
        return load_config(
            options.config,
            settings_of(options),
            listen=options.listen,
            data_dir=options.data_dir,
            images=images,
            profile=EVERYTHING if options.act_as is None else profile_of(options.act_as),
        )
    except ConfigError as error:
        if options.check:
            log_warnings(error)
        raise StartError(str(error)) from error


def with_what_tests_ask_for(
    options: argparse.Namespace, config: KafkaConfig, serving: ServeOptions, at_end: ExitStack
) -> ServeOptions:
    """Add the page, the control socket and the transcript, which `at_end` closes. Raises StartError."""
    control_path = options.control
    if options.console is not None:
        console = at_end.enter_context(closing(console_at(options, config, serving)))
        control_path = console.controls[0]
        serving = serving._replace(console=console)
    if control_path is not None:
        serving = serving._replace(control=at_end.enter_context(closing(control_at(control_path))))
    if options.transcript is not None:
        recorder = recorder_at(options.transcript, options.transcript_record_bytes, options.transcript_max_bytes)
        at_end.callback(recorder.close)
        recorder.started(f"process {os.getpid()}, data in {config.log_dir}")
        serving = serving._replace(recorder=recorder)
    if options.ready_file is not None:
        prepare_ready_file(options.ready_file)
    return serving


def images_of(options: argparse.Namespace) -> Images | None:
    """The settings in the form of other images, if there may be any."""
    if not options.environment and options.config is None:
        return None
    from minibroker.broker.wings.images.images import Images

    return Images(
        os.environ if options.environment else {}, is_alone=options.cluster is None and options.zookeeper is None
    )


def topics_to_create(options: argparse.Namespace, config: KafkaConfig, images: Images | None) -> list[FirstTopic]:
    """The topics of --create-topics, else of the environment. Raises StartError."""
    source, text, separators = "--create-topics", options.create_topics, None
    if text is None and images is not None:
        source, text, separators = images.topics()
    if not text:
        return []
    from minibroker.broker.cluster.first_topics import SEPARATORS, first_topics

    try:
        return first_topics(text, config, separators or SEPARATORS)
    except ValueError as error:
        raise StartError(f"{source}: {error}") from error


def check_between_brokers(config: KafkaConfig) -> None:
    """Check that other brokers reach this one. Raises StartError."""
    name = config.inter_broker_listener
    listener = next(each for each in config.endpoints if each.name == name)
    if any(each.host in ANY_ADDRESS and not config.advertised_endpoints[each.name][0] for each in config.endpoints):
        raise StartError(
            "clients and brokers reach a broker of a cluster at one address, and it listens at all; name it with "
            f"--set advertised.listeners={name}://HOST:{listener.port}"
        )


def settings_of(options: argparse.Namespace) -> list[str]:
    """The settings of --set, after QUICK_SETTINGS for a broker that is for this machine alone and like no other."""
    is_like_another = options.config is not None or options.act_as is not None or options.environment
    named = [each.partition("=")[2] for each in options.settings if each.partition("=")[0].strip() == "listeners"]
    listeners = ",".join(filter(None, [options.listen, *named])).split(",")
    hosts = {each.rpartition("://")[2].rpartition(":")[0] for each in listeners if each}
    return [*QUICK_SETTINGS, *options.settings] if not is_like_another and hosts <= THIS_MACHINE else options.settings


def zookeeper_of(options: argparse.Namespace, config: KafkaConfig) -> str | None:
    """The ZooKeeper of the cluster to join, None for none. Raises StartError."""
    if options.zookeeper is None:
        if config.zookeeper_connect:
            names = ("default.replication.factor", "min.insync.replicas", "offsets.topic.replication.factor")
            is_of_several = config.broker_id > 1 or any(int(config.given.get(name, 1)) > 1 for name in names)
            logger.log(
                logging.WARNING if is_of_several else logging.INFO,
                "zookeeper.connect: no effect without --zookeeper, this broker %s",
                "is a cluster of its own; `serve --brokers 3` starts a cluster"
                if is_of_several
                else "needs no ZooKeeper",
            )
        return None
    if options.cluster is not None:
        raise StartError("--cluster and --zookeeper are clusters of two kinds; give one of them")
    from minibroker.broker.wings.several.inter_broker_versions import is_joinable
    from minibroker.zookeeper.session import parse_ensemble

    protocol = config.inter_broker_protocol_version
    if not is_joinable(protocol):
        raise StartError(
            f"inter.broker.protocol.version={protocol}: this broker does not speak it; upgrade the others to 0.11 first"
        )
    if config.zookeeper_set_acl:
        raise StartError(
            "zookeeper.set.acl=true: this broker logs in to no ZooKeeper, so its nodes are open; set it to false, at"
            " the other brokers too"
        )
    named: str = options.zookeeper or config.zookeeper_connect or ""
    try:
        parse_ensemble(named)
        return named
    except ValueError as error:
        raise StartError(f"{error}; name the ZooKeeper with --zookeeper HOST:PORT, or in zookeeper.connect") from error


def stop_with_parent(parent_pid: int) -> None:
    """Stop the broker in order when its parent has ended, even if the parent was killed; kill it if it does not stop.

    It polls, because nothing else works everywhere: a pipe from the parent stays open in other processes that the
    parent forked, and the kernel's parent-death signal comes when the parent's thread ends.
    """
    while os.getppid() == parent_pid:
        time.sleep(PARENT_POLL_SECONDS)
    logger.warning("stopping: process %d, which started this broker, has ended", parent_pid)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(STOP_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)


def prepare_ready_file(path: Path) -> None:
    """Remove the file of an earlier run; check that its folder is writable. Raises StartError."""
    try:
        path.unlink(missing_ok=True)
        if not os.access(path.absolute().parent, os.W_OK):
            raise FileNotFoundError(0, "its folder is missing or not writable")
    except OSError as error:
        raise StartError(f"cannot write --ready-file {path}: {error.strerror}; name another") from error


def listen_on(config: KafkaConfig) -> list[socket.socket]:
    """Raises StartError."""
    from minibroker.broker.network.listen import listen

    try:
        return [listen(host, port) for host, port in config.listen_addresses]
    except OSError as error:
        raise StartError(
            f"{error.strerror}; choose another address with --listen HOST:PORT (port 0 takes a free one)"
        ) from error


def console_at(options: argparse.Namespace, config: KafkaConfig, serving: ServeOptions) -> ConsoleChild:
    """Raises StartError."""
    from minibroker.broker.wings.testing.control.console_child import ConsoleChild, ConsoleError

    try:
        controls = [] if options.control is None else [options.control]
        is_open = serving.schema_registry is not None and config.endpoints[0].protocol == "PLAINTEXT"
        registry = registry_url(config, serving) if is_open else None
        return ConsoleChild(
            options.console, controls=controls, client_config=options.console_config, schema_registry=registry
        )
    except ConsoleError as error:
        raise StartError(str(error)) from error


def metrics_at(address: str) -> MetricsEndpoint:
    """Listen there, so that an address in use is found out now. Raises StartError."""
    from importlib.util import find_spec

    if find_spec("prometheus_client") is None:
        raise StartError("--metrics needs prometheus-client; run: pip install prometheus-client")
    from minibroker.broker.network.listen import listen
    from minibroker.broker.wings.testing.control.metrics_endpoint import MetricsEndpoint

    host, _, port = address.rpartition(":")
    try:
        return MetricsEndpoint(listen(host.strip("[]"), int(port)))
    except OSError as error:
        raise StartError(f"{error.strerror}; choose another address with --metrics HOST:PORT") from error


def registry_at(address: str) -> socket.socket:
    """Listen there, so that an address in use is found out now. Raises StartError."""
    from importlib.util import find_spec

    from minibroker.broker.network.listen import listen

    missing = [name for name in ("hypercorn", "avro", "jsonschema", "proto_schema_parser") if find_spec(name) is None]
    if missing:
        raise StartError(
            f"--schema-registry needs {missing[0]}; in the clone of minibroker: pip install -e '.[schemas]'"
        )
    host, _, port = address.rpartition(":")
    try:
        return listen(host.strip("[]"), int(port))
    except OSError as error:
        raise StartError(f"{error.strerror}; choose another address with --schema-registry HOST:PORT") from error


def registry_url(config: KafkaConfig, serving: ServeOptions) -> str:
    assert serving.schema_registry is not None
    scheme = "https" if config.endpoints[0].is_encrypted else "http"
    return f"{scheme}://{address_of(*serving.schema_registry.getsockname()[:2])}"


def control_at(path: Path) -> ControlServer:
    """Raises StartError."""
    from minibroker.broker.wings.testing.control.control_server import ControlError, ControlServer

    try:
        return ControlServer(path)
    except ControlError as error:
        raise StartError(f"{error}; name another with --control PATH") from error


def recorder_at(path: Path, max_record_bytes: int, max_bytes: int) -> Recorder:
    """Raises StartError."""
    from minibroker.transcript.file import TranscriptError, TranscriptWriter
    from minibroker.transcript.recorder import Recorder

    try:
        return Recorder(TranscriptWriter(path), max_record_bytes=max_record_bytes, max_bytes=max_bytes)
    except TranscriptError as error:
        raise StartError(f"{error}; name another with --transcript FILE") from error
    except OSError as error:
        raise StartError(f"cannot write --transcript {path}: {error.strerror}; name another") from error


def allow_most_files() -> None:
    """Raise the limit of open files as far as it goes, as Java does: a log takes one of them, a connection another."""
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # the kernel has a limit of its own
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def run(
    config: KafkaConfig,
    listeners: list[socket.socket],
    ready_file: Path | None,
    options: ServeOptions,
) -> None:
    """Raises StartError."""
    from minibroker.broker.app import run as run_app
    from minibroker.protocol.form import form
    from minibroker.storage.files.checkpoints import write_atomically
    from minibroker.storage.files.storage_errors import LogDirectoryError, is_out_of_descriptors

    allow_most_files()
    early: list[int] = []
    failures: list[str] = []

    def note_signals() -> None:
        # The loop handles signals when it runs. `on_ready` passes it the signals that came before; signals after the
        # stop has begun change nothing.
        for number in stop_signals():
            signal.signal(number, lambda number, frame: early.append(number))

    def on_ready(host: str, port: int) -> None:
        address, named = address_of(host, port), named_addresses(config, listeners)
        if sys.stderr.isatty():
            print(banner(host, port, config.log_dir, named), file=sys.stderr)
        else:
            logger.info(
                "minibroker is ready at %s, data in %s (%s)", ", ".join(named) or address, config.log_dir, form()
            )
        if options.metrics is not None:
            logger.info("metrics are at http://%s/metrics", address_of(*options.metrics.address))
        if options.schema_registry is not None:
            url = registry_url(config, options)
            logger.info("the schema registry is at %s", url)
            named = [*named, f"{REGISTRY_URL}{url}"]
        if ready_file is not None:
            try:
                write_atomically(ready_file, "".join(f"{line}\n" for line in (address, *named)).encode())
            except OSError as error:
                failures.append(f"cannot write --ready-file {ready_file}: {error.strerror}; name another")
                early.append(signal.SIGTERM)
        if options.console is not None:
            options.console.start(bootstrap_of(config, listeners))
        for number in early:
            signal.raise_signal(number)

    try:
        run_app(config, listeners, on_loaded=note_signals, on_ready=on_ready, options=options)
    except LogDirectoryError as error:
        next_step = "name another directory with --data-dir DIR"
        if is_out_of_descriptors(error.__cause__):
            next_step = "each partition needs an open file: raise the limit (ulimit -n)"
        raise StartError(f"{str(error).rstrip('.')}; {next_step}") from error
    except OSError as error:
        from minibroker.protocol.text import reason_of

        raise StartError(f"the data directory {config.log_dir} failed: {reason_of(error)}") from error
    if failures:
        raise StartError(failures[0])


if __name__ == "__main__":
    sys.exit(serve(sys.argv[1:]))
