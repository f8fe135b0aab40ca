"""Files where Spark has them: on this machine, HDFS or an object store, through Hadoop's own file systems."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlparse

from pyspark.sql import SparkSession


class File(NamedTuple):
    path: str  # with its scheme, as Hadoop spells it
    size_bytes: int
    modified_ms: int
    block_size_bytes: int


class HadoopFiles:
    """The files below one folder, which need not exist."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        jvm: Any = spark.sparkContext._jvm
        self._jvm = jvm
        self._configuration: Any = spark.sparkContext._jsc.hadoopConfiguration()
        path = jvm.org.apache.hadoop.fs.Path(folder)
        self._system: Any = path.getFileSystem(self._configuration)
        self._is_local = self._system.getScheme() == "file"
        if self._is_local:
            # Without checksum files, which are not moved in one step with what they are of.
            self._system = self._system.getRawFileSystem()
            # One folder has one name, however it is spelled.
            path = jvm.org.apache.hadoop.fs.Path(os.path.realpath(str(path.toUri().getPath())))
        self.folder: str = self._system.makeQualified(path).toString()

    def path(self, name: str) -> Any:
        """Return a name below the folder, or a whole path, as Hadoop's Path."""
        return self._jvm.org.apache.hadoop.fs.Path(name if ":/" in name else f"{self.folder}/{name}")

    def names(self, name: str = "") -> list[str]:
        """Return the names in a folder, in order; none if it is missing."""
        path = self.path(name) if name else self.path(self.folder)
        if not self._system.exists(path):
            return []
        return sorted(status.getPath().getName() for status in self._system.listStatus(path))

    def below(self, name: str) -> Iterator[File]:
        """Yield every file below a folder."""
        found = self._system.listFiles(self.path(name), True)
        while found.hasNext():
            status = found.next()
            yield File(
                status.getPath().toString(), status.getLen(), status.getModificationTime(), status.getBlockSize()
            )

    def status(self, path: str) -> File:
        """Return a file's facts; the path may be a URI."""
        status = self._system.getFileStatus(self._jvm.org.apache.hadoop.fs.Path(self._jvm.java.net.URI(path)))
        return File(status.getPath().toString(), status.getLen(), status.getModificationTime(), status.getBlockSize())

    def exists(self, name: str) -> bool:
        return bool(self._system.exists(self.path(name)))

    def read(self, name: str) -> str:
        """Return a file's text."""
        stream = self._system.open(self.path(name))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def replace(self, name: str, text: str) -> None:
        """Write a file in one step: readers see what was there before, or all of the text."""
        path = self.path(name)
        if self._is_local:
            local = Path(unquote(urlparse(path.toUri().toString()).path))
            local.parent.mkdir(parents=True, exist_ok=True)
            local.with_name(f".{local.name}.crc").unlink(missing_ok=True)
            arriving = local.with_name(f".{local.name}.arriving")
            with arriving.open("w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            arriving.replace(local)
            return
        checkpointing = self._jvm.org.apache.spark.sql.execution.streaming.checkpointing
        stream = checkpointing.CheckpointFileManager.create(path.getParent(), self._configuration).createAtomic(
            path, True
        )
        stream.write(text.encode())
        stream.close()

    def move(self, source: str, target: str) -> None:
        """Rename a file; the target's folder is made, and the target must not exist. Raises OSError."""
        path = self.path(target)
        self._system.mkdirs(path.getParent())
        if not self._system.rename(self.path(source), path):
            raise OSError(f"cannot move {source} to {path.toString()}")

    def delete(self, name: str) -> None:
        """Delete a file, or a folder with what is below it; it may be missing."""
        self._system.delete(self.path(name), True)
