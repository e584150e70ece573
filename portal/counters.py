"""Counters and histograms that all processes share, kept in Redis for /metrics.

They only tell: where Redis does not answer, nothing is counted and nobody waits. Redis emptied is a counter reset,
which Prometheus knows.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import lru_cache

import redis
from django.conf import settings
from redis.backoff import NoBackoff
from redis.retry import Retry

log = logging.getLogger(__name__)

KEY = "portal-counters"
SEPARATOR = "|"
BUCKETS_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)


def broker(timeout_s: float) -> redis.Redis:
    """Return a client of the broker that waits `timeout_s` for an answer and does not try again by itself."""
    return redis.Redis.from_url(
        settings.REDIS_URL,
        socket_connect_timeout=timeout_s,
        socket_timeout=timeout_s,
        retry=Retry(NoBackoff(), 0),
    )


@lru_cache(maxsize=1)
def _client(_address: str) -> redis.Redis:
    return broker(0.5)


def add(name: str, *labels: str) -> None:
    """Count one more of `name` with these label values."""
    _write([(_field(name, *labels), 1)])


def observe(name: str, seconds: float) -> None:
    """Add a duration to the histogram `name`."""
    bucket = next((str(limit) for limit in BUCKETS_S if seconds <= limit), "+Inf")
    _write([(_field(name, "bucket", bucket), 1), (_field(name, "sum"), max(0.0, seconds))])


def read() -> dict[tuple[str, ...], float]:
    """Return everything counted, by name and label values. Raises redis.RedisError."""
    found = _client(settings.REDIS_URL).hgetall(KEY)
    return {tuple(field.decode().split(SEPARATOR)): float(value) for field, value in found.items()}  # type: ignore[union-attr]


def _field(*parts: str) -> str:
    return SEPARATOR.join(part.replace(SEPARATOR, "_") for part in parts)


def _write(steps: Sequence[tuple[str, float]]) -> None:
    try:
        with _client(settings.REDIS_URL).pipeline(transaction=False) as pipe:
            for field, amount in steps:
                pipe.hincrbyfloat(KEY, field, amount)
            pipe.execute()
    except (redis.RedisError, OSError) as error:
        log.info("not counted: %s", error.__class__.__name__)
