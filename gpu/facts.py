"""Reads Observed rows: what the watcher last saw of a project, and how old that is. Writes nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, cast

from django.conf import settings
from django.db.models import Case, F, Func, JSONField, Q, Subquery, Value, When
from django.db.models.expressions import RawSQL
from django.utils import timezone

from gpu.diagnosis import Seen
from gpu.models import Observed, WatchState
from tenants.models import FIRST_CLUSTER, Project

APP_KINDS = (
    "Deployment",
    "ReplicaSet",
    "Pod",
    "ResourceClaim",
    "ResourceClaimTemplate",
    "PersistentVolumeClaim",
    "Service",
    "Job",
)
PROJECT_KINDS = ("ResourceQuota", "LimitRange")
CLUSTER_KINDS = ("ResourceSlice",)
WATCHED_KINDS = (*APP_KINDS, *PROJECT_KINDS, *CLUSTER_KINDS, "Event")

Object = Mapping[str, Any]

# The template of the pod, in its Deployment and its ReplicaSet as well, is half of all there is, and nobody reads it.
_READ = Case(
    When(
        kind__in=("Deployment", "ReplicaSet"),
        then=Func(F("data"), Value("{spec,template}"), template="%(expressions)s::text[]", arg_joiner=" #- "),
    ),
    default=F("data"),
    output_field=JSONField(),
)

ClusterKey = int | Subquery


def cluster_of(namespace: str) -> Subquery:
    """Return, for a query, the cluster of a project's namespace, which is the project's in all clusters."""
    return Subquery(Project.objects.filter(namespace=namespace).values("cluster")[:1])


@dataclass(frozen=True)
class Freshness:
    """How old the facts are. `as_of` is the oldest sign of life among all watches; None before the first."""

    as_of: datetime | None
    age_s: float | None
    reachable: bool

    @property
    def stale(self) -> bool:
        """Whether the facts are older than ux.md lets pass without a word."""
        return self.age_s is None or self.age_s > settings.STALE_AFTER_S


def freshness(now: datetime | None = None, *, cluster: ClusterKey = FIRST_CLUSTER) -> Freshness:
    """Return how old the facts of a cluster are; `reachable` is False while a watch fails or the watcher is silent."""
    now = now or timezone.now()
    watches = WatchState.objects.filter(cluster=cluster, kind__in=WATCHED_KINDS)
    states = list(watches.values_list("seen_at", "failing_since"))
    seen = [seen_at for seen_at, _failing in states if seen_at is not None]
    if len(seen) < len(WATCHED_KINDS):
        return Freshness(None, None, reachable=not any(failing_since for _seen, failing_since in states))
    as_of = min(seen)
    age = max(0.0, (now - as_of).total_seconds())
    failing = any(
        failing_since and now - failing_since > timedelta(seconds=5) for _seen, failing_since in states
    )
    return Freshness(as_of, age, reachable=not failing and age <= settings.STALE_AFTER_S)


@dataclass(frozen=True)
class ProjectFacts:
    """Everything seen in one namespace, by app, with the namespace's quotas and limit ranges."""

    freshness: Freshness
    by_app: Mapping[str, Mapping[str, Sequence[Object]]]
    quotas: Sequence[Object]
    limit_ranges: Sequence[Object]
    events: Mapping[str, Sequence[Object]] = field(default_factory=dict)

    def of(self, app: str, kind: str) -> Sequence[Object]:
        """Return the objects of a kind that belong to an app."""
        return self.by_app.get(app, {}).get(kind, ())

    def seen(self, app: str) -> Seen:
        """Return what the diagnosis looks at for one app."""
        objects: dict[str, Sequence[Object]] = {kind: self.of(app, kind) for kind in APP_KINDS}
        uids = [item["metadata"]["uid"] for items in objects.values() for item in items]
        objects["Event"] = [event for uid in uids for event in self.events.get(uid, ())]
        objects["ResourceQuota"] = self.quotas
        return Seen(objects=objects, as_of=self.freshness.as_of, reachable=self.freshness.reachable)

    def claims(self) -> Iterable[tuple[str, Object]]:
        """Yield every ResourceClaim of the namespace with its app (empty for a foreign one)."""
        for app, kinds in self.by_app.items():
            for claim in kinds.get("ResourceClaim", ()):
                yield app, claim


def project_facts(
    namespace: str,
    apps: Collection[str] | None = None,
    *,
    events: bool = True,
    cluster: ClusterKey | None = None,
) -> ProjectFacts:
    """Read what was seen in a project's namespace, of all apps or only of `apps`, in at most three queries.

    Callers that know the project's cluster name it, which spares the database a look.
    """
    cluster = cluster_of(namespace) if cluster is None else cluster
    place = Q(cluster=cluster, namespace=namespace)
    return _read(place, {namespace: freshness(cluster=cluster)}, apps, events)[namespace]


def facts_of_projects(projects: Iterable[Project], apps: Collection[str]) -> dict[str, ProjectFacts]:
    """Read what was seen of `apps` in any number of projects, by namespace: two queries, and one a cluster."""
    by_cluster: dict[int, set[str]] = defaultdict(set)
    for project in projects:
        by_cluster[cast(int, project.cluster_id)].add(project.namespace)
    place = Q(pk__in=())
    fresh: dict[str, Freshness] = {}
    for cluster, namespaces in by_cluster.items():
        place |= Q(cluster=cluster, namespace__in=namespaces)
        fresh |= dict.fromkeys(namespaces, freshness(cluster=cluster))
    return _read(place, fresh, apps, events=True)


def _read(
    place: Q, fresh: Mapping[str, Freshness], apps: Collection[str] | None, events: bool
) -> dict[str, ProjectFacts]:
    rows = Observed.objects.filter(place, kind__in=(*APP_KINDS, *PROJECT_KINDS))
    if apps is not None:
        rows = rows.filter(Q(app__in=apps) | Q(kind__in=PROJECT_KINDS))
    by_app: dict[str, dict[str, dict[str, list[Object]]]] = {
        namespace: defaultdict(lambda: defaultdict(list)) for namespace in fresh
    }
    of_project: dict[tuple[str, str], list[Object]] = defaultdict(list)
    uids: list[str] = []
    columns = ("namespace", "kind", "app", "uid", _READ)
    for namespace, kind, app, uid, data in rows.order_by("kind", "name").values_list(*columns):
        if kind in PROJECT_KINDS:
            of_project[namespace, kind].append(data)
        else:
            by_app[namespace][app][kind].append(data)
            if app:
                uids.append(uid)
    by_uid: dict[str, list[Object]] = defaultdict(list)
    if events and uids:
        # An event lives in the namespace of what it is about: so the index of names leads to it, however many uids.
        about = RawSQL("SELECT unnest(%s::text[])", [uids])
        found = Observed.objects.filter(place, kind="Event", involved_uid__in=about)
        for uid, data in found.values_list("involved_uid", "data"):
            by_uid[uid].append(data)
    return {
        namespace: ProjectFacts(
            freshness=freshness_there,
            by_app=by_app[namespace],
            quotas=of_project[namespace, "ResourceQuota"],
            limit_ranges=of_project[namespace, "LimitRange"],
            events=by_uid,
        )
        for namespace, freshness_there in fresh.items()
    }
