"""`python -m minibroker.broker.wings.security.sasl.offline DIR`: the SCRAM users of a broker that is not running.

`minibroker users --data-dir DIR` runs it: a secured broker has no first user who could add others. Reads a JSON object
from standard input: `changes`, each `[user, mechanism]` or `[user, mechanism, iterations, salt, salted password]`, the
last two in hexadecimal. Prints one: `errors` by user, and `users`, each with `[mechanism, iterations]`. The data
directory is created if it is missing, and locked meanwhile.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from minibroker.broker.cluster.file_state import FileState, FileStateError
from minibroker.broker.wings.security.sasl.users import CREDENTIALS, SALT_KEY, ScramUsers
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.scram import Deletion, Upsertion
from minibroker.storage.data_dir.directory_lock import DirectoryLock
from minibroker.storage.files.storage_errors import LogDirectoryError

NO_BROKER = 0  # the number of a broker counts only for new partitions, and none is made


def main(directory: str) -> int:
    """Answer one question; the exit status is 1 and standard error has one line if that fails."""
    lock = DirectoryLock(Path(directory))
    try:
        lock.acquire()
        state = FileState(Path(directory), NO_BROKER, [CREDENTIALS, SALT_KEY])
        state.read()
        print(json.dumps(answer_to(json.load(sys.stdin), ScramUsers(state))))
        state.close()
    except (LogDirectoryError, FileStateError, KafkaError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        lock.release()
    return 0


def answer_to(question: dict[str, Any], users: ScramUsers) -> dict[str, Any]:
    """Raises KafkaError if the change cannot be stored."""
    changes = question.get("changes", ())
    outcomes = users.alter(
        [Deletion(*change) for change in changes if len(change) == len(Deletion._fields)],
        [
            Upsertion(*change[:3], *map(bytes.fromhex, change[3:]))
            for change in changes
            if len(change) == len(Upsertion._fields)
        ],
    )
    return {
        "errors": {user: None if error is None else str(error) for user, error in outcomes.items()},
        "users": {user: users.described(user) for user in users.names()},
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
