"""Folders for one run: removed at its end, or by the next run where the first one was killed."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path


@dataclass(frozen=True)
class Folder:
    """`path` belongs to this process until `lock` is closed, at the latest when the process ends."""

    path: Path
    lock: TextIOWrapper


def make(parent: Path) -> Folder:
    """A new folder in `parent`. Folders there whose process is gone are removed first."""
    parent.mkdir(parents=True, exist_ok=True)
    for old in parent.iterdir():
        lock = _take(old / "lock")
        if lock is not None:
            shutil.rmtree(old, ignore_errors=True)
            lock.close()
    path = Path(tempfile.mkdtemp(dir=parent))
    lock = _take(path / "lock")
    assert lock is not None, "a folder just made is locked by nobody"  # noqa: S101
    return Folder(path, lock)


def _take(path: Path) -> TextIOWrapper | None:
    try:
        lock = path.open("a")
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return None
    return lock
