"""A Jupyter notebook with PyTorch. Its access token is in a Secret, and is shown once."""

from __future__ import annotations

from dataclasses import replace

from gpu.manifest_spec import Probe, Probes, VolumeSpec, WorkloadSpec
from gpu.messages import gettext_noop
from gpu.templates_catalogue.base import Template, set_env, set_option, without_probes_if_closed

PORT = 8888
TOKEN_VARIABLE = "JUPYTER_TOKEN"  # noqa: S105  Jupyter Server reads its token from it


def _finish(workload: WorkloadSpec) -> WorkloadSpec:
    home = "/tmp" if workload.volume is None else workload.volume.mount_path.rstrip("/")  # noqa: S108
    workload = set_env(workload, "HOME", home)
    workload = set_env(workload, "USER", "workload")
    workload = set_option(workload, "--port", str(workload.port or PORT))
    workload = set_option(workload, "--notebook-dir", home)
    return without_probes_if_closed(replace(workload, secret_env=TOKEN_VARIABLE))


TEMPLATE = Template(
    code="notebook",
    title=gettext_noop("Notebook"),
    summary=gettext_noop("JupyterLab with PyTorch. Its access token is shown once, on the slice's page."),
    defaults=WorkloadSpec(
        # Of spring 2024: later builds of PyTorch ask for compute capability 7.5 (vllm-project/vllm#18818).
        image="quay.io/jupyter/pytorch-notebook:cuda12-python-3.11.8",
        command=("jupyter", "lab"),
        args=("--ip", "0.0.0.0", "--port", str(PORT), "--no-browser"),  # noqa: S104
        port=PORT,
        cpu_request="1",
        cpu_limit="2",
        memory_request="2Gi",
        memory_limit="4Gi",
        volume=VolumeSpec("10Gi", "/data"),
        template="notebook",
        probes=Probes(
            startup=Probe(path="/api", period=5, failures=60),
            readiness=Probe(path="/api"),
            liveness=Probe(path="/api", period=20, failures=6, timeout=10),
        ),
    ),
    memory_wanted="2Gi",
    keeps_data=True,
    lost_without_volume=gettext_noop("Without a volume your notebooks are lost at each restart."),
    finish=_finish,
)
