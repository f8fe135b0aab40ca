"""Work that would hold up the loop runs in a thread: fsyncs, deletions, compaction. A simulation replaces the name."""

from __future__ import annotations

import trio

run_sync = trio.to_thread.run_sync
