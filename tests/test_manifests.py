"""Documents of a slice: whole ones against golden files, and what holds for every spec.

`UPDATE_GOLDEN=1 pytest tests/test_manifests.py` writes tests/data/manifests/ anew; read the difference then.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpu import contract, templates_catalogue
from gpu.manifests import (
    ANNOTATION_HASH,
    ANNOTATION_RESTART,
    EnvVar,
    Probe,
    Probes,
    SpecError,
    VolumeSpec,
    WorkloadSpec,
    render,
    to_yaml,
    workload_hash,
)
from tests.specs import DIGEST, PACKAGES, PLAIN, slice_specs, workloads
from tests.specs import slice_spec as spec

GOLDEN = Path(__file__).parent / "data" / "manifests"
EVERYTHING = replace(
    PLAIN,
    command=("/bin/sh", "-c"),
    args=('echo "hello"\nexec sleep 1e3',),
    env=(EnvVar("NUMBER", "1e3"), EnvVar("YES", "y"), EnvVar("TEXT", "Grüße: 聊天 'x' #1")),
    port=8080,
    volume=VolumeSpec("20Gi", "/data", "fast"),
    probes=Probes(startup=Probe(path="/"), readiness=Probe(port=9090), liveness=Probe(command=("true",))),
)
CASES = {
    "plain": spec(),
    "everything": spec(EVERYTHING, app="mein-modell-test", package=1, restart=2),
    "stopped": spec(replicas=0, package=2),
    **{
        code: spec(replace(template.first(), image=template.defaults.image or PLAIN.image))
        for code, template in templates_catalogue.TEMPLATES.items()
    },
}


@pytest.mark.parametrize("name", CASES)
def test_documents_are_those_of_the_golden_file(name: str) -> None:
    text = to_yaml(render(CASES[name]))
    path = GOLDEN / f"{name}.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_there_is_no_golden_file_too_many() -> None:
    assert {path.stem for path in GOLDEN.glob("*.yaml")} == set(CASES)


def test_kubectl_reads_the_yaml_as_the_same_values(tmp_path: Path) -> None:
    """`kubectl kustomize` reads and writes YAML as `kubectl apply` does, without a cluster."""
    documents = render(CASES["everything"])
    (tmp_path / "slice.yaml").write_text(to_yaml(documents), encoding="utf-8")
    (tmp_path / "kustomization.yaml").write_text("resources: [slice.yaml]\n", encoding="utf-8")
    kubectl = Path(sys.executable).with_name("kubectl")
    read = subprocess.run([kubectl, "kustomize", tmp_path], capture_output=True, text=True, check=True).stdout
    by_kind = {document["kind"]: document for document in yaml.safe_load_all(read)}
    assert by_kind == {document["kind"]: document for document in documents}


def test_recreate_without_a_rolling_update_block() -> None:
    """Case C-06."""
    deployment = render(spec(templates_catalogue.TEMPLATES["ollama"].first()))[2]
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    assert deployment["spec"]["replicas"] == 1


def test_documents_come_in_the_order_in_which_they_are_applied() -> None:
    assert [d["kind"] for d in render(CASES["everything"])] == [
        "ResourceClaimTemplate",
        "PersistentVolumeClaim",
        "Deployment",
        "Service",
    ]
    assert [d["kind"] for d in render(spec())] == ["ResourceClaimTemplate", "Deployment"]


def test_a_restart_shows_in_the_pod_template_only_after_the_first() -> None:
    for restart, annotation in ((0, None), (1, "1"), (12, "12")):
        pod = render(spec(restart=restart))[1]["spec"]["template"]["metadata"]["annotations"]
        assert pod.get(ANNOTATION_RESTART) == annotation


def test_another_image_leaves_the_immutable_claim_template_as_it_is() -> None:
    before, after = (
        render(spec()),
        render(spec(replace(PLAIN, image=f"registry.example.test/other@{DIGEST}"))),
    )
    assert before[0] == after[0]
    assert (
        before[1]["metadata"]["annotations"][ANNOTATION_HASH]
        != after[1]["metadata"]["annotations"][ANNOTATION_HASH]
    )
    assert render(spec(package=1))[0] != before[0]


@given(slice_specs)
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_every_slice_renders_within_the_contract(slice_) -> None:
    documents = render(slice_)
    assert [f for f in contract.check(documents, PACKAGES) if f.rule != "image-not-by-digest"] == []
    assert contract.refused(contract.check_workload(slice_.workload)) == ()


@given(slice_specs)
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_the_same_spec_gives_the_same_bytes_and_the_yaml_the_same_documents(slice_) -> None:
    documents = render(slice_)
    text = to_yaml(documents)
    assert to_yaml(render(slice_)) == text
    assert tuple(yaml.safe_load_all(text)) == documents
    assert json.loads(json.dumps(documents)) == list(documents)


@given(slice_specs)
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_the_hash_on_the_deployment_covers_all_documents(slice_) -> None:
    documents = render(slice_)
    template, deployment = documents[0], next(d for d in documents if d["kind"] == "Deployment")
    for metadata in (deployment["metadata"], deployment["spec"]["template"]["metadata"]):
        assert metadata["annotations"][ANNOTATION_HASH] == workload_hash(documents)
    for metadata in (template["metadata"], template["spec"]["metadata"]):
        assert metadata["annotations"][ANNOTATION_HASH] == workload_hash([template])
    for document in documents:
        changed = [{**d, "spec": {**d["spec"], "x": 1}} if d is document else d for d in documents]
        assert workload_hash(changed) != workload_hash(documents)


@given(workloads)
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_a_workload_comes_back_from_json(workload: WorkloadSpec) -> None:
    assert WorkloadSpec.from_json(json.loads(json.dumps(workload.to_json()))) == workload


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"image": "a:1", "colour": "red"},
        {"image": "a:1", "command": "sh"},
        {"image": "a:1", "command": [1]},
        {"image": "a:1", "env": [{"name": "A", "value": 1}]},
        {"image": "a:1", "env": [{"name": "A"}]},
        {"image": "a:1", "volume": {"size": "1Gi"}},
        {"image": "a:1", "volume": "1Gi"},
        {"image": "a:1", "probes": {"other": None}},
        {"image": "a:1", "env": None},
        {"image": 7},
        {"image": "a:1", "port": "8080"},
        {"image": "a:1", "memory_limit": 4},
        {"image": "a:1", "port": True},
        {"image": "a:1", "volume": {"size": "1Gi", "mount_path": None}},
        {"image": "a:1", "probes": {"startup": {"period": "10"}}},
    ],
)
def test_stored_json_of_another_shape_is_refused(data: dict[str, object]) -> None:
    with pytest.raises(SpecError):
        WorkloadSpec.from_json(data)


def test_json_of_an_older_row_takes_defaults() -> None:
    assert WorkloadSpec.from_json({"image": "a:1"}) == WorkloadSpec("a:1")


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_any_text_survives_yaml(value: str) -> None:
    document = {"value": value, value: "key"}
    assert list(yaml.safe_load_all(to_yaml([document]))) == [document]


@pytest.mark.parametrize(
    "word", ["1e3", "0x1f", "012", "1_000", "y", "No", "null", "~", "", "2026-11-30", "1:30", ".inf", "-"]
)
def test_text_that_looks_like_something_else_is_quoted(word: str) -> None:
    assert to_yaml([{"value": word}]) == f'value: "{word}"\n'


def test_a_probe_needs_a_port() -> None:
    with pytest.raises(SpecError):
        render(spec(replace(PLAIN, probes=Probes(liveness=Probe(path="/")))))
