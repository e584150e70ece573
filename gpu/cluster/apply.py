"""Bringing the documents of one slice into the cluster, and out of it again. Every step may be repeated.

Each object is looked at before it is written or deleted: only one whose annotation names this very slice is touched.
The order is that of contract.md, "Objects of one slice" and "Release".
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from gpu import names
from gpu.cluster.client import Cluster
from gpu.cluster.errors import (
    ClusterError,
    Conflict,
    Forbidden,
    InvalidObject,
    NotOurs,
    PolicyRefused,
    VolumeChange,
    VolumeFixed,
)
from gpu.cluster.stream import Object
from gpu.manifests import ANNOTATION_SLICE
from gpu.messages import Memory
from gpu.quantities import QuantityError, parse

Place = tuple[str, str, str]
"""Kind, namespace and name."""

_BEFORE_THE_POD = ("ResourceClaimTemplate", "PersistentVolumeClaim", "Secret")


def apply_all(cluster: Cluster, documents: Sequence[Object], *, slice_id: str) -> None:
    """Apply the documents; what the slice has no more of (a Service) is removed.

    Nothing is written when one of the names is taken by somebody else (NotOurs). A claim template of another size is
    replaced, since its spec is immutable; claims made from the old one stay until their pod goes. The Deployment comes
    after what its pod needs. Requests that need not wait for each other are sent at once. Raises ClusterError.
    """
    present = _at_once([partial(_look, cluster, _place(document), slice_id) for document in documents])
    pairs = list(zip(documents, present, strict=True))
    for document, found in pairs:
        if found is not None and found["metadata"].get("deletionTimestamp"):
            raise Conflict(f"{document['kind']} {document['metadata']['name']} is still being deleted")
    for first in (True, False):
        kinds = [pair for pair in pairs if (pair[0]["kind"] in _BEFORE_THE_POD) == first]
        _at_once([partial(_apply, cluster, document, found) for document, found in kinds])
    if any(document["kind"] == "Deployment" and found is not None for document, found in pairs):
        _remove_stale_service(cluster, documents, slice_id)


def delete_all(
    cluster: Cluster, documents: Sequence[Object], *, slice_id: str, volume: bool, secret: bool = False
) -> None:
    """Delete the slice: Deployment, then claim template, then Service; the volume and the Secret only if asked.

    What is gone already counts as deleted. An object of somebody else under one of the names stays, and is reported
    (NotOurs) after our own are gone. Raises ClusterError.
    """
    _delete_each(cluster, _release_order(documents, volume=volume, secret=secret), slice_id)


def remove_created(
    cluster: Cluster, documents: Sequence[Object], *, slice_id: str, secret: bool = False
) -> None:
    """Take back a refused first order: everything of this slice goes, its new and empty volume too.

    For a slice that the cluster never accepted as a whole; so it does not matter which run made what. Objects of
    somebody else, which may be why it was refused, are left alone silently. Raises ClusterError.
    """
    with contextlib.suppress(NotOurs):
        _delete_each(cluster, _release_order(documents, volume=True, secret=secret), slice_id)


def _at_once[T](calls: Sequence[Callable[[], T]]) -> list[T]:
    """Make the calls beside each other and wait for all; return what they gave, or raise the first one's error."""
    if len(calls) < 2:
        return [call() for call in calls]
    with ThreadPoolExecutor(len(calls)) as pool:
        futures = [pool.submit(call) for call in calls]
    return [future.result() for future in futures]


def _place(document: Object) -> Place:
    metadata = document["metadata"]
    return document["kind"], metadata["namespace"], metadata["name"]


def _look(cluster: Cluster, place: Place, slice_id: str) -> Object | None:
    """The object there, if it is this slice's; None if there is none. Raises NotOurs."""
    try:
        found = (cluster.touch if place[0] == "Secret" else cluster.get)(*place)
    except PolicyRefused as error:  # of a foreign Secret the platform's policy says no more than that
        raise NotOurs(f"{place[0]} {place[2]}", kind=place[0], namespace=place[1], name=place[2]) from error
    if found is not None and _owner(found) != slice_id:
        raise NotOurs(f"{place[0]} {place[2]}", kind=place[0], namespace=place[1], name=place[2])
    return found


def _owner(found: Object) -> str | None:
    owner: str | None = (found["metadata"].get("annotations") or {}).get(ANNOTATION_SLICE)
    return owner


def _apply(cluster: Cluster, document: Object, found: Object | None) -> None:
    if found is None:
        _make(cluster, document)
    elif document["kind"] == "ResourceClaimTemplate":
        _apply_template(cluster, document, found)
    elif document["kind"] == "PersistentVolumeClaim":
        _apply_volume(cluster, document, found)
    else:
        if document["kind"] == "Deployment":
            _end_rolling_update(cluster, found)
        cluster.apply(document)


def _make(cluster: Cluster, document: Object) -> None:
    """Make what was not there when we looked. Whoever has taken the name since then keeps it, as it was.

    Applying nothing takes out again what is ours alone. An object that is ours altogether, from a request whose answer
    we gave up, would not be valid without that, so it stays and the next look finds it.
    """
    if cluster.make(document):
        return
    kind, namespace, name = _place(document)
    nothing = {key: document[key] for key in ("apiVersion", "kind")}
    with contextlib.suppress(InvalidObject, PolicyRefused):
        cluster.apply({**nothing, "metadata": {"name": name, "namespace": namespace}}, force=False)
    raise Conflict(f"{kind} {name} was made by somebody else meanwhile")


def _apply_template(cluster: Cluster, document: Object, found: Object) -> None:
    try:
        cluster.apply(document)
        return
    except InvalidObject as error:
        if not error.immutable:
            raise
    # Policies speak before the name is found to be taken: so a refusal is known before the old one goes.
    with contextlib.suppress(Conflict):
        cluster.create(document, dry_run=True)
    place = _place(document)
    cluster.delete(*place, uid=found["metadata"]["uid"])
    if cluster.get(*place) is not None:
        raise Conflict(f"the old {place[0]} {place[2]} is still being deleted")
    _make(cluster, document)


def _end_rolling_update(cluster: Cluster, found: Object) -> None:
    """Server-side apply leaves a block that others set; type and null must come in one request (C-06)."""
    strategy = found["spec"].get("strategy") or {}
    if strategy.get("rollingUpdate") is None:
        return
    patch = {"spec": {"strategy": {"type": "Recreate", "rollingUpdate": None}}}
    cluster.patch(*_place(found), patch)


def _apply_volume(cluster: Cluster, document: Object, found: Object) -> None:
    name = document["metadata"]["name"]
    has, wants = _size(found), _size(document)
    with contextlib.suppress(QuantityError):
        if parse(wants) < parse(has):
            raise VolumeChange(f"{name}: {has} > {wants}", name=name, has=Memory(int(parse(has))))
    try:
        cluster.apply(document)
    except (Forbidden, InvalidObject) as error:
        if _can_only_be_fixed(error):
            raise VolumeFixed(error.platform_message, status=error.status, name=name) from error
        raise


def _size(claim: Object) -> Any:
    return claim["spec"]["resources"]["requests"]["storage"]


def _can_only_be_fixed(error: ClusterError) -> bool:
    """Whether the API server refused the change itself: growing that the class does not allow, or anything else."""
    phrases = (
        "must support resize",
        "is immutable",
        "can not be less than",
        "is forbidden: only dynamically",
    )
    return any(phrase in error.platform_message for phrase in phrases)


def _remove_stale_service(cluster: Cluster, documents: Sequence[Object], slice_id: str) -> None:
    if any(document["kind"] == "Service" for document in documents):
        return
    with contextlib.suppress(NotOurs):
        _delete_each(cluster, [_app_places(documents)["Service"]], slice_id)


def _app_places(documents: Sequence[Object]) -> dict[str, Place]:
    """Where each kind of object of this slice would be, whether or not it has one now."""
    _, namespace, app = next(_place(document) for document in documents if document["kind"] == "Deployment")
    return {
        "Deployment": ("Deployment", namespace, app),
        "ResourceClaimTemplate": ("ResourceClaimTemplate", namespace, names.claim_template_name(app)),
        "Service": ("Service", namespace, names.service_name(app)),
        "PersistentVolumeClaim": ("PersistentVolumeClaim", namespace, names.volume_name(app)),
        "Secret": ("Secret", namespace, names.secret_name(app)),
    }


def _release_order(documents: Sequence[Object], *, volume: bool, secret: bool) -> list[Place]:
    places = _app_places(documents)
    optional = {"PersistentVolumeClaim": volume, "Secret": secret}
    kinds = ["Deployment", "ResourceClaimTemplate", "Service", *(kind for kind in optional if optional[kind])]
    return [places[kind] for kind in kinds]


def _delete_each(cluster: Cluster, places: Iterable[Place], slice_id: str) -> None:
    foreign: NotOurs | None = None
    for place in places:
        try:
            found = _look(cluster, place, slice_id)
        except NotOurs as error:
            foreign = foreign or error
            continue
        if found is not None and not found["metadata"].get("deletionTimestamp"):
            cluster.delete(*place, uid=found["metadata"]["uid"])
    if foreign is not None:
        raise foreign
