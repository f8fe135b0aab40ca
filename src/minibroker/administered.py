"""The methods that a broker and a cluster of a test have alike, by requests of their own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from minibroker.errors import BrokerError

if TYPE_CHECKING:
    from minibroker.acl import Acl
    from minibroker.client.client import Client
    from minibroker.records import Given, Record
    from minibroker.security import Security

WAIT_SECONDS = 5.0

T = TypeVar("T")


class Administered(ABC):
    """A broker or a cluster that this process has started; `_security` is None of an open one."""

    _security: Security | None

    @contextmanager
    def _administered(self) -> Iterator[Client]:
        """A client for administration. Raises BrokerError, also for refusals."""
        from minibroker.administration import connected
        from minibroker.client.errors import ClientError
        from minibroker.protocol.errors import KafkaError
        from minibroker.protocol.sasl_client import LoginError

        login = None if self._security is None else self._security.administrator
        try:
            with connected(self._administration_addresses(), login) as client:
                yield client
        except KafkaError as error:
            raise BrokerError(f"the broker refused: {error.message}") from error
        except (ClientError, LoginError) as error:
            raise BrokerError(self._why_no_answer(error)) from error

    @abstractmethod
    def _administration_addresses(self) -> str:
        """The addresses where our own requests are taken, with commas between. Raises BrokerError if none runs."""

    def _why_no_answer(self, error: Exception) -> str:
        return str(error)

    @property
    @abstractmethod
    def bootstrap_servers(self) -> str:
        """The addresses for clients."""

    @abstractmethod
    def _check_alive(self) -> None:
        """Raises BrokerError when waiting has no more use."""

    @abstractmethod
    def _scene(self) -> str:
        """The state that a test wants to see that has waited in vain."""

    def produce(self, topic: str, records: Iterable[Given], *, partition: int | None = None) -> list[Record]:
        """Append records to a topic with acks=all; return them with their partitions, offsets and times.

            broker.produce("orders", [b"a value", ("a key", "a value"), None, Record(b"value", headers=(("n", b"1"),))])

        Each is a value, a pair of a key and a value, or a `Record`; text becomes UTF-8, and None is null. Without
        `partition`, keys go where Kafka's Java client sends them, records without a key to each partition in turn. A
        topic that is missing is created as for any producer. Raises BrokerError.
        """
        from minibroker.records import append_records

        if isinstance(records, str | bytes):
            raise TypeError(f"records must be a list, such as [{records!r}]")
        with self._administered() as client:
            return append_records(client, topic, records, partition=partition)

    def records(
        self,
        topic: str,
        n: int | None = None,
        *,
        timeout: float = WAIT_SECONDS,
        partition: int | None = None,
        read_committed: bool = False,
    ) -> list[Record]:
        """The records of a topic, from its start, in the order of partitions and offsets.

            assert [record.value for record in broker.records("orders", n=2)] == [b"one", b"two"]

        With `n`, wait until there are that many, for at most `timeout` seconds; more than `n` are returned if more
        have come, so a comparison finds duplicates. Without `n`, return those that are there. `partition` reads one
        partition, `read_committed` leaves out the records of open and of aborted transactions. Raises WaitError when
        the time is over, with what came instead, and BrokerError.
        """
        from minibroker.topic_reader import read_records

        with self._administered() as client:
            return read_records(client, topic, n=n, timeout=timeout, partition=partition, read_committed=read_committed)

    def client_settings(self, library: str, *, user: str | None = None, mechanism: str | None = None) -> Any:
        """The settings with which that library connects, and on a secured broker logs in, in the library's own form.

            Producer(broker.client_settings("confluent-kafka", user="alice"))

        For "confluent-kafka", "java" and "spark" (options) a dict of properties; for "kafka-python" and "aiokafka"
        keyword arguments; for "kcat" a list of arguments; for "kafkajs" the object of `new Kafka`, and for "franz-go"
        brokers, files and user, both as JSON has them. Without `user` it is for the super user, without `mechanism` by
        the broker's first. Raises ValueError for one that the broker does not have, and BrokerError before `start`.
        """
        from minibroker.client_settings import Access, client_settings

        if self._security is not None:
            access = self._security.access(self.bootstrap_servers, user, mechanism)
        elif user is not None or mechanism is not None:
            raise ValueError("an open broker has no users; start it with Broker(security=..., users=...)")
        else:
            access = Access(self.bootstrap_servers)
        return client_settings(library, access)

    def add_acls(self, *acls: Acl) -> None:
        """Allow or deny more to users of a secured broker, from their next request on. Raises BrokerError."""
        from minibroker.administration import create_acls

        with self._administered() as client:
            create_acls(client, acls)

    def remove_acls(self, *acls: Acl) -> None:
        """Remove rules, each given as it was added, from the next request on. Raises BrokerError."""
        from minibroker.administration import delete_acls

        with self._administered() as client:
            delete_acls(client, acls)

    def add_users(self, users: Mapping[str, str]) -> None:
        """Let more users log in to a secured broker, with passwords by name and the mechanisms SCRAM-SHA-... that it
        has. Raises BrokerError."""
        from minibroker.administration import create_scram_users

        security = self._secured()
        with self._administered() as client:
            create_scram_users(client, users, security.scram_mechanisms)
        security.users |= users

    def remove_users(self, *names: str) -> None:
        """Remove what users log in with by SCRAM; open connections stay. Raises BrokerError."""
        from minibroker.administration import delete_scram_users

        security = self._secured()
        with self._administered() as client:
            delete_scram_users(client, names, security.scram_mechanisms)
        for name in names:
            security.users.pop(name, None)

    def _secured(self) -> Security:
        if self._security is None or not self._security.scram_mechanisms:
            raise BrokerError('users log in by SCRAM: start with security="SASL_SSL" or "SASL_PLAINTEXT"')
        return self._security

    def topics(self) -> dict[str, int]:
        """The number of partitions of each topic, by name, without internal topics. Raises BrokerError."""
        from minibroker.topic_offsets import topic_partitions

        with self._administered() as client:
            return {name: len(numbers) for name, numbers in topic_partitions(client).items()}

    def wait_for(self, condition: Callable[[], T], *, timeout: float = WAIT_SECONDS) -> T:
        """Call `condition` until it returns something true; return that.

            broker.wait_for(lambda: broker.lag("billing") == 0)

        AssertionError and BrokerError of the condition count as not yet. Raises WaitError after `timeout` seconds, with
        the last result or error, the topics and the groups; and BrokerError as soon as the broker has died.
        """
        from minibroker.waiting import wait_for

        return wait_for(condition, timeout=timeout, check=self._check_alive, scene=self._scene)
