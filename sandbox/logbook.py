"""Container logs kept in memory, line by line with their times, for a kubelet that serves them itself."""

import threading
import time
from collections import deque

LINES = 2000

type Line = tuple[float, str]
"""When it was written (seconds since the epoch), and the text with its line end."""


class Logbook:
    """The present and the previous log of every container; the oldest lines go."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._logs: dict[tuple[str, str, str, bool], deque[tuple[int, Line]]] = {}
        self._written = 0

    def append(self, namespace: str, pod: str, container: str, text: str) -> None:
        """Add lines to the present log."""
        with self._changed:
            log = self._logs.setdefault((namespace, pod, container, False), deque(maxlen=LINES))
            for line in text.splitlines(keepends=True):
                self._written += 1
                log.append((self._written, (time.time(), line)))
            self._changed.notify_all()

    def rotate(self, namespace: str, pod: str, container: str) -> None:
        """The present log becomes the previous one."""
        with self._changed:
            log = self._logs.pop((namespace, pod, container, False), deque())
            self._logs[namespace, pod, container, True] = log
            self._logs[namespace, pod, container, False] = deque(maxlen=LINES)

    def forget(self, namespace: str, pod: str) -> None:
        """The pod is gone."""
        with self._changed:
            for key in [key for key in self._logs if key[:2] == (namespace, pod)]:
                del self._logs[key]
            self._changed.notify_all()

    def lines(
        self, namespace: str, pod: str, container: str, previous: bool = False, after: int = 0
    ) -> tuple[list[Line], int] | None:
        """The lines written after mark ``after`` and the mark of the last; None where no log is known."""
        with self._changed:
            log = self._logs.get((namespace, pod, container, previous))
            if log is None:
                return None
            return [line for mark, line in log if mark > after], self._written

    def wait(self, seconds: float) -> None:
        """Wait until something is written, but no longer than that."""
        with self._changed:
            self._changed.wait(seconds)
