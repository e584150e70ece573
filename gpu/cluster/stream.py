"""Reading what the API server sends: whole answers, and the lines of a watch as they come."""

from __future__ import annotations

import contextlib
import json
import queue
import threading
from collections.abc import Iterator
from typing import Any

from urllib3.exceptions import HTTPError, ProtocolError

from gpu.cluster.errors import ClusterError, Garbled, Unreachable

MAX_LINE = 16 * 1024 * 1024
"""Bytes of one line of a watch; an object is at most about 2 MiB."""

MOST_AT_ONCE = 500
"""Events handed out together; as many lines again may wait in memory."""

Object = dict[str, Any]
Event = tuple[str, Object]


class WatchStream:
    """The lines of one open watch, as (type, object); ends when the server closes it between two lines.

    A line cut short, or one that is no event, raises Garbled; silence raises Unreachable. `close` may be called
    from another thread and ends the iteration at once.
    """

    def __init__(self, response: Any) -> None:
        self._response = response
        self._closed = False

    def __iter__(self) -> Iterator[Event]:
        try:
            for line in self._lines():
                if line.strip():
                    yield _event(line)
        finally:
            self._response.close()

    def batches(self, most: int = MOST_AT_ONCE) -> Iterator[list[Event]]:
        """Like iteration, but what has come meanwhile is handed out together; a lone event never waits for another.

        What came before an error is handed out before it is raised.
        """
        # Only a thread that reads ahead can tell what has come: the connection, TLS and the chunks of HTTP all buffer.
        lines: queue.Queue[bytes | Exception | None] = queue.Queue(most)
        threading.Thread(target=self._read_ahead, args=(lines,), daemon=True).start()
        try:
            while True:
                batch: list[Event] = []
                item = lines.get()
                while isinstance(item, bytes):
                    if item.strip():
                        try:
                            batch.append(_event(item))
                        except Garbled as error:
                            item = error
                            break
                    if len(batch) >= most or lines.empty():
                        break
                    item = lines.get()
                if batch:
                    yield batch
                if isinstance(item, Exception):
                    raise item
                if item is None:
                    return
        finally:
            self.close()

    def _read_ahead(self, lines: queue.Queue[bytes | Exception | None]) -> None:
        end: Exception | None = None
        try:
            for line in self._lines():
                self._put(lines, line)
        except Exception as error:  # whoever takes the lines is told of it in its turn
            end = error
        finally:
            self._put(lines, end)
            self._response.close()

    def _put(self, lines: queue.Queue[bytes | Exception | None], item: bytes | Exception | None) -> None:
        """Wait for room, but not for a reader that has left."""
        while not self._closed:
            try:
                lines.put(item, timeout=0.5)
            except queue.Full:
                continue
            return
        with contextlib.suppress(queue.Full):
            lines.put_nowait(None)

    def close(self) -> None:
        """End the stream, from any thread; a read that waits returns at once."""
        self._closed = True
        # ValueError, RuntimeError, OSError: the connection is gone already.
        with contextlib.suppress(ValueError, RuntimeError, OSError):
            self._response.shutdown()

    def _lines(self) -> Iterator[bytes]:
        rest = bytearray()
        try:
            for piece in self._pieces():
                seen = len(rest)
                rest += piece
                if b"\n" not in piece:
                    if seen > MAX_LINE:
                        raise Garbled("a line without end")
                    continue
                *lines, tail = bytes(rest).split(b"\n")
                yield from lines
                rest = bytearray(tail)
        except (HTTPError, OSError) as error:
            if self._closed:
                return
            if isinstance(error, ProtocolError):
                if rest:
                    raise Garbled("a line of the watch was cut short") from error
                return  # a connection that breaks between two lines has lost nothing: go on from the last version
            raise transport_error(error) from error
        if rest and not self._closed:
            raise Garbled("a line of the watch was cut short")

    def _pieces(self) -> Iterator[bytes]:
        if self._response.chunked:
            yield from self._response.stream(None)
            return
        while piece := self._response.read1(65536):
            yield piece


def _event(line: bytes) -> Event:
    event = parse(line)
    if not isinstance(event, dict):
        raise Garbled("a line of the watch is no event")
    kind, obj = event.get("type"), event.get("object")
    if not isinstance(kind, str) or not isinstance(obj, dict):
        raise Garbled("a line of the watch is no event")
    return kind, obj


def parse(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError as error:  # of which bytes that are no UTF-8 are one kind
        raise Garbled("the answer is no JSON") from error


def read_all(response: Any) -> bytes:
    try:
        data: bytes = response.data
    except (HTTPError, OSError) as error:
        raise transport_error(error) from error
    return data


def transport_error(error: Exception) -> ClusterError:
    if isinstance(error, ProtocolError):
        return Garbled(str(error)) if "IncompleteRead" in str(error) else Unreachable(str(error))
    return Unreachable(str(error))
