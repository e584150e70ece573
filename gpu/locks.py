"""Who does a thing now: locks of a database session, which end with their holder, and what is done once in a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.core.cache import cache
from django.db import connection
from redis import RedisError

SLICE_LOCK = 0x51CE
QUOTA_LOCK = 0x90A7
ANSWER_LOCK = 0xA25E
SWEEP_LOCK = 0x53EE


@contextmanager
def only_one(space: int, key: int) -> Iterator[bool]:
    """Hold the lock `key` of a space; gives False when somebody else holds it. It is free when its process dies."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s, %s)", [space, key % 2**31])
        got = bool(cursor.fetchone()[0])
    try:
        yield got
    finally:
        if got:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_unlock(%s, %s)", [space, key % 2**31])


def taken(space: int, key: int) -> bool:
    """Take the lock `key` of a space until the present transaction ends; False when somebody else holds it."""
    if not connection.in_atomic_block:
        raise RuntimeError("such a lock is taken only in a transaction")
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s, %s)", [space, key % 2**31])
        return bool(cursor.fetchone()[0])


def once_in(name: str, seconds: float) -> bool:
    """Whether this is the first call with `name` within so many seconds, by the cache's clock; True where it is away.

    Periodic tasks that piled up while no worker ran are done once. They have no time of expiry: a beat or worker whose
    clock is wrong would let all of them expire.
    """
    try:
        return bool(cache.add(f"once:{name}", 1, max(1, round(seconds))))
    except (RedisError, OSError):
        return True
