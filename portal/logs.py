"""Log records as JSON lines or for reading, with the request, task, order and slice they concern."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from datetime import UTC, datetime

_NONE: dict[str, str] = {}
_context: ContextVar[dict[str, str]] = ContextVar("log_context", default=_NONE)
# `data` is Celery's: it says the message and the traceback a second time.
_OWN = frozenset(logging.makeLogRecord({}).__dict__) | {
    "message",
    "asctime",
    "context",
    "taskName",
    "data",
    "bound",
}


def context() -> dict[str, str]:
    """Return what is bound now, such as `{"request": "4f...", "slice": "sl_..."}`."""
    return _context.get()


def bind(**values: str) -> Token[dict[str, str]]:
    """Add `values` to every record from here on; give the token to `unbind`."""
    return _context.set({**_context.get(), **values})


def unbind(token: Token[dict[str, str]]) -> None:
    """Take back what `bind` added."""
    _context.reset(token)


@contextmanager
def bound(**values: str) -> Iterator[None]:
    """Add `values` to every record of the block."""
    token = bind(**values)
    try:
        yield
    finally:
        unbind(token)


class ContextFilter(logging.Filter):
    """Put what is bound on a record."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record pass."""
        record.context = _context.get()
        return True


class LineFormatter(logging.Formatter):
    """For reading: time, level, logger, what is bound, message."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line, and the traceback where there is one."""
        bound_now: dict[str, str] = getattr(record, "context", _NONE)
        record.bound = " ".join(f"{key}={value}" for key, value in bound_now.items()) or "-"
        return super().format(record)


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, what is bound, extra fields, exception."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; what JSON cannot hold is written as text."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, object] = {
            "time": at.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "context", _NONE),
        }
        extra = {key: value for key, value in record.__dict__.items() if key not in _OWN}
        line.update({key: value for key, value in extra.items() if key not in line})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def configuration(style: str, level: str) -> dict[str, object]:
    """Return what logging.config.dictConfig takes; `style` is `json` or `line`."""
    formatters: dict[str, object] = {
        "json": {"()": "portal.logs.JsonFormatter"},
        "line": {
            "()": "portal.logs.LineFormatter",
            "format": "%(asctime)s %(levelname)s %(name)s [%(bound)s] %(message)s",
        },
    }
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "filters": {"context": {"()": "portal.logs.ContextFilter"}},
        "formatters": formatters,
        "handlers": {
            "console": {"class": "logging.StreamHandler", "formatter": style, "filters": ["context"]}
        },
        "root": {"handlers": ["console"], "level": level},
        "loggers": {
            "axes": {"level": "WARNING"},
            # Each request has a line of its own (portal.request_id).
            "gunicorn.access": {"level": "CRITICAL", "propagate": False},
        },
    }
