"""Whether a directory is on a disk of this machine: locks and appends over a network are not to be trusted."""

from __future__ import annotations

import os
from pathlib import Path

from minibroker.storage.files import disk

MOUNTS = Path("/proc/self/mountinfo")
OVER_A_NETWORK = frozenset(
    {"9p", "afs", "ceph", "cifs", "fuse.sshfs", "gfs2", "glusterfs", "lustre", "nfs", "nfs4", "smb3", "virtiofs"}
)


def network_file_system(directory: Path) -> str | None:
    """The file system of a directory if it is one over a network, else None. Raises OSError."""
    device = disk.stat(directory).st_dev
    name = f"{os.major(device)}:{os.minor(device)}"
    for line in MOUNTS.read_text().splitlines():
        fields, _, rest = line.partition(" - ")
        if fields.split()[2] == name:
            kind = rest.split()[0]
            return kind if kind in OVER_A_NETWORK else None
    return None
