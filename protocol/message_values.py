"""Values of messages that stand for something else, in fields of several messages or for clients and broker alike."""

from __future__ import annotations

# Replica ids of a Fetch or ListOffsets that no broker sends.
CONSUMER_REPLICA_ID = -1
NOT_THROTTLED = 0  # the throttle time of an answer, as it is made
DEBUGGING_REPLICA_ID = -2  # may read from any replica

READ_UNCOMMITTED, READ_COMMITTED = 0, 1  # isolation levels

# In place of a timestamp.
LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2

NO_LEADER = -1  # in place of a broker's id

BROKERS_DEFAULT = -1  # for the number of partitions or replicas of a new topic

# Member epochs in a ConsumerGroupHeartbeat.
NEW_EPOCH = 0  # of a member that joins
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2  # of a static member that will come back

CLASSIC, CONSUMER, SHARE = "classic", "consumer", "share"  # types of groups
CONSUMER_PROTOCOL_TYPE = "consumer"  # of groups of consumers, of either type

EXACT, IS_DEFAULT, SPECIFIED = range(3)  # how a filter of quotas matches names
