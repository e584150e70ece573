"""The fields of an order form against the contract: each fault at its field, and mends that mend."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from gpu import contract, templates_catalogue
from gpu.images import Ceiling
from gpu.manifests import EnvVar, Probe, Probes, VolumeSpec, WorkloadSpec, render
from gpu.messages import Text
from tests.specs import DIGEST, PLAIN
from tests.specs import slice_spec as spec

WITH_VOLUME = replace(PLAIN, volume=VolumeSpec("20Gi", "/data"), port=8080)


def rules_of(workload: WorkloadSpec, **options: Any) -> set[tuple[str, str, str]]:
    return {(f.rule, f.place, f.level) for f in contract.check_workload(workload, **options)}


def with_env(*pairs: tuple[str, str], template: str = "custom") -> WorkloadSpec:
    return replace(PLAIN, env=tuple(EnvVar(*pair) for pair in pairs), template=template)


def with_volume(**fields: Any) -> WorkloadSpec:
    return replace(PLAIN, volume=VolumeSpec(**{"size": "20Gi", "mount_path": "/data", **fields}))


FORM_FAULTS = [
    (replace(PLAIN, image=""), "image-invalid", "image", "refused"),
    (replace(PLAIN, image="ollama/ollama"), "image-not-pinned", "image", "refused"),
    (replace(PLAIN, image="a/b:latest"), "image-not-pinned", "image", "refused"),
    (replace(PLAIN, image="a/b:1"), "image-not-by-digest", "image", "warning"),
    (replace(PLAIN, image="ollama/ollama:0.30.0"), "image-bad", "image", "warning"),
    (replace(PLAIN, image="ollama/ollama:0.30.5"), "image-bad", "image", "warning"),
    (replace(PLAIN, image="ollama/ollama:0.26.0"), "image-untested", "image", "warning"),
    (replace(PLAIN, image=f"ollama/ollama@{DIGEST}"), "image-version-unknown", "image", "warning"),
    (replace(PLAIN, template="other"), "template-unknown", "template", "refused"),
    (replace(PLAIN, command=("sh", "a\x00b")), "control-characters", "command.1", "refused"),
    (replace(PLAIN, args=("\ud800",)), "control-characters", "args.0", "refused"),
    (replace(PLAIN, args=("x" * 32769,)), "value-too-long", "args.0", "refused"),
    (replace(PLAIN, args=("x",) * 65), "too-many-words", "args", "refused"),
    (with_env(("1A", "x")), "env-name-invalid", "env.0.name", "refused"),
    (with_env(("A", "x"), ("", "x")), "env-name-invalid", "env.1.name", "refused"),
    (with_env(("A=B", "x")), "env-name-invalid", "env.0.name", "refused"),
    (with_env(("A\n", "x")), "env-name-invalid", "env.0.name", "refused"),
    (with_env(("A" * 129, "x")), "env-name-invalid", "env.0.name", "refused"),
    (with_env(("A", "x"), ("A", "y")), "env-name-twice", "env.1.name", "refused"),
    (with_env(("NVIDIA_VISIBLE_DEVICES", "all")), "env-name-reserved", "env.0.name", "refused"),
    (with_env(("CUDA_DEVICE_MEMORY_LIMIT_0", "32g")), "env-name-reserved", "env.0.name", "refused"),
    (with_env(("A", "\x1b[0m")), "control-characters", "env.0.value", "refused"),
    (with_env(("A", "ä" * 16385)), "value-too-long", "env.0.value", "refused"),
    (with_env(*((f"A{n}", "") for n in range(101))), "too-many-variables", "env", "refused"),
    (with_env(*((f"A{n}", "x" * 30000) for n in range(5))), "workload-too-large", "env", "refused"),
    (
        with_env(("OLLAMA_CONTEXT_LENGTH", "16.384"), template="ollama"),
        "setting-invalid",
        "env.0.value",
        "refused",
    ),
    (replace(PLAIN, port=0), "port-invalid", "port", "refused"),
    (replace(PLAIN, port=65536), "port-invalid", "port", "refused"),
    (replace(PLAIN, port=80), "port-privileged", "port", "warning"),
    (replace(PLAIN, cpu_limit=""), "requests-missing", "cpu_limit", "refused"),
    (replace(PLAIN, cpu_request="lots"), "quantity-invalid", "cpu_request", "refused"),
    (replace(PLAIN, cpu_request="0"), "quantity-not-positive", "cpu_request", "refused"),
    (replace(PLAIN, memory_limit="-1Gi"), "quantity-not-positive", "memory_limit", "refused"),
    (replace(PLAIN, cpu_request="0.0005"), "quantity-too-fine", "cpu_request", "refused"),
    (replace(PLAIN, cpu_limit="500Mi"), "quantity-too-large", "cpu_limit", "refused"),
    (replace(PLAIN, memory_limit="2Ei"), "quantity-too-large", "memory_limit", "refused"),
    (replace(PLAIN, memory_request="512m"), "quantity-too-small", "memory_request", "refused"),
    (replace(PLAIN, memory_limit="8589934592.5"), "quantity-too-fine", "memory_limit", "refused"),
    (replace(PLAIN, cpu_limit="250m"), "limit-below-request", "cpu_limit", "refused"),
    (replace(PLAIN, memory_limit="1023Mi"), "limit-below-request", "memory_limit", "refused"),
    (
        replace(PLAIN, template="ollama", memory_limit="2Gi"),
        "memory-below-template",
        "memory_limit",
        "warning",
    ),
    (replace(PLAIN, template="ollama"), "volume-missing", "volume", "warning"),
    (with_volume(size="20"), "quantity-too-small", "volume.size", "refused"),
    (with_volume(size="big"), "quantity-invalid", "volume.size", "refused"),
    (with_volume(mount_path="data"), "mount-path-invalid", "volume.mount_path", "refused"),
    (with_volume(mount_path=""), "mount-path-invalid", "volume.mount_path", "refused"),
    (with_volume(mount_path="/a/../etc"), "mount-path-invalid", "volume.mount_path", "refused"),
    (with_volume(mount_path="/a:b"), "mount-path-invalid", "volume.mount_path", "refused"),
    (with_volume(mount_path="/a\n"), "mount-path-invalid", "volume.mount_path", "refused"),
    (with_volume(mount_path="/a//b"), "mount-path-invalid", "volume.mount_path", "refused"),
    (with_volume(mount_path="/"), "mount-path-system", "volume.mount_path", "refused"),
    (with_volume(mount_path="/etc/"), "mount-path-system", "volume.mount_path", "refused"),
    (with_volume(mount_path="/proc/1"), "mount-path-system", "volume.mount_path", "refused"),
    (with_volume(mount_path="/var/run/secrets/x"), "mount-path-system", "volume.mount_path", "refused"),
    (with_volume(storage_class="Fast!"), "storage-class-invalid", "volume.storage_class", "refused"),
    (
        replace(PLAIN, probes=Probes(startup=Probe(path="/"))),
        "probe-without-port",
        "probes.startup.port",
        "refused",
    ),
    (
        replace(PLAIN, port=8080, probes=Probes(startup=Probe(path="x"))),
        "probe-path-invalid",
        "probes.startup.path",
        "refused",
    ),
    (
        replace(PLAIN, probes=Probes(liveness=Probe(port=0))),
        "port-invalid",
        "probes.liveness.port",
        "refused",
    ),
    (
        replace(PLAIN, port=8080, probes=Probes(readiness=Probe(period=0))),
        "probe-number-invalid",
        "probes.readiness.period",
        "refused",
    ),
    (
        replace(PLAIN, port=8080, probes=Probes(liveness=Probe(failures=1))),
        "liveness-hasty",
        "probes.liveness.failures",
        "warning",
    ),
]


@pytest.mark.parametrize(("workload", "rule", "place", "level"), FORM_FAULTS)
def test_a_fault_in_the_form_is_found_at_its_field(
    workload: WorkloadSpec, rule: str, place: str, level: str
) -> None:
    assert (rule, place, level) in rules_of(workload)


@pytest.mark.parametrize(
    "workload",
    [
        PLAIN,
        with_env(("A.b-C_1", "line\nline\ttab"), ("-x", "")),
        with_volume(mount_path="/data/models/"),
        with_volume(mount_path="/home/jovyan", storage_class="ceph.rbd-1"),
        replace(PLAIN, cpu_request="0.5", cpu_limit="1e0", memory_limit="2G", memory_request="1000M"),
        replace(PLAIN, image=f"ollama/ollama:0.9.6@{DIGEST}", port=1024),
        replace(PLAIN, template="ollama", memory_limit="4Gi", volume=VolumeSpec("1Mi", "/data")),
    ],
)
def test_nothing_is_found_where_nothing_is_wrong(workload: WorkloadSpec) -> None:
    assert contract.check_workload(workload) == ()


@pytest.mark.parametrize(
    ("workload", "place", "suggest"),
    [
        (replace(PLAIN, image="ollama/ollama:0.30.0"), "image", "ollama/ollama:0.24.0"),
        (replace(PLAIN, image="ollama/ollama"), "image", "ollama/ollama:0.24.0"),
        (
            replace(PLAIN, template="ollama", memory_limit="512Mi", memory_request="512Mi"),
            "memory_limit",
            "4Gi",
        ),
        (replace(PLAIN, template="ollama", image=""), "image", "ollama/ollama:0.24.0"),
        (replace(PLAIN, memory_limit="512m"), "memory_limit", "512Mi"),
        (replace(PLAIN, memory_limit="4 GB"), "memory_limit", "4Gi"),
        (replace(PLAIN, memory_limit="4g"), "memory_limit", "4Gi"),
        (replace(PLAIN, cpu_limit="500Mi"), "cpu_limit", "500m"),
        (replace(PLAIN, cpu_request="2"), "cpu_limit", "2"),
        (with_volume(mount_path="/etc"), "volume.mount_path", "/data"),
    ],
)
def test_a_mend_is_offered_that_mends(workload: WorkloadSpec, place: str, suggest: str) -> None:
    (finding,) = [f for f in contract.check_workload(workload) if f.suggest and f.place == place]
    assert finding.suggest == suggest
    mended = (
        replace(workload, volume=replace(workload.volume, mount_path=suggest))
        if workload.volume and "." in place
        else replace(workload, **{place: suggest})
    )
    assert finding.rule not in {f.rule for f in contract.check_workload(mended)}


def test_the_image_matrix_is_an_argument() -> None:
    workload = replace(PLAIN, image=f"a/b:2@{DIGEST}")
    assert contract.check_workload(workload) == ()
    ceiling = Ceiling("a/b", "V100", "1", "2", "a/b:1", "It needs a newer card.")
    (finding,) = contract.check_workload(workload, ceilings=[ceiling])
    assert (finding.rule, finding.suggest) == ("image-bad", "a/b:1")
    assert "It needs a newer card." in str(finding.sentence)
    assert contract.check_workload(replace(PLAIN, image=f"ollama/ollama:0.30.0@{DIGEST}"), ceilings=[]) == ()


def test_an_image_of_which_no_version_works_is_told_with_its_reason() -> None:
    workload = replace(PLAIN, image=f"lmsysorg/sglang:v0.5.0@{DIGEST}")
    (finding,) = contract.check_workload(workload)
    assert (finding.rule, finding.level, finding.suggest) == ("image-bad", "warning", None)
    assert "7.5" in str(finding.sentence)
    assert "built for the V100" in str(finding.mend)


def test_an_operator_may_demand_digests() -> None:
    workload = replace(PLAIN, image="a/b:1")
    assert ("image-not-by-digest", "image", "warning") in rules_of(workload)
    assert ("image-not-by-digest", "image", "refused") in rules_of(workload, require_digest=True)
    assert rules_of(PLAIN, require_digest=True) == set()


def test_the_form_refuses_two_replicas() -> None:
    """Case C-06."""
    for workload in (PLAIN, WITH_VOLUME):
        assert rules_of(workload, replicas=2) == {("replicas-not-one", "replicas", "refused")}
        assert rules_of(workload, replicas=0) == set()


def test_an_accepted_workload_stays_below_256_kib() -> None:
    value = 'x"\\\n' * 2000
    workload = with_env(*((f"A{n}", value) for n in range(7)))
    workload = replace(workload, args=("y" * 20000,))
    assert contract.check_workload(workload) == ()
    assert len(json.dumps(render(spec(workload)))) < 256 * 1024


def test_a_template_as_it_is_offered_has_only_the_advice_of_a_digest() -> None:
    for template in templates_catalogue.TEMPLATES.values():
        rules = {f.rule for f in contract.check_workload(template.first())}
        assert rules == ({"image-not-by-digest"} if template.defaults.image else {"image-invalid"}), (
            template.code
        )


def test_every_sentence_can_be_shown() -> None:
    for workload, *_ in FORM_FAULTS:
        for finding in contract.check_workload(workload):
            assert isinstance(finding.sentence, Text)
            assert str(finding.sentence)
            assert "%(" not in str(finding.sentence) + str(finding.mend)
