"""Slices for tests: the packages of the contract, one plain spec, and hypothesis strategies for any valid spec."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from gpu import names, templates_catalogue
from gpu.manifests import EnvVar, PackageTerms, Probe, Probes, SliceSpec, VolumeSpec, WorkloadSpec

PACKAGES = (
    PackageTerms("kube-dc-nvidia-v100-shared-8g", "nvidia-v100-hami", 8192, 25),
    PackageTerms("kube-dc-nvidia-v100-shared-16g", "nvidia-v100-hami-16g", 16384, 50),
    PackageTerms("kube-dc-nvidia-v100-shared-32g", "nvidia-v100-hami-32g", 32768, 100),
)
DIGEST = "sha256:" + "0123456789abcdef" * 4
PLAIN = WorkloadSpec(image=f"registry.example.test/team/app:1.0@{DIGEST}")


def slice_spec(
    workload: WorkloadSpec = PLAIN,
    *,
    app: str = "chat",
    package: int = 0,
    replicas: int = 1,
    restart: int = 0,
) -> SliceSpec:
    """Return a slice in acme-ai; `package` is 0, 1 or 2 for 25, 50 or 100 %."""
    return SliceSpec("acme-ai", app, PACKAGES[package], workload, replicas, restart, "42")


_text = st.text(st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from("\n\t"), max_size=30)
_words = st.lists(_text, max_size=4).map(tuple)
_ports = st.integers(1024, 65535)
_env = st.lists(
    st.builds(EnvVar, st.from_regex(r"\AX[-._a-zA-Z0-9]{0,12}\Z"), _text),
    max_size=5,
    unique_by=lambda v: v.name,
).map(tuple)
_volumes = st.builds(
    VolumeSpec,
    st.sampled_from(["1Gi", "20Gi", "512Mi", "10G"]),
    st.from_regex(r"\A/data(/[a-z0-9]{1,8}){0,3}\Z"),
    st.none() | st.sampled_from(["fast", "ceph.rbd"]),
)
_probes = st.builds(
    Probe,
    path=st.none() | st.sampled_from(["/", "/health", "/api/version?x=1"]),
    command=st.just(()) | st.lists(_text, min_size=1, max_size=3).map(tuple),
    port=_ports,
    period=st.integers(1, 60),
    failures=st.integers(2, 60),
    timeout=st.integers(1, 30),
)
_images = st.sampled_from(
    [PLAIN.image, "a/b:1.0", f"a@{DIGEST}", "r.test:5000/a/b:v1", "ollama/ollama:0.24.0", "localhost/x:main"]
)


@st.composite
def _amounts(draw: st.DrawFn) -> dict[str, str]:
    cores = sorted(draw(st.lists(st.integers(1, 64_000), min_size=2, max_size=2)))
    memory = sorted(draw(st.lists(st.integers(64, 262_144), min_size=2, max_size=2)))
    return {
        "cpu_request": f"{cores[0]}m",
        "cpu_limit": f"{cores[1]}m",
        "memory_request": f"{memory[0]}Mi",
        "memory_limit": f"{memory[1]}Mi",
    }


_custom = st.builds(
    lambda amounts, **fields: WorkloadSpec(**amounts, **fields),
    _amounts(),
    image=_images,
    command=_words,
    args=_words,
    env=_env,
    port=st.none() | _ports,
    volume=st.none() | _volumes,
    probes=st.builds(Probes, st.none() | _probes, st.none() | _probes, st.none() | _probes),
)
_from_templates = st.builds(
    lambda template, volume, digest: template.configure(
        replace(template.first(), volume=volume, image=digest or template.first().image), {}
    ),
    st.sampled_from([t for t in templates_catalogue.TEMPLATES.values() if t.defaults.image]),
    st.none() | _volumes,
    st.none() | st.just(f"ollama/ollama:0.24.0@{DIGEST}"),
)
workloads = _custom | _from_templates
"""Any workload that the form accepts."""

slice_specs = st.builds(
    SliceSpec,
    namespace=st.sampled_from(["acme-ai", "birch-lab"]),
    app=st.text(min_size=1, max_size=60).filter(lambda t: t.strip() and _named(t)).map(names.object_name),
    terms=st.sampled_from(PACKAGES),
    workload=workloads,
    replicas=st.sampled_from([0, 1]),
    restart=st.integers(0, 3),
    slice_id=st.integers(1, 10**9).map(str),
)
"""Any slice that the portal may order."""


def _named(text: str) -> bool:
    try:
        names.check_display_name(text)
    except names.NameRefused:
        return False
    return True
