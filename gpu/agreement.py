"""What in a cluster does not agree with the rows, each with a proposal. Reads rows alone, and changes nothing.

Only objects that carry the portal's own annotation are looked at, and its ResourceQuota; all else is foreign.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone

from gpu.entitlements import PROJECT_ANNOTATION, QUOTA_NAME, quota_document
from gpu.facts import Freshness, freshness
from gpu.manifests import ANNOTATION_HASH, ANNOTATION_SLICE, render
from gpu.messages import Text, gettext_noop
from gpu.models import Observed, QuotaState, Slice
from gpu.quantities import QuantityError, parse
from tenants.models import Cluster, Project

OWNED_KINDS = ("Deployment", "ResourceClaimTemplate", "PersistentVolumeClaim", "Service", "Job")
RENDERED_KINDS = OWNED_KINDS[:4]
SETTLING = timedelta(seconds=10)
"""How long before the facts an action must lie, so that its effect must be among them."""

UNSENT_AFTER = timedelta(minutes=1)

Object = Mapping[str, Any]

SEND_AGAIN = gettext_noop(
    "Send the slice again (admin, Slices, “Send again what the cluster should have”): the cluster then has what the "
    "row says. Where it is the row that is wrong, change the slice instead."
)


@dataclass(frozen=True)
class Disagreement:
    """One thing that does not agree. `code` is stable; `slice_id` is the public id of the slice it concerns, if any."""

    code: str
    cluster: str
    namespace: str
    kind: str
    name: str
    slice_id: str
    sentence: Text
    proposal: Text


@dataclass(frozen=True)
class _Place:
    cluster: Cluster
    namespace: str
    fresh: Freshness

    def tell(
        self, code: str, kind: str, name: str, slice_id: str, sentence: Text, proposal: Text
    ) -> Disagreement:
        return Disagreement(code, self.cluster.slug, self.namespace, kind, name, slice_id, sentence, proposal)


def compare(cluster: Cluster, now: datetime | None = None) -> Iterator[Disagreement]:
    """Yield what does not agree in one cluster, project by project.

    Where the facts are old nothing can be said of the cluster, and that is the only thing said.
    """
    now = now or timezone.now()
    fresh = freshness(now, cluster=cluster.pk)
    if fresh.stale or fresh.as_of is None:
        yield _Place(cluster, "", fresh).tell(
            "not_seen",
            "",
            "",
            "",
            Text(gettext_noop("What the cluster holds is not known now: the facts are old.")),
            Text(gettext_noop("See that the watcher runs and reaches the cluster, then compare again.")),
        )
        return
    for project in cluster.projects.order_by("namespace").iterator():
        place = _Place(cluster, project.namespace, fresh)
        yield from _slices(place, project, now)
        yield from _quota(place, project)
    yield from _elsewhere(cluster, fresh)


def _owned(cluster: Cluster) -> QuerySet[Observed]:
    return Observed.objects.filter(
        cluster=cluster, kind__in=OWNED_KINDS, data__metadata__annotations__has_key=ANNOTATION_SLICE
    ).order_by("kind", "name")


def _slices(place: _Place, project: Project, now: datetime) -> Iterator[Disagreement]:
    owned: dict[str, dict[tuple[str, str], Object]] = defaultdict(dict)
    objects = _owned(place.cluster).filter(namespace=project.namespace)
    for kind, name, data in objects.values_list("kind", "name", "data"):
        owned[data["metadata"]["annotations"][ANNOTATION_SLICE]][kind, name] = data
    alive = project.slices.filter(ended_at=None).order_by("pk")
    for row in alive:
        yield from _slice(place, row, owned.pop(row.public_id, {}), now)
    ended = Slice.objects.filter(project=project, public_id__in=owned)
    for row in ended:
        yield from _left_over(place, row, owned.pop(row.public_id))
    for slice_id, found in owned.items():
        yield from _without_row(place, slice_id, found)


def _slice(
    place: _Place, row: Slice, found: Mapping[tuple[str, str], Object], now: datetime
) -> Iterator[Disagreement]:
    name = row.display_name
    if row.applied_generation < row.generation or row.action != Slice.Action.APPLIED:
        if now - row.changed_at > UNSENT_AFTER and row.action != Slice.Action.NEEDS_OPERATOR:
            yield place.tell(
                "not_sent",
                "",
                row.app,
                row.public_id,
                Text(
                    gettext_noop("“%(name)s” was changed, and the cluster has not accepted it yet."),
                    {"name": name},
                ),
                Text(gettext_noop("Nothing: the sweep sends it again by itself.")),
            )
        return
    if row.intent == Slice.Intent.RELEASE or not _seen_since(place.fresh, row.action_at):
        return
    wanted = {(item["kind"], item["metadata"]["name"]): item for item in _documents(row, place.namespace)}
    missing = [key for key in wanted if key not in found]
    if missing and len(missing) == len(wanted):
        yield place.tell(
            "no_objects",
            "",
            row.app,
            row.public_id,
            Text(gettext_noop("Nothing of “%(name)s” is in the cluster any more."), {"name": name}),
            Text(
                gettext_noop(
                    "Ask its tenant. Where it is still wanted, send it again (admin, Slices, “Send again what the "
                    "cluster should have”); else release it."
                )
            ),
        )
        return
    for kind, object_name in missing:
        sentence = Text(gettext_noop("The %(kind)s of “%(name)s” is missing."), {"kind": kind, "name": name})
        yield place.tell("object_missing", kind, object_name, row.public_id, sentence, Text(SEND_AGAIN))
    for key, data in found.items():
        if key in wanted:
            yield from _drift(place, row, wanted[key], data)
        elif key[0] in RENDERED_KINDS:
            sentence = Text(
                gettext_noop("“%(name)s” has this %(kind)s no more."), {"kind": key[0], "name": name}
            )
            yield place.tell("left_over", *key, row.public_id, sentence, Text(SEND_AGAIN))


def _seen_since(fresh: Freshness, at: datetime | None) -> bool:
    return fresh.as_of is not None and (at is None or fresh.as_of > at + SETTLING)


def _documents(row: Slice, namespace: str) -> Sequence[Object]:
    return render(row.manifest_spec(namespace))


def _drift(place: _Place, row: Slice, wanted: Object, found: Object) -> Iterator[Disagreement]:
    if found["metadata"].get("deletionTimestamp"):
        return
    metadata = found["metadata"]
    if _hash(wanted) != _hash(found):
        where = f"metadata.annotations.{ANNOTATION_HASH}"
    else:
        where = next(differences(wanted["spec"], found.get("spec"), "spec"), "")
    if where:
        sentence = Text(
            gettext_noop("The %(kind)s of “%(name)s” is not as the row says (%(where)s)."),
            {"kind": wanted["kind"], "name": row.display_name, "where": where},
        )
        yield place.tell("drift", wanted["kind"], metadata["name"], row.public_id, sentence, Text(SEND_AGAIN))


def _hash(document: Object) -> str | None:
    value: str | None = (document["metadata"].get("annotations") or {}).get(ANNOTATION_HASH)
    return value


def differences(wanted: Any, found: Any, where: str) -> Iterator[str]:
    """Yield the places of `wanted` that `found` does not have so; what `found` has beside them does not count.

    Quantities are equal when their amounts are. An empty value and none are the same.
    """
    if isinstance(wanted, Mapping):
        found = found if isinstance(found, Mapping) else {}
        for key, value in wanted.items():
            yield from differences(value, found.get(key), f"{where}.{key}")
    elif isinstance(wanted, list | tuple):
        items = found if isinstance(found, list) else []
        if len(items) != len(wanted):
            yield where
            return
        for number, (one, other) in enumerate(zip(wanted, items, strict=True)):
            yield from differences(one, other, f"{where}[{number}]")
    elif wanted != found and (wanted or found) and not _same_amount(wanted, found):
        yield where


def _same_amount(one: object, other: object) -> bool:
    if not isinstance(one, str) or not isinstance(other, str | int):
        return False
    try:
        return parse(one) == parse(other)
    except QuantityError:
        return False


def _left_over(place: _Place, row: Slice, found: Iterable[tuple[str, str]]) -> Iterator[Disagreement]:
    for kind, name in found:
        if kind == "PersistentVolumeClaim" and not row.delete_volume:
            continue  # kept on purpose
        sentence = Text(
            gettext_noop("“%(name)s” has ended, and its %(kind)s is still there."),
            {"kind": kind, "name": row.display_name},
        )
        yield place.tell("left_over", kind, name, row.public_id, sentence, _by_hand(place, kind, name))


def _without_row(place: _Place, slice_id: str, found: Iterable[tuple[str, str]]) -> Iterator[Disagreement]:
    for kind, name in found:
        sentence = Text(
            gettext_noop(
                "No row knows the slice %(slice)s that this %(kind)s belongs to. It may have been ordered after the "
                "backup that this database was restored from."
            ),
            {"kind": kind, "slice": slice_id},
        )
        yield place.tell("no_row", kind, name, slice_id, sentence, _by_hand(place, kind, name))


def _by_hand(place: _Place, kind: str, name: str) -> Text:
    return Text(
        gettext_noop(
            "Ask its tenant. Where it is not wanted, delete it by hand: %(command)s. The portal leaves it alone."
        ),
        {"command": f"kubectl -n {place.namespace} delete {kind.lower()} {name}"},
    )


def _quota(place: _Place, project: Project) -> Iterator[Disagreement]:
    state = QuotaState.objects.filter(project=project).first()
    present = Observed.objects.filter(
        cluster=place.cluster, kind="ResourceQuota", namespace=project.namespace, name=QUOTA_NAME
    ).first()
    if state is None or state.applied_generation < state.generation:
        return  # never asked for, or on its way
    again = Text(gettext_noop("Save the project in the admin: its ResourceQuota is then written again."))

    def tell(code: str, sentence: Text, proposal: Text = again) -> Disagreement:
        return place.tell(code, "ResourceQuota", QUOTA_NAME, "", sentence, proposal)

    if present is None:
        if _seen_since(place.fresh, state.changed_at):
            yield tell("quota_missing", Text(gettext_noop("The project's ResourceQuota is missing.")))
        return
    owner = (present.data["metadata"].get("annotations") or {}).get(PROJECT_ANNOTATION)
    if owner != project.public_id:
        yield tell(
            "quota_not_ours",
            Text(gettext_noop("The ResourceQuota of this name is not the portal's for this project.")),
            Text(
                gettext_noop(
                    "Rename or remove it by hand, then save the project. The portal leaves it alone."
                )
            ),
        )
        return
    wanted = quota_document(project)["spec"]["hard"]
    there = (present.data.get("spec") or {}).get("hard") or {}
    wrong = [
        key for key in sorted(wanted.keys() | there.keys()) if not _equal(wanted.get(key), there.get(key))
    ]
    if wrong and _seen_since(place.fresh, state.changed_at):
        for key in wrong:
            values = {"key": key, "wanted": wanted.get(key, "–"), "there": there.get(key, "–")}
            yield tell(
                "quota_differs",
                Text(gettext_noop("%(key)s is %(there)s in the cluster; %(wanted)s is asked for."), values),
            )


def _equal(one: str | None, other: str | None) -> bool:
    return one == other or (one is not None and other is not None and _same_amount(one, other))


def _elsewhere(cluster: Cluster, fresh: Freshness) -> Iterator[Disagreement]:
    """Objects with the portal's annotations in namespaces that are no project of this cluster."""
    projects = cluster.projects.values("namespace")
    objects = _owned(cluster).exclude(namespace__in=projects)
    for kind, namespace, name, data in objects.values_list("kind", "namespace", "name", "data"):
        slice_id = data["metadata"]["annotations"][ANNOTATION_SLICE]
        yield from _without_row(_Place(cluster, namespace, fresh), slice_id, [(kind, name)])
    quotas = Observed.objects.filter(
        cluster=cluster,
        kind="ResourceQuota",
        name=QUOTA_NAME,
        data__metadata__annotations__has_key=PROJECT_ANNOTATION,
    ).exclude(namespace__in=projects)
    for namespace in quotas.order_by("namespace").values_list("namespace", flat=True):
        place = _Place(cluster, namespace, fresh)
        yield place.tell(
            "quota_no_row",
            "ResourceQuota",
            QUOTA_NAME,
            "",
            Text(gettext_noop("The portal wrote this ResourceQuota, and no project has this namespace.")),
            _by_hand(place, "ResourceQuota", QUOTA_NAME),
        )
