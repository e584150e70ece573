"""What the stand-in for Ollama has on its volume, and the downloads under way.

Models stay in a file; partial downloads are gone with the process, as a real server deletes them when it starts.
"""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

type Entry = dict[str, object]

STAIRS = (0.34, 0.56, 0.71, 0.80, 0.87, 0.91)
"""How far a download gets whose connection is closed each time, as recorded."""

STALLED_AT = 0.34
STALL_SECONDS = 32.0
"""After this long without data a part begins anew (Ollama's own limit)."""

CUT_AT = 0.45
FULL_AT = 0.3


class Full(Exception):
    """No space left on the volume."""


class GaveUp(Exception):
    """The download failed for good; holds Ollama's words, "" where the connection to the client just ends."""


@dataclass
class Download:
    """One layer on its way. It goes on only while somebody waits for it."""

    digest: str
    total: int
    seconds: float
    fate: str
    elapsed: float = 0.0
    waiting: int = 0
    last: float = 0.0

    def advance(self, now: float) -> int:
        """Bytes there at the moment `now`. Raises Full, GaveUp."""
        if self.waiting:
            self.elapsed += now - self.last
        self.last = now
        part = self.elapsed / self.seconds
        match self.fate:
            case "stall" if part >= STALLED_AT:
                phase = (self.elapsed - STALLED_AT * self.seconds) % STALL_SECONDS
                again = self.elapsed > STALLED_AT * self.seconds + STALL_SECONDS
                return int(self.total * STALLED_AT * (min(phase, 1.0) if again else 1.0))
            case "drop":
                self._end(part, "max retries exceeded: unexpected EOF", back=0.2)
                return int(self.total * STAIRS[min(int(part * len(STAIRS)), len(STAIRS) - 1)])
            case "reset":
                text = "read tcp 192.0.2.10:44186->192.0.2.20:5000: read: connection reset by peer"
                self._end(part, f"max retries exceeded: {text}", back=1.0)
                return 0 if int(part * 12) % 2 else int(self.total * STALLED_AT)
            case "cut" if part >= CUT_AT:
                raise GaveUp("")
            case "diskfull" if part >= FULL_AT:
                raise Full
        return min(self.total, int(self.total * part))

    def _end(self, part: float, words: str, back: float) -> None:
        if part >= 1.0:
            self.elapsed = max(0.0, self.elapsed - back * self.seconds)
            raise GaveUp(words)


@dataclass
class Shelf:
    """The volume: models by key, and downloads by digest. Thread-safe. `capacity` in bytes."""

    folder: Path
    capacity: int
    models: dict[str, Entry] = field(default_factory=dict)
    downloads: dict[str, Download] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._file = self.folder / "models.json"
        if self._file.exists():
            self.models = json.loads(self._file.read_text(encoding="utf-8"))

    def put(self, key: str, entry: Entry) -> None:
        """Keep a model."""
        with self.lock:
            self.models[key] = entry
            self._write()

    def remove(self, key: str) -> bool:
        """Delete a model; whether it was there."""
        with self.lock:
            found = self.models.pop(key, None) is not None
            self._write()
            return found

    def blobs(self) -> dict[str, int]:
        """The layers of all models: bytes by digest."""
        with self.lock:
            return {digest: size for entry in self.models.values() for digest, size in layers(entry)}

    @contextmanager
    def downloading(self, digest: str, total: int, seconds: float, fate: str) -> Iterator[Download]:
        """Wait for a layer together with all who want it."""
        with self.lock:
            download = self.downloads.setdefault(digest, Download(digest, total, seconds, fate))
            if not download.waiting:
                download.last = time.monotonic()
            download.waiting += 1
        try:
            yield download
        finally:
            with self.lock:
                self.progress(download, quiet=True)
                download.waiting -= 1

    def progress(self, download: Download, quiet: bool = False) -> int:
        """Bytes there now. Raises Full, GaveUp, unless `quiet`."""
        with self.lock:
            try:
                there = download.advance(time.monotonic())
                if there > self.free_for(download):
                    raise Full
            except (Full, GaveUp):
                if quiet:
                    return 0
                raise
            return there

    def free_for(self, download: Download) -> int:
        """Bytes that the layer can take: all that models and other partial downloads leave."""
        others = [one for one in self.downloads.values() if one is not download]
        if any(one.fate == "diskfull" and one.elapsed >= FULL_AT * one.seconds for one in others):
            return 0  # what it wrote stays, and keeps the volume full
        partly = sum(min(one.total, int(one.total * one.elapsed / one.seconds)) for one in others)
        return self.capacity - sum(self.blobs().values()) - partly

    def finished(self, digest: str) -> None:
        """The layer is whole, or thrown away."""
        with self.lock:
            self.downloads.pop(digest, None)

    def _write(self) -> None:
        fresh = self._file.with_suffix(".new")
        fresh.write_text(json.dumps(self.models), encoding="utf-8")
        fresh.replace(self._file)


def layers(entry: Entry) -> list[tuple[str, int]]:
    """Digest and bytes of each layer of a kept model."""
    found = entry["layers"]
    assert isinstance(found, list)  # noqa: S101
    return [(digest, size) for digest, size in found]
