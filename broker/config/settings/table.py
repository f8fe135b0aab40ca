"""All settings of a Kafka 2.0 broker: those with an effect here as attributes, the others as names.

Names, types, bounds and defaults, but for one, are those that kafka 2.0.1 prints; a test compares them. The attribute
of `num.partitions` is `num_partitions`. A setting of Kafka without an effect here is accepted, and the log gives the
reason (`unused.py`).
"""

from __future__ import annotations

from pathlib import Path

from minibroker.broker.config.settings.types import (
    ANY,
    BOOLEAN,
    DOUBLE,
    DOUBLE_MAX,
    INT,
    INT_MAX,
    LIST,
    LONG,
    LONG_MAX,
    PASSWORD,
    PATH,
    PRINCIPALS,
    SHORT,
    STRING,
    Check,
    at_least,
    one_of,
    optional,
    setting,
    some_of,
)

HOUR_MS = 3_600_000
MINUTE_MS = 60_000
NONE: tuple[str, ...] = ()
TLS_VERSIONS: tuple[str, ...] = ("TLSv1.2", "TLSv1.1", "TLSv1")
DELETE: tuple[str, ...] = ("delete",)
NO_PRINCIPALS: tuple[str, ...] = ()
# The names of one authorizer, in the releases of Kafka that have it.
AUTHORIZERS = (
    "kafka.security.auth.SimpleAclAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
)
# The authorizer's own: in Kafka an authorizer reads these, and the broker does not know them.
SETTINGS_OF_AUTHORIZER = frozenset({"super.users", "allow.everyone.if.no.acl.found"})
GSSAPI: tuple[str, ...] = ("GSSAPI",)
PROTOCOL_MAP = "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"


OWN_AUTHORIZER = Check[str](
    lambda name: None if name in ("", *AUTHORIZERS) else "this broker cannot load Java classes",
    f"{' or '.join(AUTHORIZERS)}: they are one authorizer here",
)
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
OWN_SELECTOR = one_of("", RACK_AWARE_SELECTOR, "org.apache.kafka.common.replica.LeaderSelector")


CONSUMER_ASSIGNORS: tuple[str, ...] = ("uniform", "range")
ASSIGNORS_OF_GROUPS = Check[tuple[str, ...]](
    lambda names: None if names and set(names) <= set(CONSUMER_ASSIGNORS) else "this broker has uniform and range",
    "uniform, range, or both",
)
MIGRATIONS = ("bidirectional", "upgrade", "downgrade", "disabled")
MIGRATION_POLICY = Check[str](
    lambda name: (
        None
        if name.lower() in MIGRATIONS
        else f"String must be one of (case insensitive): {', '.join(MIGRATIONS).upper()}"
    ),
    f"one of {', '.join(MIGRATIONS)}",
)


class KafkaSettings:
    """The table. Durations and sizes have their unit in the name; -1 is "no limit" where Kafka has it so."""

    # Identity
    broker_id = setting(INT, -1, ANY, "this broker's number; -1 takes 0")
    broker_id_generation_enable = setting(BOOLEAN, True, ANY, "whether broker.id may be left out")
    reserved_broker_max_id = setting(INT, 1000, at_least(0), "the greatest broker.id that may be given")
    zookeeper_connect = optional(STRING, ANY, "HOST:PORT,.../root of the ZooKeeper that `serve --zookeeper` joins")
    zookeeper_connection_timeout_ms = optional(INT, ANY, "the wait for ZooKeeper at a start; else its session timeout")
    zookeeper_set_acl = setting(BOOLEAN, False, ANY, "refused with `serve --zookeeper`, which does not log in")
    zookeeper_session_timeout_ms = setting(INT, 6000, ANY, "a broker of a cluster that stands still for this expires")
    broker_rack = optional(STRING, ANY, "the broker's rack in Metadata")

    # Listeners
    listeners = optional(STRING, ANY, "NAME://host:port, comma separated; port 0 takes a free one")
    advertised_listeners = optional(STRING, ANY, "the addresses for clients; else the listeners")
    listener_security_protocol_map = setting(STRING, PROTOCOL_MAP, ANY, "NAME:PROTOCOL, comma separated")
    host_name = setting(STRING, "", ANY, "old form of listeners")
    port = setting(INT, 9092, ANY, "old form of listeners")
    advertised_host_name = optional(STRING, ANY, "old form of advertised.listeners")
    advertised_port = optional(INT, ANY, "old form of advertised.listeners")
    inter_broker_listener_name = optional(STRING, ANY, "the listener that other brokers use")
    security_inter_broker_protocol = setting(
        STRING, "PLAINTEXT", ANY, "that listener by its protocol, if it has no name"
    )

    # TLS of listeners; `listener.name.<name>.` in front makes one for a single listener
    ssl_keystore_location = optional(STRING, ANY, "the file with the listener's key and certificates")
    ssl_keystore_type = setting(STRING, "JKS", ANY, "PKCS12 or PEM; JKS stands for PKCS12, as Java reads it")
    ssl_keystore_password = optional(PASSWORD, ANY, "of a PKCS#12 key store")
    ssl_key_password = optional(PASSWORD, ANY, "of an encrypted key in PEM")
    ssl_keystore_key = optional(PASSWORD, ANY, "the key itself in PEM; Kafka has it from 2.7 on")
    ssl_keystore_certificate_chain = optional(PASSWORD, ANY, "its certificates in PEM; Kafka has it from 2.7 on")
    ssl_truststore_location = optional(STRING, ANY, "the file with the certificates to trust; else the system's")
    ssl_truststore_type = setting(STRING, "JKS", ANY, "PKCS12 or PEM, as ssl.keystore.type")
    ssl_truststore_password = optional(PASSWORD, ANY, "of a PKCS#12 trust store")
    ssl_truststore_certificates = optional(PASSWORD, ANY, "certificates to trust in PEM; Kafka has it from 2.7 on")
    ssl_client_auth = setting(STRING, "none", one_of("required", "requested", "none"), "a client's certificate")
    ssl_enabled_protocols = setting(LIST, TLS_VERSIONS, ANY, "TLSv1.2, TLSv1.3; older ones are never used")
    ssl_cipher_suites = setting(
        LIST, NONE, ANY, "cipher suites by their IANA names; all of OpenSSL's defaults if empty"
    )
    ssl_endpoint_identification_algorithm = setting(
        STRING, "https", ANY, "whether a broker checks the host in another one's certificate; empty: it does not"
    )
    ssl_principal_mapping_rules = setting(STRING, "DEFAULT", ANY, "a certificate's user; Kafka has it from 2.2 on")

    # Authorization
    authorizer_class_name = setting(STRING, "", OWN_AUTHORIZER, "asks ACLs for each request; empty: all is allowed")
    super_users = setting(PRINCIPALS, NO_PRINCIPALS, ANY, "principals that may do everything: User:a;User:b")
    allow_everyone_if_no_acl_found = setting(BOOLEAN, False, ANY, "whether a resource without ACLs is open to all")

    # Connections and requests
    socket_request_max_bytes = setting(INT, 104_857_600, at_least(1), "a longer request closes its connection")
    socket_send_buffer_bytes = setting(INT, 102_400, ANY, "SO_SNDBUF; -1 leaves it to the system")
    socket_receive_buffer_bytes = setting(INT, 102_400, ANY, "SO_RCVBUF; -1 leaves it to the system")
    queued_max_request_bytes = setting(LONG, -1, ANY, "bytes of the requests that are being read; -1 has no bound")
    connections_max_idle_ms = setting(LONG, 600_000, ANY, "an idle connection is closed after this")
    max_connections_per_ip = setting(INT, INT_MAX, at_least(0), "connections of one address at a time")
    max_connections_per_ip_overrides = setting(STRING, "", ANY, "address:count, comma separated")

    # Authentication; a login module is in listener.name.<listener>.<mechanism>.sasl.jaas.config
    sasl_enabled_mechanisms = setting(LIST, GSSAPI, ANY, "the mechanisms of SASL that clients may use")
    sasl_mechanism_inter_broker_protocol = setting(
        STRING, "GSSAPI", ANY, "by which brokers of a cluster log in to each other"
    )
    sasl_server_max_receive_size = setting(INT, 524_288, at_least(1), "a request before login (as Kafka 3.2)")
    sasl_oauthbearer_jwks_endpoint_url = optional(STRING, ANY, "file: URL of the keys that sign tokens (JWKS)")
    sasl_oauthbearer_expected_audience = setting(LIST, NONE, ANY, "signed tokens are for one of these; empty for any")
    sasl_oauthbearer_expected_issuer = optional(STRING, ANY, "the issuer of signed tokens")
    sasl_oauthbearer_clock_skew_seconds = setting(INT, 30, at_least(0), "tolerance for the times of signed tokens")
    sasl_oauthbearer_sub_claim_name = setting(STRING, "sub", ANY, "the claim of a signed token that names the user")
    connection_failed_authentication_delay_ms = setting(INT, 100, at_least(0), "a failed login waits (as Kafka 2.1)")
    connections_max_reauth_ms = setting(LONG, 0, ANY, "then clients must log in again (as Kafka 2.2)")

    # Topics
    num_partitions = setting(INT, 1, at_least(1), "partitions of a new topic, unless it names a number")
    default_replication_factor = setting(INT, 1, ANY, "replicas of a topic that is created automatically")
    auto_create_topics_enable = setting(BOOLEAN, True, ANY, "whether using a topic creates it")
    delete_topic_enable = setting(BOOLEAN, True, ANY, "whether topics may be deleted")
    min_insync_replicas = setting(INT, 1, at_least(1), "replicas in sync for an acks=all produce to succeed")
    replica_selector_class = setting(
        STRING, "", OWN_SELECTOR, "which replica consumers read; Kafka has it from 2.4 on. Empty: the leader"
    )
    auto_leader_rebalance_enable = setting(
        BOOLEAN, True, ANY, "whether the controller has preferred replicas lead again by itself"
    )
    leader_imbalance_check_interval_seconds = setting(LONG, 300, ANY, "and how often it looks")
    leader_imbalance_per_broker_percentage = setting(
        INT, 10, ANY, "of a broker's partitions; it acts if more of them are led by others"
    )
    unclean_leader_election_enable = setting(BOOLEAN, False, ANY, "whether a stale replica may lead")
    compression_type = setting(STRING, "producer", ANY, "codec of the log; producer keeps the producer's")
    message_max_bytes = setting(INT, 1_000_012, at_least(0), "the greatest batch that is accepted")

    # Logs: where, and in which pieces
    log_dir = setting(PATH, Path("/tmp/kafka-logs"), ANY, "the data directory; log.dirs wins over it")
    log_dirs = optional(STRING, ANY, "the data directory; one")
    log_segment_bytes = setting(INT, 1_073_741_824, at_least(14), "a segment of this size is closed")
    log_roll_ms = optional(LONG, ANY, "a segment of this age is closed")
    log_roll_hours = setting(INT, 168, at_least(1), "log.roll.ms in hours, if that is not set")
    log_roll_jitter_ms = optional(LONG, ANY, "at most this is taken off log.roll.ms, at random")
    log_roll_jitter_hours = setting(INT, 0, at_least(0), "log.roll.jitter.ms in hours, if that is not set")
    log_index_size_max_bytes = setting(INT, 10_485_760, at_least(4), "size of an offset index")
    log_index_interval_bytes = setting(INT, 4096, at_least(0), "log bytes between index entries")
    log_preallocate = setting(BOOLEAN, False, ANY, "whether a new segment takes its space at once")

    # Logs: how long records stay
    log_cleanup_policy = setting(LIST, DELETE, some_of("compact", "delete"), "delete old records, or compact, or both")
    log_retention_ms = optional(LONG, ANY, "records older than this are deleted; -1 never")
    log_retention_minutes = optional(INT, ANY, "log.retention.ms in minutes, if that is not set")
    log_retention_hours = setting(INT, 168, ANY, "log.retention.ms in hours, if neither is set")
    log_retention_bytes = setting(LONG, -1, ANY, "the oldest segments of a longer log are deleted; -1 never")
    log_retention_check_interval_ms = setting(LONG, 300_000, at_least(1), "how often retention is checked")
    log_segment_delete_delay_ms = setting(LONG, 60_000, at_least(0), "files are kept this long after deletion")
    log_cleaner_enable = setting(BOOLEAN, True, ANY, "whether compacted topics are compacted")
    log_cleaner_threads = setting(INT, 1, at_least(0), "accepted; one log is compacted at a time")
    log_cleaner_backoff_ms = setting(LONG, 15_000, at_least(0), "pause when no log needs compaction")
    log_cleaner_dedupe_buffer_size = setting(LONG, 134_217_728, ANY, "memory for keys, bytes; 192 a key")
    log_cleaner_io_buffer_size = setting(INT, 524_288, at_least(0), "half of it is read at a time, bytes")
    log_cleaner_io_buffer_load_factor = setting(DOUBLE, 0.9, ANY, "how full the table of keys may be")
    log_cleaner_io_max_bytes_per_second = setting(DOUBLE, DOUBLE_MAX, ANY, "bytes read and written while compacting")
    log_cleaner_min_cleanable_ratio = setting(DOUBLE, 0.5, ANY, "compact a log from this dirty part on")
    log_cleaner_delete_retention_ms = setting(LONG, 86_400_000, ANY, "how long a tombstone stays")
    log_cleaner_min_compaction_lag_ms = setting(LONG, 0, ANY, "how long a record stays uncompacted at least")
    log_cleaner_max_compaction_lag_ms = setting(LONG, LONG_MAX, at_least(1), "and at most; Kafka has it from 2.3 on")

    # Logs: when they are fsynced
    log_flush_interval_messages = setting(LONG, LONG_MAX, at_least(1), "fsync after so many records")
    log_flush_interval_ms = optional(LONG, ANY, "fsync when a record has waited so long")
    log_flush_scheduler_interval_ms = setting(LONG, LONG_MAX, ANY, "how often that is checked")
    log_flush_offset_checkpoint_interval_ms = setting(INT, 60_000, at_least(0), "recovery points are written")
    log_flush_start_offset_checkpoint_interval_ms = setting(INT, 60_000, at_least(0), "start offsets, likewise")

    # Logs: formats and timestamps
    log_message_format_version = setting(STRING, "2.0-IV1", ANY, "the Kafka version whose batch format the log has")
    inter_broker_protocol_version = setting(STRING, "2.0-IV1", ANY, "what brokers of a cluster speak")
    log_message_timestamp_type = setting(
        STRING, "CreateTime", one_of("CreateTime", "LogAppendTime"), "the producer's timestamps, or the broker's"
    )
    log_message_timestamp_difference_max_ms = setting(LONG, LONG_MAX, ANY, "how wrong a producer's clock may be")
    log_message_downconversion_enable = setting(BOOLEAN, True, ANY, "whether to down-convert for old consumers")

    # Fetching and replication
    max_incremental_fetch_session_cache_slots = setting(INT, 1000, at_least(0), "fetch sessions at most; 0 for none")
    fetch_purgatory_purge_interval_requests = setting(INT, 1000, ANY, "ended waits kept before a clean-up")
    producer_purgatory_purge_interval_requests = setting(INT, 1000, ANY, "ended waits kept before a clean-up")
    delete_records_purgatory_purge_interval_requests = setting(INT, 1, ANY, "ended waits kept, likewise")
    replica_lag_time_max_ms = setting(LONG, 10_000, ANY, "a follower that lags longer leaves the ISR")
    num_replica_fetchers = setting(INT, 1, ANY, "fetchers for each leader that this broker follows")
    replica_fetch_wait_max_ms = setting(INT, 500, ANY, "how long a follower's fetch waits")
    controller_socket_timeout_ms = setting(INT, 30_000, ANY, "of requests of the controller")
    replica_fetch_min_bytes = setting(INT, 1, ANY, "records for which it waits, unless the time is up")
    replica_fetch_max_bytes = setting(INT, 1_048_576, at_least(0), "records of a partition in an answer to it")
    replica_fetch_response_max_bytes = setting(INT, 10_485_760, at_least(0), "records of all partitions, likewise")
    replica_fetch_backoff_ms = setting(INT, 1000, at_least(0), "a partition waits after an error of its leader")
    replica_socket_timeout_ms = setting(INT, 30_000, ANY, "of requests to another broker")
    replica_high_watermark_checkpoint_interval_ms = setting(LONG, 5000, ANY, "high watermarks are written")

    # Quotas
    quota_producer_default = setting(LONG, LONG_MAX, at_least(1), "bytes/s of client ids without a quota")
    quota_consumer_default = setting(LONG, LONG_MAX, at_least(1), "bytes/s of client ids without a quota")
    quota_window_num = setting(INT, 11, at_least(1), "samples of the window in which rates are measured")
    quota_window_size_seconds = setting(INT, 1, at_least(1), "and the length of a sample")
    replication_quota_window_num = setting(INT, 11, at_least(1), "samples of the window of replication throttles")
    replication_quota_window_size_seconds = setting(INT, 1, at_least(1), "and the length of a sample")

    # Groups and their offsets
    group_min_session_timeout_ms = setting(INT, 6000, ANY, "the least session timeout of a member")
    group_max_session_timeout_ms = setting(INT, 300_000, ANY, "and the greatest")
    group_initial_rebalance_delay_ms = setting(INT, 3000, ANY, "how long a new group waits for more members")

    # Groups of the consumer protocol (KIP-848)
    group_consumer_session_timeout_ms = setting(INT, 45_000, at_least(1), "a member unheard of for this is removed")
    group_consumer_heartbeat_interval_ms = setting(INT, 5000, at_least(1), "how often a member sends a heartbeat")
    group_consumer_min_session_timeout_ms = setting(INT, 45_000, at_least(1), "the least that a group may have itself")
    group_consumer_max_session_timeout_ms = setting(INT, 60_000, at_least(1), "and the greatest")
    group_consumer_min_heartbeat_interval_ms = setting(INT, 5000, at_least(1), "likewise of its heartbeats")
    group_consumer_max_heartbeat_interval_ms = setting(INT, 15_000, at_least(1), "and the greatest")
    group_consumer_min_assignment_interval_ms = setting(INT, 0, at_least(0), "likewise between its assignments")
    group_consumer_max_assignment_interval_ms = setting(INT, 15_000, at_least(0), "and the greatest")
    group_consumer_max_size = setting(INT, INT_MAX, at_least(1), "members of a group")
    group_consumer_assignors = setting(
        LIST, CONSUMER_ASSIGNORS, ASSIGNORS_OF_GROUPS, "who assigns partitions; the first where members ask for none"
    )
    group_consumer_assignment_interval_ms = setting(INT, 1000, at_least(0), "the least time between two assignments")
    group_consumer_migration_policy = setting(
        STRING, "bidirectional", MIGRATION_POLICY, "whether live groups change their protocol with their members"
    )
    group_share_session_timeout_ms = setting(INT, 45_000, at_least(1), "of members of share groups, likewise")
    group_share_min_session_timeout_ms = setting(INT, 45_000, at_least(1), "the least that a share group may have")
    group_share_max_session_timeout_ms = setting(INT, 60_000, at_least(1), "and the greatest")
    group_share_heartbeat_interval_ms = setting(INT, 5000, at_least(1), "how often a member sends a heartbeat")
    group_share_min_heartbeat_interval_ms = setting(INT, 5000, at_least(1), "likewise of its heartbeats")
    group_share_max_heartbeat_interval_ms = setting(INT, 15_000, at_least(1), "and the greatest")
    group_share_max_size = setting(SHORT, 200, at_least(1), "members of a share group")
    group_share_record_lock_duration_ms = setting(INT, 30_000, at_least(1000), "a record is held so long")
    group_share_min_record_lock_duration_ms = setting(INT, 15_000, at_least(1000), "the least of a share group")
    group_share_max_record_lock_duration_ms = setting(INT, 60_000, at_least(30_000), "and the greatest")
    group_share_delivery_count_limit = setting(INT, 5, at_least(2), "how often a record is delivered at most")
    group_share_min_delivery_count_limit = setting(INT, 2, at_least(2), "the least of a share group")
    group_share_max_delivery_count_limit = setting(INT, 10, at_least(2), "and the greatest")
    group_share_partition_max_record_locks = setting(INT, 2000, at_least(100), "records in flight at most")
    group_share_min_partition_max_record_locks = setting(INT, 100, at_least(1), "the least of a share group")
    group_share_max_partition_max_record_locks = setting(INT, 4000, at_least(1), "and the greatest")
    group_share_max_share_sessions = setting(INT, 2000, at_least(1), "share sessions at most")
    errors_deadletterqueue_topic_name_prefix = setting(
        STRING, "dlq.", ANY, "how names of dead-letter queues must begin"
    )
    errors_deadletterqueue_auto_create_topics_enable = setting(
        BOOLEAN, False, ANY, "whether a dead-letter queue that does not exist is created"
    )
    share_coordinator_state_topic_num_partitions = setting(INT, 50, at_least(1), "of __share_group_state")
    share_coordinator_state_topic_replication_factor = setting(SHORT, 3, at_least(1), "likewise, unless alone")
    share_coordinator_state_topic_min_isr = setting(SHORT, 2, at_least(1), "likewise, unless alone")
    share_coordinator_state_topic_segment_bytes = setting(INT, 104_857_600, at_least(1), "segments, likewise")
    share_coordinator_snapshot_update_records_per_snapshot = setting(INT, 500, at_least(0), "updates to a snapshot")
    group_consumer_regex_refresh_interval_ms = setting(
        INT, 600_000, at_least(10_000), "between look-ups of the topics that a regular expression matches"
    )
    offset_metadata_max_bytes = setting(INT, 4096, ANY, "the longest metadata of a committed offset")
    offsets_commit_required_acks = setting(SHORT, -1, ANY, "acks of the append that stores offsets")
    offsets_commit_timeout_ms = setting(INT, 5000, at_least(1), "and how long it may take")
    offsets_load_buffer_size = setting(INT, 5_242_880, at_least(1), "bytes read at a time when loading")
    offsets_retention_minutes = setting(INT, 10_080, at_least(1), "how long an offset stays after its commit")
    offsets_retention_check_interval_ms = setting(LONG, 600_000, at_least(1), "how often that is checked")
    offsets_topic_num_partitions = setting(INT, 50, at_least(1), "of __consumer_offsets")
    offsets_topic_replication_factor = setting(
        SHORT, 3, at_least(1), "of __consumer_offsets; 1 where a broker is the whole cluster"
    )
    offsets_topic_segment_bytes = setting(INT, 104_857_600, at_least(1), "of __consumer_offsets")
    offsets_topic_compression_codec = setting(INT, 0, ANY, "of __consumer_offsets, by number")

    # Transactions
    transactional_id_expiration_ms = setting(INT, 604_800_000, at_least(1), "of idle ids and producers' state")
    transaction_max_timeout_ms = setting(INT, 900_000, at_least(1), "the greatest transaction timeout")
    transaction_abort_timed_out_transaction_cleanup_interval_ms = setting(
        INT, 10_000, at_least(1), "how often timed-out transactions are aborted; 60000 in Kafka 2.0"
    )
    transaction_remove_expired_transaction_cleanup_interval_ms = setting(
        INT, 3_600_000, at_least(1), "how often expired ids are forgotten"
    )
    transaction_state_log_num_partitions = setting(INT, 50, at_least(1), "of __transaction_state")
    transaction_state_log_replication_factor = setting(
        SHORT, 3, at_least(1), "of __transaction_state; 1 where a broker is the whole cluster"
    )
    transaction_state_log_min_isr = setting(INT, 2, at_least(1), "its min.insync.replicas, likewise")
    transaction_state_log_segment_bytes = setting(INT, 104_857_600, at_least(1), "of __transaction_state")
    transaction_state_log_load_buffer_size = setting(INT, 5_242_880, at_least(1), "bytes read when loading")

    # Metrics
    metrics_recording_level = setting(STRING, "INFO", ANY, "INFO or DEBUG; metrics have no level here")

    # Values derived from several settings

    @property
    def log_roll_time_ms(self) -> int:
        return self.log_roll_hours * HOUR_MS if self.log_roll_ms is None else self.log_roll_ms

    @property
    def log_roll_jitter_time_ms(self) -> int:
        return self.log_roll_jitter_hours * HOUR_MS if self.log_roll_jitter_ms is None else self.log_roll_jitter_ms

    @property
    def log_retention_time_ms(self) -> int:
        """-1 for ever."""
        if self.log_retention_ms is not None:
            time_ms = self.log_retention_ms
        elif self.log_retention_minutes is not None:
            time_ms = self.log_retention_minutes * MINUTE_MS
        else:
            time_ms = self.log_retention_hours * HOUR_MS
        return max(time_ms, -1)

    @property
    def log_flush_time_ms(self) -> int:
        if self.log_flush_interval_ms is None:
            return self.log_flush_scheduler_interval_ms
        return self.log_flush_interval_ms
