"""A broker in a process of its own: start it, stop it, kill it, start it again.

It never runs in the caller's process: signals, forks or gevent in a test cannot hurt it, and `kill` is a real
`kill -9`. It ends with the process that started it, even if that one is killed.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, BinaryIO, TypeVar, Unpack

from minibroker.administered import Administered
from minibroker.errors import BrokerError, SettingWarning
from minibroker.storage.quick_groups import quick_groups
from minibroker.unknown_arguments import refusing_unknown

if TYPE_CHECKING:
    from minibroker.acl import Acl
    from minibroker.broker_clock import BrokerClock
    from minibroker.control import Control
    from minibroker.explain import Chosen, Explanation
    from minibroker.faults import Faults
    from minibroker.security import Security
    from minibroker.transcript.exchanges import Transcript

START_TIMEOUT_SECONDS = 30.0
ADMINISTRATION_ADDRESS = "127.0.0.1:0"
STOP_TIMEOUT_SECONDS = 30.0
READY_POLL_SECONDS = 0.005
DEATH_SECONDS = 0.5
OF_ITS_ADDRESS = {"KAFKA_LISTENERS", "KAFKA_ADVERTISED_LISTENERS"}
LOG_LINES_SHOWN = 20
NOT_STARTED = "the broker was not started; call start(), or use it in a `with`"
UNKNOWN_SETTING = " is not a setting of Kafka"  # in the broker's log
HOW_TO_TAKE_IT = (
    "unknown_settings=True, or minibroker_unknown_settings = true in pytest's ini file, starts the broker all the same"
)
SOURCE_OF_SETTINGS = " (--set)"  # likewise

T = TypeVar("T")


def settings_for_tests(
    settings: Mapping[str, object], *, act_as: str | None, environment: Mapping[str, str]
) -> dict[str, object]:
    """The given settings, and those of quick groups that neither they nor the environment have."""
    quick = {
        name: value
        for name, value in quick_groups(act_as).items()
        if f"KAFKA_{name.replace('.', '_').upper()}" not in environment
    }
    return quick | dict(settings)


def is_paused(pid: int) -> bool:
    """Whether a process of ours is stopped (SIGSTOP); one that has ended is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except (FileNotFoundError, ProcessLookupError):
        return False


def secured(
    security: str | Security | None,
    directory: Path,
    *,
    users: Mapping[str, str] | Iterable[str],
    mechanisms: Sequence[str] | None,
    acls: Iterable[Acl] | None,
    host: str = "127.0.0.1",
) -> Security | None:
    """The security that these arguments of `Broker` ask for; None for an open broker.

    Raises ValueError, and BrokerError where certificates cannot be made.
    """
    if security is None:
        if users or mechanisms or acls is not None:
            raise ValueError('users, mechanisms and acls are of a secured broker, such as security="SASL_SSL"')
        return None
    if not isinstance(security, str):
        return security
    from minibroker.security import DEFAULT_MECHANISMS, Security

    return Security(
        security,
        directory,
        users=users,
        mechanisms=DEFAULT_MECHANISMS if mechanisms is None else mechanisms,
        acls=acls,
        host=host,
    )


def frames_of_ours() -> int:
    """How many frames of this package are on the stack, up to that of the code that uses it."""
    frame: FrameType | None = sys._getframe(1)
    count = 0
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == __package__:
        frame, count = frame.f_back, count + 1
    return count


class Broker(Administered):
    """A broker process; `start` and `close` it, or use it in a `with`.

    `data_dir`: the data directory, which is kept; None for a temporary one, which `close` removes.
    `listen`: HOST:PORT; port 0 takes a free one.
    `settings`: Kafka's broker settings by name, `{"num.partitions": 3}`. Groups are quick
    unless it says otherwise: `group.initial.rebalance.delay.ms` is 0 (Kafka's first join of a group takes 3 s),
    `group.consumer.heartbeat.interval.ms` 250 (5 s) and `group.consumer.assignment.interval.ms` 0 (1 s).
    `unknown_settings`: whether it starts with a name in `settings` that Kafka does not have, which then is a
    SettingWarning, and otherwise a BrokerError.
    `act_as`: the release of Apache Kafka that clients see, "0.10", "0.11", "1.1" or "2.0" (docs/profiles.md); None
    offers everything.
    `environment`: settings as the apache/kafka image takes them, `{"KAFKA_NUM_PARTITIONS": "3"}`. `settings` override
    it, its listeners are ignored in favour of `listen`, and so are the KAFKA_* variables of this process.
    `log_file`: where the broker logs; kept if it is given.
    `control`: whether to open the control socket behind `clock`, `faults` and `explain`.
    `metrics`: whether to count for `metrics` from the start; it opens the control socket too.
    `transcript`: True, or a path, to record requests and responses for `transcript`.
    `security`: "SSL", "SASL_PLAINTEXT" or "SASL_SSL", for a broker with TLS, with users, or both; certificates are made
    for it (the extra `secure`). None for an open broker.
    `users`: their passwords by name, or only their names; beside them there is a super user, `admin`. With "SSL" alone
    each has a certificate.
    `mechanisms`: of SASL, "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"; None for the first three.
    `acls`: rules, `[Acl("alice", "read", topic="orders")]`; what no rule allows is refused, except to `admin`. None
    allows everything to everyone.
    `schema_registry`: whether to serve a schema registry, at `schema_registry_url` (the extra `schemas`).
    `cluster_dir`: the directory that this broker shares with others, which make a cluster with it (see `Cluster`).

    After `stop` or `kill`, `start` continues with the same data at the same address. A Broker is not thread-safe.
    """

    @refusing_unknown
    def __init__(
        self,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        listen: str = "127.0.0.1:0",
        settings: Mapping[str, object] | None = None,
        unknown_settings: bool = False,
        act_as: str | None = None,
        environment: Mapping[str, str] | None = None,
        log_file: str | os.PathLike[str] | None = None,
        control: bool = False,
        metrics: bool = False,
        transcript: bool | str | os.PathLike[str] = False,
        security: str | Security | None = None,
        users: Mapping[str, str] | Iterable[str] = (),
        mechanisms: Sequence[str] | None = None,
        acls: Iterable[Acl] | None = None,
        schema_registry: bool = False,
        cluster_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        self._cluster_dir = cluster_dir
        self._registry = "127.0.0.1:0" if schema_registry else ""  # where it listens, after `start` with its port
        self._registry_url = ""
        self._work_dir = Path(tempfile.mkdtemp(prefix="minibroker-"))
        self._data_dir = self._work_dir / "data" if data_dir is None else Path(data_dir)
        self._log_file = self._work_dir / "broker.log" if log_file is None else Path(log_file)
        self._address = ""  # host:port, after `start`
        self._listen = listen
        self._act_as = act_as
        self._environment = dict(environment or {})
        self._settings = settings_for_tests(settings or {}, act_as=act_as, environment=self._environment)
        self._takes_unknown_settings = unknown_settings
        self._control_path = self._work_dir / "control" if control or metrics else None
        self._counts = metrics
        self._transcript_path = self._transcript_file(transcript)
        try:
            self._security = secured(
                security,
                self._work_dir / "certificates",
                users=users,
                mechanisms=mechanisms,
                acls=acls,
                host=listen.rpartition(":")[0],
            )
        except BaseException:
            shutil.rmtree(self._work_dir)
            raise
        self._administration = ""  # where a secured broker takes our own requests, after `start`
        self._was_ended = False  # by one of our methods
        self._process: subprocess.Popen[bytes] | None = None
        self._logged_bytes = 0  # before this start
        self._owner_pid = os.getpid()
        atexit.register(self.close)

    def start(self, *, timeout_seconds: float = START_TIMEOUT_SECONDS) -> Broker:
        """Start the process and wait until it answers requests. Raises BrokerError.

        This includes recovery: after `kill`, of everything written since the last checkpoint.
        """
        self.launch()
        return self.await_ready(timeout_seconds=timeout_seconds)

    def launch(self) -> None:
        """Start the process, and do not wait for it: `await_ready` does. Raises BrokerError."""
        if self.is_running:
            raise BrokerError(f"the broker is already running at {self.bootstrap_servers}")
        if not self._work_dir.exists():
            raise BrokerError("the broker was closed, and its temporary files are removed; make a new Broker")
        ready_file = self._work_dir / "ready"
        ready_file.unlink(missing_ok=True)
        self._was_ended = False
        with self._opened_log() as log:
            self._logged_bytes = log.tell()
            self._process = subprocess.Popen(
                self._command(ready_file),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._variables(),
                process_group=0,  # Ctrl-C interrupts the caller alone, and the broker ends with it
            )

    def await_ready(self, *, timeout_seconds: float = START_TIMEOUT_SECONDS) -> Broker:
        """Wait until the launched broker answers requests. Raises BrokerError, and kills it."""
        if self._process is None:
            raise BrokerError(NOT_STARTED)
        try:
            first_start = not self._address
            self._address, self._administration = self._wait_until_ready(
                self._process, self._work_dir / "ready", timeout_seconds
            )
            self._check_settings(self._logged_bytes)
            if first_start and self._security is not None:
                self._fill(self._security)
        except BaseException:
            self.kill()
            raise
        # A restart keeps the address, which clients know.
        self._listen = self._address
        return self

    def stop(self) -> int:
        """Stop in order (SIGTERM); return the exit status, 0 for success. Raises BrokerError if it does not stop."""
        if self._process is None:
            return 0
        self._was_ended = True
        self._process.terminate()
        try:
            return self._process.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerError(
                f"the broker did not stop in {STOP_TIMEOUT_SECONDS:.0f} s and was killed:\n{self.last_log_lines()}"
            ) from None

    def kill(self) -> None:
        """Kill without warning (SIGKILL), as a crash would."""
        if self._process is not None:
            self._was_ended = True
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        """Stop, and remove temporary files: the log, and the data unless a directory was given.

        The end of the interpreter calls it, too. In a fork of the process that started the broker it does nothing.
        """
        if os.getpid() != self._owner_pid:
            return
        atexit.unregister(self.close)
        try:
            self.stop()
        finally:
            shutil.rmtree(self._work_dir, ignore_errors=True)

    @property
    def bootstrap_servers(self) -> str:
        """`host:port`, for clients; it stays after `stop` and `kill`. Raises BrokerError before `start`."""
        if not self._address:
            raise BrokerError(NOT_STARTED)
        return self._address

    @property
    def schema_registry_url(self) -> str:
        """The address of the schema registry. Raises BrokerError unless made with `schema_registry=True`."""
        if not self._registry:
            raise BrokerError("this broker has no schema registry; start it with Broker(schema_registry=True)")
        if not self._registry_url:
            raise BrokerError(NOT_STARTED)
        return self._registry_url

    @property
    def data_dir(self) -> Path:
        """The data directory."""
        return self._data_dir

    @property
    def log_file(self) -> Path:
        """The file with the broker's log, of all its runs."""
        return self._log_file

    @property
    def is_running(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id. Raises BrokerError before `start`."""
        if self._process is None:
            raise BrokerError(NOT_STARTED)
        return self._process.pid

    @property
    def has_died(self) -> bool:
        """Whether the process has ended without `stop`, `kill` or `close`."""
        return self._process is not None and not self._was_ended and self._process.poll() is not None

    def obituary(self) -> str:
        """How the broker ended, and its last log lines."""
        status = None if self._process is None else self._process.poll()
        if status is None:
            return "the broker is running" if self._process is not None else "the broker was not started"
        how = f"ended with status {status}" if status >= 0 else f"was killed by {signal.Signals(-status).name}"
        return f"the broker {self._at}(process {self.pid}) {how}; its last log lines:\n" + (
            self.last_log_lines() or "(nothing was logged)"
        )

    def create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replication_factor: int = 1,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic, by default with the broker's `num.partitions`. Raises BrokerError, also for two replicas."""
        from minibroker.administration import create_topic

        with self._administered() as client:
            create_topic(
                client,
                name,
                partitions=partitions,
                num_partitions=self._num_partitions,
                replication_factor=replication_factor,
                configs=configs or {},
            )

    def lag(self, group: str, topic: str | None = None) -> int:
        """How many records a group has still to commit: in `topic`, or in all topics in which it has committed any.

        In a partition without a committed offset every record counts. Raises BrokerError, also for a group that has
        committed nothing when no `topic` is given: `wait_for(lambda: broker.lag("billing") == 0)` waits for it.
        """
        from minibroker.topic_offsets import lag_of

        with self._administered() as client:
            return lag_of(client, group, topic)

    def reset(self) -> None:
        """Delete all topics and groups, in milliseconds; a new broker takes a third of a second. Raises BrokerError.

        It removes members that tests have left in groups, and lifts all faults. Settings changed at run time stay,
        and so do transactional ids and the advance of the clock. Clients that are still open may create their topics
        again by asking for them, but not within a second.
        """
        from minibroker.administration import empty

        if self.has_control:
            self.faults.lift_all()  # they would strike the following requests, too
        with self._administered() as client:
            empty(client)

    @property
    def has_control(self) -> bool:
        """Whether it was made with `control=True`, and so has `clock` and `faults`."""
        return self._control_path is not None

    @property
    def control_path(self) -> Path | None:
        """The control socket, for `minibroker console --control`; None unless made with `control=True`."""
        return self._control_path

    @property
    def clock(self) -> BrokerClock:
        """The broker's clock. Raises BrokerError unless made with `control=True`."""
        from minibroker.broker_clock import BrokerClock

        return BrokerClock(self._control)

    @property
    def faults(self) -> Faults:
        """Makes faults in the broker. Raises BrokerError unless made with `control=True`."""
        from minibroker.faults import Faults

        return Faults(self._control)

    def explain(self, **chosen: Unpack[Chosen]) -> Explanation:
        """Explain requests from now on, to the end of a `with`: why each was answered as it was, what it waited for.

            with broker.explain(api="fetch", client_id="billing-1") as explained:
                consumer.poll(5)
            print(explained)

        `api`, `client_id`, `connection`, `topic`, `slower_than_ms`, `parked`, `empty` and `failed` choose the requests.
        Raises BrokerError unless made with `control=True`.
        """
        from minibroker.explain import Explanation

        return Explanation(self._control, chosen)

    @property
    def transcript(self) -> Transcript:
        """The requests and responses until now. Raises BrokerError unless made with `transcript`."""
        from minibroker.transcript.exchanges import Transcript

        if self._transcript_path is None:
            raise BrokerError("this broker records no transcript; start it with Broker(transcript=True)")
        return Transcript(self._transcript_path)

    def metrics(self) -> dict[str, float | dict[str, float]]:
        """Every metric by the name of its MBean in Kafka; a histogram is a dict of its attributes.

            assert broker.metrics()["kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec,topic=orders"] == 3

        docs/reference/metrics.md lists them. Raises BrokerError unless made with `metrics=True`.
        """
        from minibroker.metrics.mbeans import by_mbean

        if not self._counts:
            raise BrokerError("this broker does not count; start it with Broker(metrics=True)")
        return by_mbean(self._control.call)

    def get_bootstrap_server(self) -> str:
        """`host:port`; the name is that of testcontainers."""
        return self.bootstrap_servers

    def last_log_lines(self) -> str:
        """The end of the broker's log, of all its runs until `close`."""
        with contextlib.suppress(FileNotFoundError):
            return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:])
        return "(no log)"

    def __repr__(self) -> str:
        if self._process is None:
            return "<Broker, not started>"
        return f"<Broker {self._at}" + (f"(process {self.pid})>" if self.is_running else "(ended)>")

    def __enter__(self) -> Broker:
        return self if self.is_running else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _administration_addresses(self) -> str:
        if not self.is_running:
            raise BrokerError(self.obituary())
        return self._administration

    def _why_no_answer(self, error: Exception) -> str:
        return self._how_it_ended() or f"no answer from the broker ({error})"

    @property
    def _num_partitions(self) -> int:
        """The partitions of a new topic, as this broker was configured."""
        given = self._settings.get("num.partitions", self._environment.get("KAFKA_NUM_PARTITIONS", 1))
        return int(str(given))

    @property
    def _control(self) -> Control:
        """The client of the control socket. Raises BrokerError unless made with `control=True`."""
        from minibroker.control import Control

        if self._control_path is None:
            raise BrokerError(
                "this broker has no clock and no faults; start it with Broker(control=True), or set "
                "minibroker_control = true in pytest's ini file"
            )
        return Control(self._control_path, self._how_it_ended)

    @property
    def _at(self) -> str:
        """`at host:port `; nothing if it never had an address."""
        return f"at {self._address} " if self._address else ""

    def _check_alive(self) -> None:
        """Raises BrokerError if the broker has died."""
        if self.has_died:
            raise BrokerError(self.obituary())

    def _scene(self) -> str:
        """The topics and groups, if the broker answers."""
        from minibroker.topic_offsets import scene

        try:
            with self._administered() as client:
                return scene(client)
        except BrokerError as error:
            return str(error)

    def _check_settings(self, logged_bytes: int) -> None:
        """Raises BrokerError for given settings that the broker, in its log from there, does not know, or warns."""
        with self.log_file.open("rb") as log:
            log.seek(logged_bytes)
            lines = log.read().decode(errors="replace").splitlines()
        for name in self._settings:
            unknown = next((line for line in lines if f" {name}{UNKNOWN_SETTING}" in line), None)
            if unknown is not None:
                message = unknown[unknown.index(f" {name}{UNKNOWN_SETTING}") + 1 :].replace(SOURCE_OF_SETTINGS, "")
                if not self._takes_unknown_settings:
                    raise BrokerError(f"{message}\n{HOW_TO_TAKE_IT}")
                warnings.warn(message, SettingWarning, stacklevel=1 + frames_of_ours())

    def _how_it_ended(self) -> str | None:
        """Its obituary if it has ended; a connection breaks a moment before the process ends."""
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(DEATH_SECONDS)
        return None if self.is_running else self.obituary()

    def _transcript_file(self, given: bool | str | os.PathLike[str]) -> Path | None:
        if isinstance(given, bool):
            return self._work_dir / "transcript" if given else None
        return Path(given)

    def _opened_log(self) -> BinaryIO:
        """Raises BrokerError."""
        try:
            return self.log_file.open("ab")
        except OSError as error:
            raise BrokerError(f"cannot write the broker's log to {self.log_file}: {error.strerror}") from error

    def _variables(self) -> dict[str, str]:
        """The process's environment: ours, with only the given KAFKA_* variables."""
        if not self._environment:
            return dict(os.environ)
        ours = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
        return ours | {name: value for name, value in self._environment.items() if name not in OF_ITS_ADDRESS}

    def _command(self, ready_file: Path) -> list[str]:
        # -P: a module in the current directory, such as `json.py`, must not shadow ours.
        command = [sys.executable, "-P", "-m", "minibroker", "serve", "--parent-pid", str(os.getpid())]
        command += ["--listen", self._listeners(), "--data-dir", str(self.data_dir), "--ready-file", str(ready_file)]
        if self._security is not None:
            from minibroker.security import written

            command += ["--config", str(written(self._security.settings(), self._work_dir / "security.properties"))]
        if self._act_as is not None:
            command += ["--act-as", self._act_as]
        if self._environment:
            command.append("--environment")
        if self._control_path is not None:
            command += ["--control", str(self._control_path)]
        if self._counts:
            command.append("--count")
        if self._transcript_path is not None:
            command += ["--transcript", str(self._transcript_path)]
        if self._registry:
            command += ["--schema-registry", self._registry]
        if self._cluster_dir is not None:
            command += ["--cluster", str(self._cluster_dir)]
        for name, value in self._settings.items():
            text = str(value).lower() if isinstance(value, bool) else str(value)
            command += ["--set", f"{name}={text}"]
        return command

    def _wait_until_ready(
        self, process: subprocess.Popen[bytes], ready_file: Path, timeout_seconds: float
    ) -> tuple[str, str]:
        """The address, and that for administration. Raises BrokerError."""
        deadline = time.monotonic() + timeout_seconds
        while not ready_file.exists():
            if process.poll() is not None:
                raise BrokerError(f"the broker ended with status {process.returncode}:\n{self.last_log_lines()}")
            if time.monotonic() > deadline:
                raise BrokerError(f"the broker was not ready in {timeout_seconds:.0f} s:\n{self.last_log_lines()}")
            time.sleep(READY_POLL_SECONDS)
        address, *named = ready_file.read_text().splitlines()
        if self._registry:
            self._registry_url = named.pop().partition("=")[2]
            self._registry = self._registry_url.partition("://")[2]  # a restart keeps it
        if self._security is None:
            return address, address
        return address, named[-1].split()[0].partition("://")[2]

    def _listeners(self) -> str:
        """As --listen takes them."""
        if self._security is None:
            return self._listen
        return self._security.listeners(self._listen, self._administration or ADMINISTRATION_ADDRESS)

    def _fill(self, security: Security) -> None:
        """Give the broker its users and rules. Raises BrokerError."""
        from minibroker.administration import create_acls, create_scram_users

        with self._administered() as client:
            create_scram_users(client, security.users, security.scram_mechanisms)
            if security.acls:
                create_acls(client, security.acls)
