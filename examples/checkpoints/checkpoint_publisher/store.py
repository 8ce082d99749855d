"""The durable place of snapshots: any that fsspec knows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import fsspec

from akka_otel_callbacks.checkpoints import StorageMode
from checkpoint_publisher.manifest import File, digest


class Conflict(RuntimeError):
    """Another content is there already under a name that never changes its content."""


class Damaged(RuntimeError):
    """What was fetched is not what the manifest says."""


class Store:
    """Files of snapshots by `<url>/<snapshot id>/<name>`.

    Args:
        url: such as `s3://bucket/checkpoints` or `/mnt/shared/checkpoints`.
        options: of the file system, as fsspec takes them.
    """

    def __init__(self, url: str, **options: Any) -> None:
        self._fs, self._root = fsspec.core.url_to_fs(url, **options)
        self._is_local = "file" in self._fs.protocol
        self.mode = StorageMode.SHARED_FILESYSTEM if self._is_local else StorageMode.OBJECT_STORE

    def put(self, source: Path, expected: File, *at: str) -> int:
        """Uploads a file, and returns the bytes that moved: none where it is there already. Raises Conflict."""
        path = self._path(*at)
        if self._fs.exists(path):
            if self._digest(path) != expected.sha256:
                raise Conflict(f"{'/'.join(at)} is there with another content")
            return 0
        if not self._is_local:
            self._fs.put_file(str(source), path)  # an object appears as a whole, once all of it is there
            return expected.size_bytes
        self._fs.makedirs(self._fs._parent(path), exist_ok=True)
        unfinished = f"{path}.unfinished"
        self._fs.put_file(str(source), unfinished)
        os.replace(unfinished, path)
        return expected.size_bytes

    def get(self, target: Path, expected: File, *at: str) -> int:
        """Fetches a file, and returns the bytes that moved. Raises Damaged."""
        target.parent.mkdir(parents=True, exist_ok=True)
        self._fs.get_file(self._path(*at), str(target))
        if File.of(target) != expected:
            raise Damaged(f"{'/'.join(at)} has another content than its manifest says")
        return expected.size_bytes

    def read(self, *at: str) -> bytes:
        content: bytes = self._fs.cat_file(self._path(*at))
        return content

    def _path(self, *at: str) -> str:
        return "/".join((self._root, *at))

    def _digest(self, path: str) -> str:
        with self._fs.open(path, "rb") as file:
            return digest(file)
