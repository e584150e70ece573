"""A slice's documents go in and out of a cluster: order, ownership, replacement, and a crash at every step."""

from __future__ import annotations

import copy
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpu.cluster import errors
from gpu.cluster.apply import apply_all, delete_all, remove_created
from gpu.cluster.client import Cluster, ClusterSettings, connect
from gpu.manifests import EnvVar, PackageTerms, SliceSpec, VolumeSpec, WorkloadSpec, render
from tests.fake_api import Asked, Reply, as_json, status_object
from tests.fake_namespace import NS, Store, recorded

SLICE = "sl-1"
TEMPLATE, VOLUME, DEPLOYMENT, SERVICE, SECRET = (
    "resourceclaimtemplates/chat-gpu",
    "persistentvolumeclaims/chat-data",
    "deployments/chat",
    "services/chat",
    "secrets/chat-auth",
)


def documents(
    *,
    share: int = 25,
    size: str | None = "20Gi",
    port: int | None = 8000,
    image: str = "a:1",
    slice_id: str = SLICE,
) -> tuple[dict[str, Any], ...]:
    profile = {25: ("nvidia-v100-hami", 8192), 50: ("nvidia-v100-hami-16g", 16384)}[share]
    return render(
        SliceSpec(
            namespace=NS,
            app="chat",
            terms=PackageTerms(f"class-{share}", profile[0], profile[1], share),
            workload=WorkloadSpec(
                image=image,
                command=(),
                args=(),
                env=(EnvVar("A", "1"),),
                port=port,
                cpu_request="1",
                cpu_limit="2",
                memory_request="2Gi",
                memory_limit="4Gi",
                volume=VolumeSpec(size, "/data", None) if size else None,
                template="custom",
            ),
            replicas=1,
            restart=0,
            slice_id=slice_id,
        )
    )


def secret(slice_id: str = SLICE) -> dict[str, Any]:
    metadata = {"name": "chat-auth", "namespace": NS, "annotations": {"gpu-portal/slice": slice_id}}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"token": "eA=="}}


@pytest.fixture
def store() -> Iterator[Store]:
    with Store() as server:
        yield server


@pytest.fixture
def cluster(store: Store, tmp_path: Path) -> Iterator[Cluster]:
    path = tmp_path / "kubeconfig"
    path.write_text(store.kubeconfig())
    client = connect(ClusterSettings(str(path)))
    yield client
    client.close()


def without_uids(objects: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    plain = copy.deepcopy(objects)
    for obj in plain.values():
        obj["metadata"].pop("uid")
    return plain


def test_what_the_pod_needs_is_there_before_the_deployment(store: Store, cluster: Cluster) -> None:
    apply_all(cluster, [secret(), *documents()], slice_id=SLICE)
    assert set(store.writes[:3]) == {f"PATCH {key}" for key in (SECRET, TEMPLATE, VOLUME)}
    assert set(store.writes[3:]) == {f"PATCH {key}" for key in (DEPLOYMENT, SERVICE)}
    made = without_uids(store.objects)
    assert [made[key] for key in (TEMPLATE, VOLUME, DEPLOYMENT, SERVICE)] == list(documents())


@pytest.mark.parametrize(("method", "together"), [("GET", 4), ("PATCH", 2)])
def test_requests_that_need_not_wait_are_sent_at_once(
    method: str, together: int, store: Store, cluster: Cluster
) -> None:
    met = threading.Barrier(together)

    def meet(asked: Asked) -> Reply:
        met.wait(10)
        return store._answer(asked)

    store._rules.insert(0, type(store._rules[0])(method, store._rules[0].pattern, [meet]))
    apply_all(cluster, documents(), slice_id=SLICE)
    assert len(store.objects) == 4


def test_of_two_refusals_the_one_told_does_not_depend_on_which_came_first(
    store: Store, cluster: Cluster
) -> None:
    refused = recorded("deployment-rolling-update")
    late = threading.Event()

    def later(asked: Asked) -> Reply:
        late.wait(1)
        return refused if "deployments" in asked.path else store._answer(asked)

    store.refusals[SERVICE] = recorded("pvc-over-quota")
    store._rules.insert(0, type(store._rules[0])("PATCH", re.compile("deployments/"), [later]))
    with pytest.raises(errors.PolicyRefused):
        apply_all(cluster, documents(), slice_id=SLICE)


def test_twice_is_once(store: Store, cluster: Cluster) -> None:
    apply_all(cluster, documents(), slice_id=SLICE)
    before = copy.deepcopy(store.objects)
    apply_all(cluster, documents(), slice_id=SLICE)
    assert store.objects == before


@pytest.mark.parametrize("after_effect", [False, True])
@pytest.mark.parametrize("step", range(8))
def test_c16_a_crash_at_any_step_ends_in_the_same_state(
    step: int, after_effect: bool, store: Store, cluster: Cluster
) -> None:
    store.break_at, store.broken_after_effect = step, after_effect
    with pytest.raises(errors.Unreachable) as caught:
        apply_all(cluster, documents(), slice_id=SLICE)
    assert caught.value.retry
    apply_all(cluster, documents(), slice_id=SLICE)
    assert sorted(store.objects) == sorted([TEMPLATE, VOLUME, DEPLOYMENT, SERVICE])
    assert {json.dumps(each) for each in without_uids(store.objects).values()} == {
        json.dumps(each) for each in documents()
    }


@pytest.mark.parametrize("foreign", [TEMPLATE, VOLUME, DEPLOYMENT, SERVICE])
@pytest.mark.parametrize("owner", [None, {}, {"gpu-portal/slice": "sl-other"}, {"gpu-portal/slice": ""}])
def test_nothing_is_written_when_a_name_belongs_to_somebody_else(
    foreign: str, owner: dict[str, str] | None, store: Store, cluster: Cluster
) -> None:
    kinds = dict(zip((TEMPLATE, VOLUME, DEPLOYMENT, SERVICE), documents(), strict=True))
    theirs = copy.deepcopy(kinds[foreign])
    theirs["metadata"]["annotations"] = owner
    store.put(foreign, theirs)
    before = copy.deepcopy(store.objects)
    with pytest.raises(errors.NotOurs) as caught:
        apply_all(cluster, documents(), slice_id=SLICE)
    assert (caught.value.retry, caught.value.who) == (False, "operator")
    assert kinds[foreign]["metadata"]["name"] in str(caught.value.sentence)
    with pytest.raises(errors.NotOurs):
        delete_all(cluster, documents(), slice_id=SLICE, volume=True)
    remove_created(cluster, documents(), slice_id=SLICE)
    assert store.objects == before
    assert store.writes == []


def test_a_name_taken_since_we_looked_is_not_forced(store: Store, cluster: Cluster) -> None:
    apply_all(cluster, documents(), slice_id=SLICE)
    assert {each.query["force"] for each in store.asked if each.method == "PATCH"} == {"false"}


def test_an_object_on_its_way_out_is_waited_for(store: Store, cluster: Cluster) -> None:
    dying = copy.deepcopy(documents()[1])
    dying["metadata"]["deletionTimestamp"] = "2026-11-30T17:00:00Z"
    store.put(VOLUME, dying)
    with pytest.raises(errors.Conflict) as caught:
        apply_all(cluster, documents(), slice_id=SLICE)
    assert caught.value.retry
    assert store.writes == []


# --- another package ------------------------------------------------------------------------------------------------


def test_a_template_of_another_size_is_replaced(store: Store, cluster: Cluster) -> None:
    apply_all(cluster, documents(), slice_id=SLICE)
    store.writes.clear()
    apply_all(cluster, documents(share=50), slice_id=SLICE)
    assert [write for write in store.writes if TEMPLATE in write] == [
        f"PATCH {TEMPLATE}",
        f"POST {TEMPLATE} All",
        f"DELETE {TEMPLATE}",
        f"PATCH {TEMPLATE}",
    ]
    assert store.writes[-1] in (f"PATCH {DEPLOYMENT}", f"PATCH {SERVICE}")
    assert without_uids(store.objects)[TEMPLATE] == documents(share=50)[0]


def test_a_refused_replacement_leaves_the_old_template(store: Store, cluster: Cluster) -> None:
    apply_all(cluster, documents(), slice_id=SLICE)
    before = copy.deepcopy(store.objects)

    def by_policy(asked: Asked) -> Reply:
        return recorded("template-wrong-capacity")

    store._rules.insert(0, type(store._rules[0])("POST", store._rules[0].pattern, [by_policy]))
    with pytest.raises(errors.PolicyRefused):
        apply_all(cluster, documents(share=50), slice_id=SLICE)
    assert store.objects == before


@pytest.mark.parametrize("after_effect", [False, True])
@pytest.mark.parametrize("step", range(8, 20))
def test_a_crash_during_replacement_ends_in_the_same_state(
    step: int, after_effect: bool, store: Store, cluster: Cluster
) -> None:
    apply_all(cluster, documents(), slice_id=SLICE)
    store.break_at, store.broken_after_effect = step, after_effect
    with pytest.raises(errors.Unreachable):
        apply_all(cluster, documents(share=50), slice_id=SLICE)
    apply_all(cluster, documents(share=50), slice_id=SLICE)
    assert {json.dumps(each) for each in without_uids(store.objects).values()} == {
        json.dumps(each) for each in documents(share=50)
    }


# --- C-06 -----------------------------------------------------------------------------------------------------------


def test_c06_recreate_and_null_travel_in_one_request(store: Store, cluster: Cluster) -> None:
    older = copy.deepcopy(documents()[2])
    block = {"maxSurge": "25%", "maxUnavailable": "25%"}
    older["spec"]["strategy"] = {"type": "RollingUpdate", "rollingUpdate": block}
    store.put(DEPLOYMENT, older)
    apply_all(cluster, documents(), slice_id=SLICE)
    merge = next(
        each for each in store.asked if each.headers.get("content-type") == "application/merge-patch+json"
    )
    assert merge.json == {"spec": {"strategy": {"type": "Recreate", "rollingUpdate": None}}}
    assert store.objects[DEPLOYMENT]["spec"]["strategy"] == {"type": "Recreate"}
    assert store.objects[DEPLOYMENT]["spec"]["replicas"] == 1


def test_c06_the_fake_refuses_type_alone(store: Store, cluster: Cluster) -> None:
    older = copy.deepcopy(documents()[2])
    older["spec"]["strategy"] = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}
    store.put(DEPLOYMENT, older)
    with pytest.raises(errors.InvalidObject):
        cluster.patch("Deployment", NS, "chat", {"spec": {"strategy": {"type": "Recreate"}}})


# --- volume and service -----------------------------------------------------------------------------------------------


def test_a_volume_grows_and_never_shrinks(store: Store, cluster: Cluster) -> None:
    apply_all(cluster, documents(size="20Gi"), slice_id=SLICE)
    apply_all(cluster, documents(size="40Gi"), slice_id=SLICE)
    assert store.objects[VOLUME]["spec"]["resources"]["requests"]["storage"] == "40Gi"
    with pytest.raises(errors.VolumeChange) as caught:
        apply_all(cluster, documents(size="30Gi"), slice_id=SLICE)
    assert not caught.value.retry
    assert "chat-data" in str(caught.value.sentence)
    apply_all(cluster, documents(size="40960Mi"), slice_id=SLICE)


def test_a_class_that_cannot_grow_is_told_as_that(store: Store, cluster: Cluster) -> None:
    apply_all(cluster, documents(size="20Gi"), slice_id=SLICE)
    store.refusals[VOLUME] = status_object(
        403,
        "Forbidden",
        'persistentvolumeclaims "chat-data" is forbidden: only dynamically provisioned pvc can be resized and the '
        "storageclass that provisions the pvc must support resize",
    )
    with pytest.raises(errors.VolumeFixed):
        apply_all(cluster, documents(size="40Gi"), slice_id=SLICE)


def test_a_volume_over_quota_is_a_quota_refusal(store: Store, cluster: Cluster) -> None:
    apply_all(cluster, documents(size="20Gi"), slice_id=SLICE)
    store.refusals[VOLUME] = recorded("pvc-over-quota")
    with pytest.raises(errors.QuotaExceeded):
        apply_all(cluster, documents(size="500Gi"), slice_id=SLICE)


def test_a_workload_without_a_port_has_no_service_left(store: Store, cluster: Cluster) -> None:
    apply_all(cluster, documents(), slice_id=SLICE)
    apply_all(cluster, documents(port=None), slice_id=SLICE)
    assert sorted(store.objects) == sorted([TEMPLATE, VOLUME, DEPLOYMENT])


def test_somebody_elses_service_of_the_name_stays(store: Store, cluster: Cluster) -> None:
    apply_all(cluster, documents(port=None), slice_id=SLICE)
    store.put(SERVICE, {"kind": "Service", "metadata": {"name": "chat"}, "spec": {}})
    apply_all(cluster, documents(port=None), slice_id=SLICE)
    assert SERVICE in store.objects


# --- out again --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("volume", [False, True])
def test_release_deletes_in_order_and_the_volume_only_if_asked(
    volume: bool, store: Store, cluster: Cluster
) -> None:
    apply_all(cluster, documents(), slice_id=SLICE)
    store.writes.clear()
    delete_all(cluster, documents(), slice_id=SLICE, volume=volume)
    asked_for = [VOLUME] if volume else []
    assert store.writes == [f"DELETE {key}" for key in (DEPLOYMENT, TEMPLATE, SERVICE, *asked_for)]
    assert list(store.objects) == ([] if volume else [VOLUME])
    delete_all(cluster, documents(), slice_id=SLICE, volume=volume)


def test_release_finds_what_the_row_has_forgotten(store: Store, cluster: Cluster) -> None:
    apply_all(cluster, documents(), slice_id=SLICE)
    delete_all(cluster, documents(size=None, port=None), slice_id=SLICE, volume=True)
    assert store.objects == {}


def test_release_deletes_our_own_before_it_reports_a_foreign_one(store: Store, cluster: Cluster) -> None:
    apply_all(cluster, documents(port=None), slice_id=SLICE)
    store.put(SERVICE, {"kind": "Service", "metadata": {"name": "chat"}, "spec": {}})
    with pytest.raises(errors.NotOurs):
        delete_all(cluster, documents(port=None), slice_id=SLICE, volume=True)
    assert list(store.objects) == [SERVICE]


def test_the_secret_goes_with_the_slice_and_only_if_asked(store: Store, cluster: Cluster) -> None:
    apply_all(cluster, [secret(), *documents()], slice_id=SLICE)
    delete_all(cluster, documents(), slice_id=SLICE, volume=True)
    assert list(store.objects) == [SECRET]
    delete_all(cluster, documents(), slice_id=SLICE, volume=True, secret=True)
    assert store.objects == {}


@pytest.mark.parametrize("owner", [None, {"gpu-portal/slice": "sl-other"}])
def test_somebody_elses_secret_is_neither_written_nor_deleted(
    owner: dict[str, str] | None, store: Store, cluster: Cluster
) -> None:
    theirs = secret()
    theirs["metadata"]["annotations"] = owner
    store.put(SECRET, theirs)
    before = copy.deepcopy(store.objects)
    with pytest.raises(errors.NotOurs):
        apply_all(cluster, [secret(), *documents()], slice_id=SLICE)
    with pytest.raises(errors.NotOurs):
        delete_all(cluster, documents(), slice_id=SLICE, volume=True, secret=True)
    remove_created(cluster, documents(), slice_id=SLICE, secret=True)
    assert store.objects == before
    assert store.writes == []


def test_a_successor_of_the_same_name_is_not_deleted(store: Store, cluster: Cluster) -> None:
    apply_all(cluster, documents(), slice_id=SLICE)
    looked_at = as_json(store.objects[DEPLOYMENT])
    store.put(DEPLOYMENT, {**documents()[2], "metadata": {**documents()[2]["metadata"], "uid": "successor"}})
    store._rules.insert(0, type(store._rules[0])("GET", store._rules[0].pattern, [looked_at]))
    with pytest.raises(errors.Conflict):
        delete_all(cluster, documents(), slice_id=SLICE, volume=False)
    assert store.objects[DEPLOYMENT]["metadata"]["uid"] == "successor"


def test_c14_a_refusal_leaves_nothing_behind(store: Store, cluster: Cluster) -> None:
    store.refusals[DEPLOYMENT] = recorded("deployment-rolling-update")
    with pytest.raises(errors.PolicyRefused) as caught:
        apply_all(cluster, documents(), slice_id=SLICE)
    assert not caught.value.retry
    assert DEPLOYMENT not in store.objects
    assert {TEMPLATE, VOLUME} <= set(store.objects)
    remove_created(cluster, documents(), slice_id=SLICE)
    assert store.objects == {}
