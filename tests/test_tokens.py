"""A notebook's access token: in a Secret and nowhere else, shown once to whoever ordered, forgotten then."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import pytest

from gpu import orders, tokens
from gpu.cluster.client import Cluster
from gpu.manifests import render, secret_document, to_yaml
from gpu.models import Slice, SliceSecret
from gpu.provision import provision
from gpu.templates_catalogue import TEMPLATES
from tests.api_kit import Api, problem
from tests.clusters import Target
from tests.factories import World, world
from tests.live import entitle, namespace_of, portal_cluster, row_of
from tests.test_api_schema import check
from tests.view_kit import signed_in

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def made() -> World:
    return world(entitled=3)


@pytest.fixture
def row(made: World) -> Slice:
    return row_of(made.order("Notes", workload=TEMPLATES["notebook"].first()))


def test_the_token_stands_in_no_manifest_and_no_row_but_its_own(row: Slice) -> None:
    token = tokens.to_send(row)
    assert len(token) == 40
    text = to_yaml(render(row.manifest_spec("acme-ai")))
    assert token not in text
    assert "secretKeyRef" in text
    assert token not in str(row.spec)
    secret = secret_document(row.manifest_spec("acme-ai"), token)
    assert base64.b64decode(secret["data"]["token"]).decode() == token
    assert secret["metadata"]["annotations"] == {"gpu-portal/slice": row.public_id}


def test_it_is_shown_once_to_whoever_ordered_and_forgotten_when_the_cluster_has_it(
    made: World, row: Slice
) -> None:
    token = tokens.to_send(row)
    assert tokens.show_once(row, made.lee) is None
    assert tokens.show_once(row, made.kim) == token
    assert tokens.show_once(row, made.kim) is None
    assert tokens.to_send(row) == token
    tokens.note_sent(row, token)
    assert tokens.to_send(row) == ""
    assert SliceSecret.objects.get().value == ""


def test_the_page_shows_it_once(made: World, row: Slice) -> None:
    token = tokens.to_send(row)
    kim, lee, robin = signed_in(made.kim), signed_in(made.lee), signed_in(made.robin)
    address = f"/slices/{row.public_id}/token/"
    assert robin.post(address).status_code == 404
    assert token not in lee.post(address).content.decode()
    assert 'id="show-token"' not in lee.get(f"/slices/{row.public_id}/").content.decode()
    page = kim.get(f"/slices/{row.public_id}/").content.decode()
    assert 'id="show-token"' in page
    assert token not in page
    shown = kim.post(address)
    assert token in shown.content.decode()
    assert shown["Cache-Control"] == "no-store"
    assert token not in kim.post(address).content.decode()
    assert 'id="show-token"' not in kim.get(f"/slices/{row.public_id}/").content.decode()


def test_the_api_shows_it_once(made: World, row: Slice) -> None:
    token = tokens.to_send(row)
    api = Api(made.kim, made.acme)
    answer = api("POST", f"slices/{row.public_id}/token/")
    check("Token", answer.json())
    assert answer.json() == {"token": token}
    problem(api("POST", f"slices/{row.public_id}/token/"), 409, "no_token")
    problem(Api(made.robin, made.birch)("POST", f"slices/{row.public_id}/token/"), 404, "not_found")


def test_other_templates_have_none(made: World) -> None:
    made.order("Plain")
    assert not SliceSecret.objects.exists()


# On a cluster


@pytest.fixture
def placed(cluster: Target, made: World) -> Iterator[World]:
    with namespace_of(cluster, made.project):
        yield made


@pytest.mark.cluster
def test_the_secret_comes_before_the_deployment_and_goes_with_the_slice(
    cluster: Target, placed: World
) -> None:
    portal: Cluster = portal_cluster(cluster)
    entitle(placed, portal, 1)
    row = row_of(placed.order("Notes", workload=TEMPLATES["notebook"].first()))
    token = tokens.to_send(row)
    provision(row.pk, portal)
    assert row_of(row).action == "applied"
    admin, namespace = cluster.client(), placed.project.namespace
    found = admin.get("v1", "Secret", namespace, f"{row.app}-auth").body
    assert base64.b64decode(found["data"]["token"]).decode() == token
    [container] = admin.get("apps/v1", "Deployment", namespace, row.app).body["spec"]["template"]["spec"][
        "containers"
    ]
    [variable] = [item for item in container["env"] if item["name"] == "JUPYTER_TOKEN"]
    assert variable["valueFrom"]["secretKeyRef"] == {"name": f"{row.app}-auth", "key": "token"}
    orders.release(None, row_of(row), delete_volume=True)
    provision(row.pk, portal)
    assert admin.get("v1", "Secret", namespace, f"{row.app}-auth").status == 404


@pytest.mark.cluster
@pytest.mark.parametrize("owner", [None, {"gpu-portal/slice": "sl-other"}])
def test_somebody_elses_secret_of_the_name_is_left_alone(
    cluster: Target, placed: World, owner: dict[str, str] | None
) -> None:
    portal: Cluster = portal_cluster(cluster)
    entitle(placed, portal, 2)
    admin, namespace = cluster.client(), placed.project.namespace
    theirs = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "notes-auth", "annotations": owner or {}},
        "data": {"token": "eA=="},
    }
    before = admin.create(theirs, namespace=namespace).body
    row = row_of(placed.order("Notes", workload=TEMPLATES["notebook"].first()))
    assert row.app == "notes"
    provision(row.pk, portal)
    assert (row_of(row).action, row_of(row).action_code) == ("refused", "not_ours")
    assert admin.get("v1", "Secret", namespace, "notes-auth").body == before
    assert not admin.get("apps/v1", "Deployment", namespace, "notes").ok


@pytest.mark.cluster
def test_a_release_leaves_a_secret_that_became_somebody_elses(cluster: Target, placed: World) -> None:
    portal: Cluster = portal_cluster(cluster)
    entitle(placed, portal, 1)
    row = row_of(placed.order("Notes", workload=TEMPLATES["notebook"].first()))
    provision(row.pk, portal)
    admin, namespace = cluster.client(), placed.project.namespace
    secret = admin.get("v1", "Secret", namespace, "notes-auth").body
    theirs = {**secret, "metadata": {"name": "notes-auth", "annotations": {"gpu-portal/slice": "sl-other"}}}
    assert admin.delete("v1", "Secret", namespace, "notes-auth").ok
    assert admin.create(theirs, namespace=namespace).ok
    orders.release(None, row_of(row), delete_volume=True)
    provision(row.pk, portal)
    assert admin.get("v1", "Secret", namespace, "notes-auth").ok
    assert (row_of(row).action, row_of(row).action_code) == ("needs_operator", "not_ours")


@pytest.mark.cluster
def test_the_portal_is_told_nothing_of_what_a_secret_holds(cluster: Target, placed: World) -> None:
    admin, namespace = cluster.client(), placed.project.namespace
    metadata = {"name": "notes-auth", "annotations": {"gpu-portal/slice": "sl-1"}}
    admin.create(
        {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"token": "eA=="}},
        namespace=namespace,
    )
    found = portal_cluster(cluster).touch("Secret", namespace, "notes-auth")
    assert found is not None
    assert found["metadata"]["annotations"] == metadata["annotations"]
    assert "data" not in found
    assert portal_cluster(cluster).touch("Secret", namespace, "other") is None
