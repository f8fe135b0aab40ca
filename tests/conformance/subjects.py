"""The subjects compared with a live Apache Kafka 2.0.1, beside conversations: each has its recording."""

from __future__ import annotations

from functools import partial

from tests.conformance import acl_matrix, assignments, quota_histories, quotas, sasl, settings
from tests.conformance.recordings import Subject

FILES, OTHER_FILES = range(1, settings.FILES + 1), range(1000, 1020)
SUBJECTS = {
    "rights": Subject(acl_matrix.RECORDED, acl_matrix.compared),
    "logins": Subject(sasl.RECORDED, sasl.compared),
    "throttling": Subject(quotas.RECORDED, quotas.compared),
    "quotas": Subject(
        quota_histories.RECORDED, quota_histories.compared, range(quota_histories.HISTORIES), range(10_000, 12_000)
    ),
    "assignments": Subject(assignments.RECORDED, assignments.compared, range(assignments.CASES), range(10_000, 14_000)),
    "settings": Subject(settings.RECORDED, settings.compared, FILES, OTHER_FILES),
    "encrypted-settings": Subject(
        settings.RECORDED_ENCRYPTED, partial(settings.compared, encrypted=True), FILES, OTHER_FILES
    ),
}
