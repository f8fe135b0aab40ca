"""The versions of each API in Apache Kafka 2.0.1, and the settings that it does not have."""

from minibroker.broker.config.profiles import profile_of

OF_2_0 = profile_of("2.0")
# From kafka 2.0.1 ApiKeys: the last version of each API it has.
LAST_VERSIONS_OF_KAFKA_2_0 = {
    0: 6, 1: 8, 2: 3, 3: 6, 8: 4, 9: 4, 10: 2, 11: 3, 12: 2, 13: 2, 14: 2, 15: 2, 16: 2, 17: 1, 18: 2, 19: 3, 20: 2,
    21: 1, 22: 1, 23: 1, 24: 1, 25: 1, 26: 1, 27: 0, 28: 1, 29: 1, 30: 1, 31: 1, 32: 2, 33: 1, 34: 1, 35: 1, 36: 0,
    37: 1, 38: 1, 39: 1, 40: 1, 41: 1, 42: 1,
}  # fmt: skip


def is_later(setting: str) -> bool:
    """Whether a setting, or a config of topics, came after 2.0.1."""
    return setting in OF_2_0.unknown_topic_configs or not OF_2_0.has_setting(setting)
