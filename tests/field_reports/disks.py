"""A small disk of a test's own that fills up or turns read-only when the test says so."""

from __future__ import annotations

import os
import resource
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SIZE_MB = 12
_MOUNT = ("mount", "-t", "tmpfs", "-o", f"size={SIZE_MB}m", "tmpfs")


class Disk(ABC):
    """`folder` is where files go; what is open stays open through everything."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def leave(self, room_bytes: int) -> None:
        """Let no more than so many bytes be written from now on."""

    @abstractmethod
    def free(self) -> None:
        """Let anything be written again."""

    @abstractmethod
    def set_read_only(self, *, is_on: bool) -> None:
        """Refuse writes, or allow them again; nothing may be open."""


class MountedDisk(Disk):
    """A file system in memory; only root can mount one."""

    def leave(self, room_bytes: int) -> None:
        self.free()
        status = os.statvfs(self.folder)
        size = status.f_bavail * status.f_frsize - room_bytes
        with self._ballast.open("wb") as ballast:
            os.posix_fallocate(ballast.fileno(), 0, size)

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)

    def set_read_only(self, *, is_on: bool) -> None:
        how = f"remount,{'ro' if is_on else 'rw'}"
        subprocess.run(["mount", "-o", how, str(self.folder)], check=True)

    @property
    def _ballast(self) -> Path:
        return self.folder / "ballast"


class LimitedFolder(Disk):
    """A folder, with a limit on the size of any file that this process writes."""

    def leave(self, room_bytes: int) -> None:
        logs = self.folder.glob("*-wal")
        self._limit(max((log.stat().st_size for log in logs), default=0) + room_bytes)

    def free(self) -> None:
        self._limit(resource.RLIM_INFINITY)

    def set_read_only(self, *, is_on: bool) -> None:
        for file in self.folder.iterdir():
            file.chmod(0o400 if is_on else 0o600)
        self.folder.chmod(0o500 if is_on else 0o700)

    def _limit(self, size_bytes: int) -> None:
        _soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))


@contextmanager
def open_disk(folder: Path) -> Iterator[Disk]:
    """Make the folder a disk: a mounted one where this user may mount, else a limited one."""
    folder.mkdir()
    is_mounted = _mounts(folder)
    disk = MountedDisk(folder) if is_mounted else LimitedFolder(folder)
    try:
        yield disk
    finally:
        disk.free()
        if is_mounted:
            subprocess.run(["umount", "-l", str(folder)], check=True)


def _mounts(folder: Path) -> bool:
    if os.geteuid() != 0:
        return False
    return subprocess.run([*_MOUNT, str(folder)], capture_output=True, check=False).returncode == 0
