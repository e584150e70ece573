"""Following one kind of object: list, replace, stream, and list again at any doubt.

A stream that ends between two lines is gone on from its last version, without a list. Doubt is: the version is too
old (410, as HTTP status or as an ERROR line), any other ERROR line, a damaged line, silence, or a sink that failed.
Then everything is listed and replaced, so what was missed cannot stay missed. Pauses grow while nothing good comes.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gpu.cluster.client import Cluster
from gpu.cluster.errors import ClusterError, Garbled, Gone
from gpu.cluster.responses import from_status
from gpu.cluster.stream import Object, WatchStream

log = logging.getLogger(__name__)

GOOD_ROUND_S = 5.0
"""A list and stream that lasted this many seconds are followed by the next without a pause."""

MAX_RETRY_AFTER_S = 300.0
"""A longer wish of the server is cut to this."""


class Sink(Protocol):
    """Where a watcher puts what it sees; called from the watcher's own thread, one call at a time for a kind.

    Every call may come again with the same content. A call that raises makes the watcher list again.
    """

    def replace(self, kind: str, items: Sequence[Object], resource_version: str) -> None:
        """These are all objects of the kind; anything else is gone."""

    def upsert(self, kind: str, obj: Object) -> None:
        """An object is new or changed."""

    def remove(self, kind: str, obj: Object) -> None:
        """An object is gone; this was its last state."""

    def progress(self, kind: str, resource_version: str) -> None:
        """All changes up to this version have been passed on."""

    def alive(self, kind: str) -> None:
        """The stream stands."""

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
        items: list[Object] = []
        version = ""
        pages = self._cluster.pages(self.kind, self._namespace, label_selector=self._label_selector)
        for page, version in pages:  # noqa: B007
            if stop.is_set():
                return
            items += [self._prune(item) for item in page]
        self._sink.replace(self.kind, items, version)
        self._version = version

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
            for event, obj in stream:
                self._take(event, obj)
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

    def _take(self, event: str, obj: Object) -> None:
        if event == "ERROR":
            raise from_status(obj)
        metadata: Any = obj.get("metadata")
        version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
        if not version or not isinstance(version, str):
            raise Garbled("an event without a version")
        if event == "BOOKMARK":  # holds nothing but a version; the rest of the object is empty by design
            self._version = version
            self._sink.progress(self.kind, version)
            return
        if not metadata.get("name"):
            raise Garbled("an object without a name")
        if event in ("ADDED", "MODIFIED"):
            self._sink.upsert(self.kind, self._prune(obj))
        elif event == "DELETED":
            self._sink.remove(self.kind, self._prune(obj))
        else:
            raise Garbled(f"an event of unknown type {event[:40]}")
        self._version = version
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
