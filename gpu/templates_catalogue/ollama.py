"""Ollama: language models behind an HTTP API."""

from __future__ import annotations

from gpu.manifest_spec import Probe, Probes, VolumeSpec, WorkloadSpec
from gpu.messages import gettext_noop
from gpu.templates_catalogue.base import Setting, Template, set_env, without_probes_if_closed

MOUNT_PATH = "/data"
PORT = 11434


def _finish(workload: WorkloadSpec) -> WorkloadSpec:
    """Listen on the port of the Service, and keep key and models where an unprivileged user may write."""
    home = "/tmp" if workload.volume is None else workload.volume.mount_path.rstrip("/")  # noqa: S108
    workload = set_env(workload, "OLLAMA_HOST", f"0.0.0.0:{workload.port or PORT}")
    workload = set_env(workload, "HOME", home)
    workload = set_env(workload, "OLLAMA_MODELS", f"{home}/models")
    return without_probes_if_closed(workload)


TEMPLATE = Template(
    code="ollama",
    title=gettext_noop("Ollama"),
    summary=gettext_noop("Language models behind Ollama's API. Models are fetched from the slice's page."),
    # 0.24.0 is the last version known to work on the V100. A memory limit of 512 MiB killed the load of a model,
    # 2 GiB and 4 GiB worked (field report).
    defaults=WorkloadSpec(
        image="ollama/ollama:0.24.0",
        port=PORT,
        cpu_request="1",
        cpu_limit="2",
        memory_request="2Gi",
        memory_limit="4Gi",
        volume=VolumeSpec("20Gi", MOUNT_PATH),
        template="ollama",
        # The server answers "/" at once and while a model loads; a slow load is no reason to restart it.
        probes=Probes(
            startup=Probe(path="/", period=5, failures=60),
            readiness=Probe(path="/", period=10, failures=3),
            liveness=Probe(path="/", period=20, failures=6, timeout=10),
        ),
    ),
    settings=(
        Setting(
            code="context_length",
            label=gettext_noop("Context length in tokens"),
            help=gettext_noop(
                "A longer prompt is cut without a word. More context takes more GPU memory. "
                "Left empty, the server's own default holds: 4096 on an 8 GiB slice."
            ),
            kind="number",
            default="8192",
            maximum=10_000_000,
            env="OLLAMA_CONTEXT_LENGTH",
        ),
        Setting(
            code="parallel",
            label=gettext_noop("Requests at the same time"),
            help=gettext_noop("Each has a context of its own in GPU memory. Left empty, the server decides."),
            kind="number",
            default="1",
            maximum=64,
            env="OLLAMA_NUM_PARALLEL",
        ),
        Setting(
            code="keep_alive",
            label=gettext_noop("Keep a model loaded for"),
            help=gettext_noop(
                "After this time without a request the model leaves the GPU. -1 keeps it for ever."
            ),
            kind="duration",
            default="30m",
            env="OLLAMA_KEEP_ALIVE",
        ),
    ),
    memory_wanted="4Gi",
    keeps_data=True,
    lost_without_volume=gettext_noop("Without a volume the models are lost at each restart."),
    finish=_finish,
)
