"""A disk in memory, in place of `storage/files/disk.py`: what a crash leaves of it is drawn.

Each file has its content as the kernel shows it, and as it was when it was last synced. A process that is killed
leaves the first. A power failure leaves of each sector that differs either one, and of the names in a directory those
that were synced, with the first few of the changes since: a journaling file system keeps their order.

Descriptors belong to the process that opened them, and close with it. Locks and watches end with descriptors.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import stat as modes
import struct
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import trio

from minibroker.simulation.world import EPOCH_MS, Process, World, wait_for

SECTOR = 512
FIRST_DESCRIPTOR = 1 << 20  # above those of the system: one that is mixed up is found out
READING = {"pread", "mmap"}
WRITING = {"pwrite", "write", "fallocate", "mkdir", "rename", "copy"}
LOCK = struct.Struct("hhqqi4x")
descriptors = count(FIRST_DESCRIPTOR)  # never used twice, also by later disks: objects close theirs when they are freed
Name = str | os.PathLike[str]


class Content(bytearray):
    """The bytes of a file, which a process may map: so they have the methods of a map."""

    def close(self) -> None: ...

    def madvise(self, *_: int) -> None: ...

    def flush(self) -> None: ...


class File:
    __slots__ = ("content", "lock", "mtime_ns", "synced")

    def __init__(self) -> None:
        self.content = Content()
        self.synced = b""
        self.mtime_ns = 0
        self.lock: Open | None = None

    def resize(self, size: int) -> None:
        content = self.content
        if size == len(content):
            return
        try:
            if size < len(content):
                del content[size:]
            else:
                content.extend(bytes(size - len(content)))
        except BufferError:  # it is mapped: the map keeps what it has
            self.content = Content(content[:size])
            self.content.extend(bytes(size - len(self.content)))

    def lose_power(self, random: Random) -> None:
        """Keep of each sector that is not synced the old or the new."""
        new, old = bytes(self.content), self.synced
        if new != old:
            kind = random.random()
            size = len(new) if kind < 0.6 else len(old) if kind < 0.8 else random.randint(*sorted((len(old), len(new))))
            kept = bytearray(size)
            for start in range(0, size, SECTOR):
                source = new if random.random() < 0.5 else old
                part = source[start : min(start + SECTOR, size)]
                kept[start : start + len(part)] = part
            self.content = Content(kept)
        else:
            self.content = Content(new)
        self.synced = bytes(self.content)
        self.lock = None


class Directory:
    __slots__ = ("entries", "synced")

    def __init__(self) -> None:
        self.entries: dict[str, File | Directory] = {}
        self.synced: dict[str, File | Directory] = {}


Node = File | Directory
Change = list[tuple[Directory, str, Node | None]]  # of names, in one step


class Open:
    __slots__ = ("flags", "node", "path", "process")

    def __init__(self, node: Node, path: str, flags: int, process: Process) -> None:
        self.node = node
        self.path = path
        self.flags = flags
        self.process = process

    def file(self) -> File:
        if not isinstance(self.node, File):
            raise error(errno.EISDIR, self.path)
        return self.node


class MemoryDisk:
    """`install` puts it in the place of the module; paths begin with the name of a volume, as `/1/data`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._root = Directory()
        self._open: dict[int, Open] = {}
        self._changes: dict[str, list[Change]] = {}  # of names that are not synced, by volume
        self._watches: list[Watch] = []
        self.bad: dict[str, int] = {}  # errno by volume: its calls that write fail, with EIO also those that read

    # -- the process that calls -------------------------------------------------------------------------------

    def _called(self, name: str, path: str) -> Process:
        """Count a call of the process that runs. Raises Died, and OSError for a call that is to fail."""
        process = self._world.process()
        process.count_call()
        self._world.note(process.name, name, path)
        if process.calls == process.crash_at:
            self.kill(process)
            self._world.process()
        code = process.failing.pop(process.calls, 0) or (self.bad and self._code_of(name, volume_of(path)))
        if code:
            raise error(code, path)
        return process

    def _code_of(self, name: str, volume: str) -> int:
        code = self.bad.get(volume, 0)
        return code if name in WRITING or (code == errno.EIO and name in READING) else 0

    def kill(self, process: Process) -> None:
        """End a process: its descriptors close."""
        process.end()
        for fd in [fd for fd, each in self._open.items() if each.process is process]:
            self._close(fd)

    def lose_power(self, volume: str, random: Random) -> None:
        """Lose what is not synced of a volume; the processes that use it have ended."""
        changes = self._changes.pop(volume, [])
        for change in changes[: random.randint(0, len(changes))]:
            for directory, name, node in change:
                take(directory.synced, name, node)
        root = self._root.entries.get(volume)
        if isinstance(root, Directory):
            for node in nodes_in(root, lambda directory: directory.synced):
                if isinstance(node, File):
                    node.lose_power(random)
                else:
                    node.entries = dict(node.synced)

    def wipe(self, volume: str) -> None:
        """Lose everything of a volume, as with its disk; the processes that use it have ended."""
        self._changes.pop(volume, None)
        self._root.entries.pop(volume, None)
        self._root.synced.pop(volume, None)

    def rot(self, volume: str, suffixes: tuple[str, ...], random: Random) -> str:
        """Turn a bit of one file with such a name; return its name, or nothing if there is none."""
        found = [each for each in sorted(self.files(f"/{volume}")) if each.endswith(suffixes)]
        name = random.choice(found) if found else ""
        node = self._find(f"/{volume}/{name}")
        if not isinstance(node, File) or not node.content:
            return ""
        bit = random.randrange(8 * len(node.content))
        node.content[bit // 8] ^= 1 << bit % 8
        node.synced = bytes(node.content)
        return name

    def files(self, path: Name) -> dict[str, bytes]:
        """All files of a directory by their paths below it; for those who look on."""
        found = {}
        node = self._find(str(path))
        if isinstance(node, Directory):
            for name, each in node.entries.items():
                if isinstance(each, File):
                    found[name] = bytes(each.content)
                else:
                    found |= {f"{name}/{rest}": content for rest, content in self.files(f"{path}/{name}").items()}
        return found

    # -- names ------------------------------------------------------------------------------------------------

    def _find(self, path: str) -> Node | None:
        node: Node | None = self._root
        for name in path.split("/"):
            if name:
                node = node.entries.get(name) if isinstance(node, Directory) else None
        return node

    def _found(self, path: str) -> Node:
        node = self._find(path)
        if node is None:
            raise error(errno.ENOENT, path)
        return node

    def _directory(self, path: str) -> Directory:
        node = self._found(path)
        if not isinstance(node, Directory):
            raise error(errno.ENOTDIR, path)
        return node

    def _change(self, path: str, *changes: tuple[str, Node | None]) -> None:
        """Change names in one step; all are of one volume."""
        change: Change = []
        for each, node in changes:
            parent, _, name = each.rpartition("/")
            directory = self._directory(parent)
            take(directory.entries, name, node)
            change.append((directory, name, node))
        self._changes.setdefault(volume_of(path), []).append(change)

    def _file_at(self, path: Name, name: str) -> File:
        text = str(path)
        self._called(name, text)
        node = self._found(text)
        if not isinstance(node, File):
            raise error(errno.EISDIR, text)
        return node

    def open_file(self, path: Name, flags: int, mode: int = 0o777) -> int:
        text = str(path)
        process = self._called("open", text)
        node = self._find(text)
        if node is None:
            if not flags & os.O_CREAT:
                raise error(errno.ENOENT, text)
            node = File()
            node.mtime_ns = self._now_ns()
            self._change(text, (text, node))
        if flags & os.O_TRUNC and isinstance(node, File):
            node.resize(0)
        fd = next(descriptors)
        self._open[fd] = Open(node, text, flags, process)
        return fd

    def close(self, fd: int) -> None:
        if fd in self._open:  # else the process that opened it has ended
            self._close(fd)

    def _close(self, fd: int) -> None:
        each = self._open.pop(fd)
        if isinstance(each.node, File):
            if each.node.lock is each:
                each.node.lock = None
            if each.flags & (os.O_WRONLY | os.O_RDWR):
                self._tell(each.path, is_closed=True)

    def _of(self, fd: int, name: str) -> Open:
        each = self._open.get(fd)
        if each is None:
            self._world.process()
            raise error(errno.EBADF, str(fd))
        self._called(name, each.path)
        return each

    # -- content ----------------------------------------------------------------------------------------------

    def pread(self, fd: int, size: int, position: int) -> bytes:
        return bytes(self._of(fd, "pread").file().content[position : position + size])

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> int:
        return self._put(self._of(fd, "pwrite"), data, position)

    def write(self, fd: int, data: bytes | bytearray | memoryview) -> int:
        each = self._of(fd, "write")
        if not each.flags & os.O_APPEND:
            raise error(errno.EINVAL, each.path)
        return self._put(each, data, len(each.file().content))

    def _put(self, each: Open, data: bytes | bytearray | memoryview, position: int) -> int:
        file, size = each.file(), len(data)
        if position > len(file.content):
            file.resize(position)
        try:
            file.content[position : position + size] = data
        except BufferError:
            file.content = Content(file.content)
            file.content[position : position + size] = data
        file.mtime_ns = self._now_ns()
        self._tell(each.path)
        return size

    def ftruncate(self, fd: int, size: int) -> None:
        each = self._of(fd, "ftruncate")
        each.file().resize(size)
        self._tell(each.path)

    def truncate(self, path: Name, size: int) -> None:
        self._file_at(path, "truncate").resize(size)

    def allocate(self, fd: int, size: int) -> None:
        each = self._of(fd, "fallocate")
        if size > len(each.file().content):
            each.file().resize(size)

    def map_file(self, fd: int, size: int, access: int = mmap.ACCESS_WRITE) -> Content:
        content = self._of(fd, "mmap").file().content
        if access == mmap.ACCESS_READ:
            return Content(content[:size])
        if len(content) != size:
            raise error(errno.EINVAL, self._open[fd].path)
        return content

    def fsync(self, fd: int) -> None:
        each = self._of(fd, "fsync")
        if isinstance(each.node, File):
            each.node.synced = bytes(each.node.content)
        else:
            self._sync_names(each.node, volume_of(each.path))

    def _sync_names(self, directory: Directory, volume: str) -> None:
        directory.synced = dict(directory.entries)
        kept = [[each for each in change if each[0] is not directory] for change in self._changes.get(volume, ())]
        self._changes[volume] = [change for change in kept if change]

    def sync_directory(self, directory: Name) -> None:
        text = str(directory)
        self._called("fsync", text)
        self._sync_names(self._directory(text), volume_of(text))

    # -- what a file is ---------------------------------------------------------------------------------------

    def _stat(self, node: Node) -> SimpleNamespace:
        if isinstance(node, File):
            return SimpleNamespace(
                st_size=len(node.content), st_mtime_ns=node.mtime_ns, st_dev=0, st_mode=modes.S_IFREG
            )
        return SimpleNamespace(st_size=0, st_mtime_ns=0, st_dev=0, st_mode=modes.S_IFDIR)

    def fstat(self, fd: int) -> SimpleNamespace:
        return self._stat(self._of(fd, "fstat").node)

    def stat(self, path: Name) -> SimpleNamespace:
        self._called("stat", str(path))
        return self._stat(self._found(str(path)))

    def exists(self, path: Name) -> bool:
        self._called("exists", str(path))
        return self._find(str(path)) is not None

    def is_same_file(self, one: int, other: int) -> bool:
        return self._of(one, "fstat").node is self._of(other, "fstat").node

    def utime(self, path: Name, ns: tuple[int, int]) -> None:
        self._file_at(path, "utime").mtime_ns = ns[1]

    def listdir(self, path: Name) -> list[str]:
        self._called("listdir", str(path))
        return sorted(self._directory(str(path)).entries)

    def directories_in(self, path: Name) -> list[str]:
        self._called("listdir", str(path))
        entries = self._directory(str(path)).entries
        return sorted(name for name, node in entries.items() if isinstance(node, Directory))

    # -- changes of names -------------------------------------------------------------------------------------

    def rename(self, old: Name, new: Name) -> None:
        before, after = str(old), str(new)
        self._called("rename", before)
        node = self._found(before)
        self._change(before, (before, None), (after, node))

    def mkdir(self, path: Name) -> None:
        text = str(path)
        self._called("mkdir", text)
        if self._find(text) is not None:
            raise error(errno.EEXIST, text)
        self._change(text, (text, Directory()))

    def makedirs(self, path: Name, exist_ok: bool = False) -> None:
        text = str(path)
        self._called("mkdir", text)
        made = ""
        for name in text.strip("/").split("/"):
            parent, made = made, f"{made}/{name}"
            if self._find(made) is None:
                self._change(text, (made, Directory()))
                self._sync_names(self._directory(parent), volume_of(text))

    def rmdir(self, path: Name) -> None:
        text = str(path)
        self._called("rmdir", text)
        if self._directory(text).entries:
            raise error(errno.ENOTEMPTY, text)
        self._change(text, (text, None))

    def remove(self, path: Name) -> None:
        self._file_at(path, "unlink")
        self._change(str(path), (str(path), None))

    def copy_file(self, source: Name, target: Name) -> None:
        content = self._file_at(source, "copy").content
        file = File()
        file.content, file.mtime_ns = Content(content), self._now_ns()
        self._change(str(target), (str(target), file))

    def remove_tree(self, directory: Name) -> None:
        for name in self.listdir(directory):
            path = f"{directory}/{name}"
            if isinstance(self._find(path), Directory):
                self.remove_tree(path)
            else:
                self.remove(path)
        self.rmdir(directory)

    # -- locks and watches ------------------------------------------------------------------------------------

    def control(self, fd: int, command: int, argument: bytes = b"") -> bytes:
        """The locks of whole files, as of fcntl: F_OFD_SETLK and F_OFD_GETLK."""
        each = self._of(fd, "lock")
        file = each.file()
        holder = file.lock if file.lock is not each else None
        if command == fcntl.F_OFD_GETLK:
            kind = fcntl.F_UNLCK if holder is None else fcntl.F_WRLCK
            return LOCK.pack(kind, *LOCK.unpack(argument)[1:])
        if holder is not None:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        file.lock = each
        return argument

    def watch(self, *directories: Path) -> Watch:
        """In place of DirectoryWatch."""
        watch = Watch(self, {str(each) for each in directories}, self._world.process())
        self._watches.append(watch)
        return watch

    def unwatch(self, watch: Watch) -> None:
        if watch in self._watches:
            self._watches.remove(watch)

    def _tell(self, path: str, *, is_closed: bool = False) -> None:
        parent, _, name = path.rpartition("/")
        for watch in self._watches:
            if parent in watch.directories:
                watch.tell(name, is_closed=is_closed)

    def _now_ns(self) -> int:
        return EPOCH_MS * 1_000_000 + int(self._world.seconds() * 1e9)


class Watch:
    """As DirectoryWatch."""

    def __init__(self, disk: MemoryDisk, directories: set[str], process: Process) -> None:
        self._disk = disk
        self.directories = directories
        self._process = process
        self._closed: set[str] = set()
        self._has_news = False
        self._waiting = trio.lowlevel.ParkingLot()

    def tell(self, name: str, *, is_closed: bool) -> None:
        if is_closed:
            self._closed.add(name)
        self._has_news = True
        self._waiting.unpark_all()

    async def changed(self) -> set[str]:
        await wait_for(lambda: self._has_news, self._waiting)
        self._has_news = False
        closed, self._closed = self._closed, set()
        return closed

    def close(self) -> None:
        self._disk.unwatch(self)


# The names of disk.py that a MemoryDisk replaces.
STAND_INS = (
    "open_file close pread pwrite write ftruncate truncate fstat is_same_file fsync utime stat exists listdir rename "
    "mkdir makedirs rmdir remove copy_file map_file control allocate sync_directory directories_in remove_tree"
).split()
ALSO = {"replace": "rename", "fdatasync": "fsync", "sync_data": "fsync"}


def stand_ins(disk: MemoryDisk) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the names of disk.py with what takes their place."""
    for name in STAND_INS:
        yield name, getattr(disk, name)
    for name, same in ALSO.items():
        yield name, getattr(disk, same)


def volume_of(path: str) -> str:
    return path.split("/", 2)[1]


def take(entries: dict[str, Node], name: str, node: Node | None) -> None:
    if node is None:
        entries.pop(name, None)
    else:
        entries[name] = node


def nodes_in(directory: Directory, entries: Callable[[Directory], dict[str, Node]]) -> Iterator[Node]:
    yield directory
    for node in entries(directory).values():
        if isinstance(node, Directory):
            yield from nodes_in(node, entries)
        else:
            yield node


def error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)
