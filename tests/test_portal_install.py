"""deploy/portal: every overlay builds, every pod is restricted, and the processes are those of docker-compose.yml."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.portal_overlays import DEPLOY, OVERLAYS, Doc, build, checkout, pod_of

ROOT = DEPLOY.parent
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
PROCESSES = ("web", "worker", "watcher", "beat")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Doc]]:
    """The documents of each overlay."""
    copy = checkout(tmp_path_factory.mktemp("kustomize"))
    return {name: build(copy / "portal" / name) for name in OVERLAYS}


def one(documents: list[Doc], kind: str, name: str) -> Doc:
    """The document of this kind and name."""
    (found,) = [item for item in documents if (item["kind"], item["metadata"]["name"]) == (kind, name)]
    return found


def workloads(documents: list[Doc]) -> list[tuple[str, Doc]]:
    """Name and pod spec of everything that makes pods."""
    return [(item["metadata"]["name"], pod) for item in documents if (pod := pod_of(item)) is not None]


def containers(pod: Doc) -> list[Doc]:
    """All containers of a pod."""
    return [*pod.get("initContainers", []), *pod["containers"]]


@pytest.mark.parametrize("overlay", OVERLAYS)
class TestOverlay:
    def test_everything_is_in_the_portals_namespace(self, built: dict[str, list[Doc]], overlay: str) -> None:
        assert {item["metadata"]["namespace"] for item in built[overlay]} == {"gpu-portal"}

    def test_pods_are_restricted_and_cannot_write_their_root(
        self, built: dict[str, list[Doc]], overlay: str
    ) -> None:
        found = workloads(built[overlay])
        assert len(found) >= 5
        for name, pod in found:
            security = pod["securityContext"]
            assert security["runAsNonRoot"] is True, name
            assert security["runAsUser"] > 0, name
            assert security["seccompProfile"] == {"type": "RuntimeDefault"}, name
            for container in containers(pod):
                assert container["securityContext"] == {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                }, name

    def test_every_container_says_what_it_needs(self, built: dict[str, list[Doc]], overlay: str) -> None:
        for name, pod in workloads(built[overlay]):
            for container in containers(pod):
                assert container["resources"]["requests"].keys() == {"cpu", "memory"}, name
                assert "memory" in container["resources"]["limits"], name

    def test_images_have_a_version(self, built: dict[str, list[Doc]], overlay: str) -> None:
        for name, pod in workloads(built[overlay]):
            for container in containers(pod):
                assert re.search(r":\d[\w.]*$", container["image"]), name

    def test_only_worker_and_watcher_have_an_account_of_the_cluster(
        self, built: dict[str, list[Doc]], overlay: str
    ) -> None:
        holders = {
            name
            for name, pod in workloads(built[overlay])
            if pod["automountServiceAccountToken"] or "serviceAccountName" in pod
        }
        assert holders == {"portal-worker", "portal-watcher"}
        reachable = one(built[overlay], "NetworkPolicy", "portal-to-clusters")
        (expression,) = reachable["spec"]["podSelector"]["matchExpressions"]
        assert set(expression["values"]) == holders

    def test_volumes_and_secrets_that_are_mounted_exist(
        self, built: dict[str, list[Doc]], overlay: str
    ) -> None:
        made = {item["metadata"]["name"] for item in built[overlay] if item["kind"] == "Secret"}
        for name, pod in workloads(built[overlay]):
            volumes = {volume["name"]: volume for volume in pod["volumes"]}
            for container in containers(pod):
                mounted = {mount["name"] for mount in container["volumeMounts"]} - {"data"}
                assert mounted <= volumes.keys(), name
            if "secrets" in volumes and overlay != "overlays/evaluation":
                assert volumes["secrets"]["secret"]["secretName"] == "gpu-portal"
            elif "secrets" in volumes:
                assert volumes["secrets"]["secret"]["secretName"] in made

    def test_nothing_comes_in_or_goes_out_unnamed(self, built: dict[str, list[Doc]], overlay: str) -> None:
        closed = one(built[overlay], "NetworkPolicy", "portal-nothing-else")["spec"]
        assert closed["policyTypes"] == ["Ingress", "Egress"]
        assert "ingress" not in closed
        assert "egress" not in closed
        for item in built[overlay]:
            if pod_of(item) is not None:
                labels = item["spec"]["template"]["metadata"]["labels"]
                assert labels["app.kubernetes.io/part-of"] == "gpu-portal", item["metadata"]["name"]


@pytest.mark.parametrize("process", PROCESSES)
def test_the_processes_are_those_of_the_compose_file(built: dict[str, list[Doc]], process: str) -> None:
    pod = pod_of(one(built["base"], "Deployment", f"portal-{process}"))
    assert pod is not None
    (container,) = pod["containers"]
    assert container.get("command") == COMPOSE[process].get("command")
    assert container["livenessProbe"]
    (waiting,) = pod["initContainers"]
    assert waiting["command"] == ["python", "manage.py", "migrate", "--check"]


def test_migrations_are_a_step_of_their_own_that_gives_up_rather_than_hold_up(
    built: dict[str, list[Doc]],
) -> None:
    job = one(built["base"], "Job", "portal-migrate")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["command"] == COMPOSE["migrate"]["command"]
    assert container["env"] == [{"name": "PGOPTIONS", "value": "-c lock_timeout=1s"}]
    assert COMPOSE["migrate"]["environment"]["PGOPTIONS"] == "-c lock_timeout=1s"
    assert job["spec"]["backoffLimit"] >= 10


def test_settings_are_ones_that_are_read(built: dict[str, list[Doc]]) -> None:
    known = (ROOT / "portal" / "settings.py").read_text()
    for name in one(built["base"], "ConfigMap", "gpu-portal")["data"]:
        assert f'"{name.removesuffix("_FILE")}"' in known, name


def test_web_is_spread_kept_and_probed(built: dict[str, list[Doc]]) -> None:
    documents = built["overlays/production"]
    web = one(documents, "Deployment", "portal-web")
    assert web["spec"]["replicas"] == 3
    assert web["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    pod = pod_of(web)
    assert pod is not None
    (container,) = pod["containers"]
    paths = {
        kind: container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "liveness", "readiness")
    }
    assert paths == {"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}
    assert one(documents, "PodDisruptionBudget", "portal-web")["spec"]["minAvailable"] == 1
    service = one(documents, "Service", "portal-web")["spec"]
    labels = web["spec"]["template"]["metadata"]["labels"]
    assert service["selector"].items() <= labels.items()
    assert service["ports"][0]["targetPort"] == container["ports"][0]["name"]
    backend = one(documents, "Ingress", "portal")["spec"]["rules"][0]["http"]["paths"][0]["backend"]
    assert backend["service"] == {"name": "portal-web", "port": {"name": service["ports"][0]["name"]}}


def test_beat_is_never_there_twice(built: dict[str, list[Doc]]) -> None:
    beat = one(built["base"], "Deployment", "portal-beat")["spec"]
    assert (beat["replicas"], beat["strategy"]) == (1, {"type": "Recreate"})


def test_a_worker_may_end_its_task(built: dict[str, list[Doc]], settings: Any) -> None:
    pod = pod_of(one(built["base"], "Deployment", "portal-worker"))
    assert pod is not None
    assert pod["terminationGracePeriodSeconds"] > settings.TASK_HARD_LIMIT


def test_the_evaluation_has_the_versions_that_are_supported(built: dict[str, list[Doc]]) -> None:
    images = {
        container["image"]
        for _name, pod in workloads(built["overlays/evaluation"])
        for container in pod["containers"]
    }
    assert {"postgres:17", "redis:7"} <= images
    assert not [item for item in built["overlays/evaluation"] if item["kind"] == "PodDisruptionBudget"]


def test_secrets_are_not_kept_by_git() -> None:
    assert "secrets.env" in (ROOT / ".gitignore").read_text().splitlines()
    assert not [path for path in Path(DEPLOY).rglob("*.yaml") if "kind: Secret" in path.read_text()]
