"""/healthz: the process answers. /readyz: it can do its work (database, broker); signs of life of the rest are told."""

from __future__ import annotations

from collections.abc import Callable

import redis
from django.db import DatabaseError, InterfaceError, connection
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, JsonResponse

from gpu import signs
from gpu.facts import freshness
from portal import counters
from portal.metrics import metrics
from tenants.models import Cluster


def healthz(request: HttpRequest) -> JsonResponse:
    """Answer 200 as long as the process lives."""
    return JsonResponse({"status": "ok"})


def readyz(request: HttpRequest) -> JsonResponse:
    """Answer 200 when database and broker answer within two seconds, else 503 with the names of what does not.

    The age in seconds of what the watcher saw of each cluster is told, too, and of the last signs of life of worker and
    sweep. Old facts or a silent worker make the portal `degraded`, not unready: its pages say so, and taking the web
    processes out would only take the pages away.
    """
    checks = {"database": _database(), "broker": _broker()}
    ready = all(checks.values())
    watcher = _watcher() if checks["database"] else {}
    work = _work() if checks["database"] else {}
    degraded = any(not found["fresh"] for found in (*watcher.values(), *work.values()))
    return JsonResponse(
        {
            "status": "not ready" if not ready else "degraded" if degraded else "ok",
            **{name: "ok" if fine else "down" for name, fine in checks.items()},
            "watcher": watcher,
            **work,
        },
        status=200 if ready else 503,
    )


def _watcher() -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = {}
    try:
        for pk, slug in Cluster.objects.values_list("pk", "slug"):
            seen = freshness(cluster=pk)
            age = None if seen.age_s is None else round(seen.age_s, 1)
            found[slug] = {"age_s": age, "fresh": seen.reachable and not seen.stale}
    except (DatabaseError, InterfaceError):
        return {}
    return found


def _work() -> dict[str, dict[str, object]]:
    try:
        told = signs.work()
    except (DatabaseError, InterfaceError):
        return {}
    ages = {"worker": (told.worker_at, told.worker_silent), "sweep": (told.sweep_at, told.sweep_silent)}
    return {
        name: {
            "age_s": None if at is None else round(max(0.0, (told.now - at).total_seconds()), 1),
            "fresh": not silent,
        }
        for name, (at, silent) in ages.items()
    }


def _database() -> bool:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except (DatabaseError, InterfaceError):
        return False
    return True


def _broker() -> bool:
    client = counters.broker(1.0)
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False
    finally:
        client.close()


class ProbeMiddleware:
    """Answer probes and scrapes before anything else looks at the request.

    They come to the address of a pod, so neither the host name nor HTTPS can be asked of them.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        answer = PROBES.get(request.path_info)
        if answer is None:
            return self.get_response(request)
        return answer(request) if request.method in SAFE else HttpResponseNotAllowed(SAFE)


SAFE = ("GET", "HEAD")
PROBES: dict[str, Callable[[HttpRequest], HttpResponse]] = {
    "/healthz": healthz,
    "/readyz": readyz,
    "/metrics": metrics,
}
