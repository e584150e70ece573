"""Locks that end with their holder: advisory locks of a database session, in spaces of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection

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
