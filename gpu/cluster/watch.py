"""Following one kind of object: list, replace, stream, and list again at any doubt.

A stream that ends between two lines is gone on from its last version, without a list. Doubt is: the version is too
old (410, as HTTP status or as an ERROR line), any other ERROR line, a damaged line, silence, or a sink that failed.
Then everything is listed and replaced, so what was missed cannot stay missed. Pauses grow while nothing good comes.
A list is handed on page by page as it comes, and changes that came together are handed on together.
"""

from __future__ import annotations

import itertools
import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gpu.cluster.client import Cluster
from gpu.cluster.errors import ClusterError, Garbled, Gone
from gpu.cluster.responses import from_status
from gpu.cluster.stream import MOST_AT_ONCE, Event, Object, WatchStream

log = logging.getLogger(__name__)

GOOD_ROUND_S = 5.0
"""A list and stream that lasted this many seconds are followed by the next without a pause."""

MAX_RETRY_AFTER_S = 300.0
"""A longer wish of the server is cut to this."""


class Sink(Protocol):
    """Where a watcher puts what it sees; called from the watcher's own thread, one call at a time for a kind.

    Every call may come again with the same content. A call that raises makes the watcher list again.
    """

    def replace(self, kind: str, items: Iterable[Object], resource_version: str) -> None:
        """These are all objects of the kind; anything else is gone.

        They are read from the cluster while they are taken. Where that fails, `items` raises, and nothing is known to
        be gone.
        """

    def changes(self, kind: str, changes: Sequence[Event]) -> None:
        """Objects were ADDED or MODIFIED, or DELETED (this was their last state), in this order."""

    def progress(self, kind: str, resource_version: str) -> None:
        """All changes up to this version have been passed on."""

    def alive(self, kind: str) -> None:
        """The stream stands, and what came through it has been passed on."""

    def ended(self, kind: str) -> None:
        """No stream stands, or it brings more than is taken: from here on what is known gets old."""

    def failed(self, kind: str, error: Exception) -> None:
        """The cluster could not be followed; the watcher tries again by itself."""


@dataclass(frozen=True)
class WatchOptions:
    """How long a stream lasts, when silence is doubted, and the pauses after failures; all in seconds.

    The server is asked to end a stream after `timeout_s`. `silence_s` without a byte is doubt; it must be longer, since
    a kind without bookmarks (events, on many clusters) may be silent for the whole stream.
    """

    timeout_s: int = 240
    silence_s: float = 255.0
    first_pause_s: float = 0.5
    longest_pause_s: float = 30.0


def without_managed_fields(obj: Object) -> Object:
    """Drop, in place, who set which field: often half of an object, and of no use here."""
    obj["metadata"].pop("managedFields", None)
    return obj


class _Stopped(Exception):
    """The watcher is to end in the middle of a list."""


class Watcher:
    """Follows one kind, in one namespace or in all, until it is stopped.

    `prune` is applied to every object before it is kept, page by page, so a long list costs only what it leaves.
    """

    def __init__(
        self,
        cluster: Cluster,
        kind: str,
        sink: Sink,
        options: WatchOptions = WatchOptions(),
        *,
        namespace: str | None = None,
        label_selector: str | None = None,
        prune: Callable[[Object], Object] = without_managed_fields,
    ) -> None:
        self.kind = kind
        self._cluster = cluster
        self._sink = sink
        self._options = options
        self._namespace = namespace
        self._label_selector = label_selector
        self._prune = prune
        self._version = ""  # "" means: list first
        self._barren = 0  # rounds in a row in which nothing came
        self._lock = threading.Lock()
        self._stream: WatchStream | None = None

    def run(self, stop: threading.Event) -> None:
        """Follow until `stop` is set; a stream that waits ends at once, a list at its next page.

        Run it in a daemon thread, so that a list that hangs until its timeout does not keep the process.
        """
        threading.Thread(target=self._interrupt_on, args=(stop,), daemon=True).start()
        while not stop.is_set():
            stop.wait(self._round(stop))

    def _round(self, stop: threading.Event) -> float:
        """List if needed and follow one stream; return the seconds to wait before the next round."""
        began = time.monotonic()
        try:
            if not self._version:
                self._list(stop)
            if self._version:
                self._follow(stop)
        except Gone:
            pass  # a cluster forgets old versions in the ordinary course
        except ClusterError as error:
            self._failed(error, stop)
            return max(self._pause(), min(error.retry_after or 0.0, MAX_RETRY_AFTER_S))
        except Exception as error:
            # The sink: what it did not take in may be missing, so nothing it holds is trusted.
            log.exception("watch of %s: an object could not be taken in", self.kind)
            self._version = ""
            self._failed(error, stop)
            return self._pause()
        return 0.0 if time.monotonic() - began >= GOOD_ROUND_S else self._pause()

    def _list(self, stop: threading.Event) -> None:
        pages = self._cluster.pages(self.kind, self._namespace, label_selector=self._label_selector)
        first, version = next(pages)  # all pages of a list tell of the same version
        try:
            self._sink.replace(self.kind, self._items(first, pages, stop), version)
        except _Stopped:
            return
        self._version = version

    def _items(
        self, first: list[Object], pages: Iterator[tuple[list[Object], str]], stop: threading.Event
    ) -> Iterator[Object]:
        for page in itertools.chain([first], (page for page, _version in pages)):
            if stop.is_set():
                raise _Stopped
            yield from map(self._prune, page)

    def _follow(self, stop: threading.Event) -> None:
        options = self._options
        try:
            stream = self._cluster.watch(
                self.kind,
                self._version,
                options.timeout_s,
                silence_s=options.silence_s,
                namespace=self._namespace,
                label_selector=self._label_selector,
            )
        except Gone:
            self._version = ""
            raise
        with self._lock:
            self._stream = stream
        try:
            if stop.is_set():
                return
            self._sink.alive(self.kind)
            for batch in stream.batches():
                self._take(batch)
                self._barren = 0
            if not stop.is_set():
                self._sink.progress(self.kind, self._version)
        except Exception:
            self._version = ""
            raise
        finally:
            with self._lock:
                self._stream = None
            stream.close()
            self._sink.ended(self.kind)

    def _take(self, batch: Sequence[Event]) -> None:
        """Hand on what is good of a batch before what is wrong in it is raised."""
        changes: list[Event] = []
        version, wrong = self._version, None
        for event, obj in batch:
            try:
                version = _version_of(event, obj)
            except ClusterError as error:
                wrong = error
                break
            if event != "BOOKMARK":
                changes.append((event, self._prune(obj)))
        if changes:
            self._sink.changes(self.kind, changes)
        self._version = version
        if wrong is not None:
            raise wrong
        if len(batch) >= MOST_AT_ONCE:
            self._sink.ended(self.kind)
            return
        if batch[-1][0] == "BOOKMARK":
            self._sink.progress(self.kind, version)
        self._sink.alive(self.kind)

    def _failed(self, error: Exception, stop: threading.Event) -> None:
        if stop.is_set():
            return
        try:
            self._sink.failed(self.kind, error)
        except Exception:
            log.exception("watch of %s: a failure could not be noted", self.kind)

    def _pause(self) -> float:
        """Twice as long each time, half to one and a half of it: many watchers must not come back together."""
        options = self._options
        pause = min(options.longest_pause_s, options.first_pause_s * 2.0 ** min(self._barren, 16))
        self._barren += 1
        return pause * random.uniform(0.5, 1.5)  # noqa: S311 - no secret

    def _interrupt_on(self, stop: threading.Event) -> None:
        stop.wait()
        with self._lock:
            stream = self._stream
        if stream is not None:
            stream.close()


def _version_of(event: str, obj: Object) -> str:
    """The version an event leads to. Raises what an ERROR tells, and Garbled for what is no event."""
    if event == "ERROR":
        raise from_status(obj)
    metadata: Any = obj.get("metadata")
    version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    if not version or not isinstance(version, str):
        raise Garbled("an event without a version")
    if event == "BOOKMARK":  # holds nothing but a version; the rest of the object is empty by design
        return version
    if not metadata.get("name"):
        raise Garbled("an object without a name")
    if event not in ("ADDED", "MODIFIED", "DELETED"):
        raise Garbled(f"an event of unknown type {event[:40]}")
    return version
