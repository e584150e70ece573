"""vLLM: one language model behind an OpenAI-compatible API."""

from __future__ import annotations

from gpu.manifest_spec import EnvVar, Probe, Probes, VolumeSpec, WorkloadSpec
from gpu.messages import gettext_noop
from gpu.templates_catalogue.base import Setting, Template, set_env, set_option, without_probes_if_closed

PORT = 8000
MODEL = "Qwen/Qwen2.5-1.5B-Instruct"


def finish(workload: WorkloadSpec) -> WorkloadSpec:
    """Listen on the port of the Service, and keep caches where an unprivileged user may write."""
    home = "/tmp" if workload.volume is None else workload.volume.mount_path.rstrip("/")  # noqa: S108
    workload = set_env(workload, "HOME", home)
    workload = set_env(workload, "HF_HOME", f"{home}/huggingface")
    # User 65532 has no entry in the image's /etc/passwd, and PyTorch asks for its name.
    workload = set_env(workload, "USER", "workload")
    workload = set_option(workload, "--port", str(workload.port or PORT))
    return without_probes_if_closed(workload)


# Weights are fetched and loaded before /health answers: up to an hour is given, and no restart in between.
PROBES = Probes(
    startup=Probe(path="/health", period=10, failures=360),
    readiness=Probe(path="/health", period=10, failures=3),
    liveness=Probe(path="/health", period=20, failures=6, timeout=10),
)

TEMPLATE = Template(
    code="vllm",
    title=gettext_noop("vLLM"),
    summary=gettext_noop(
        "One language model behind an OpenAI-compatible API, made for many requests at once."
    ),
    # From 0.9.0 on the image's PyTorch refuses compute capability 7.0 (vllm-project/vllm#18818).
    defaults=WorkloadSpec(
        image="vllm/vllm-openai:v0.8.5.post1",
        # The V100 knows no bfloat16.
        args=("--model", MODEL, "--dtype", "half", "--host", "0.0.0.0", "--port", str(PORT)),  # noqa: S104
        env=(EnvVar("VLLM_NO_USAGE_STATS", "1"),),
        port=PORT,
        cpu_request="2",
        cpu_limit="4",
        memory_request="4Gi",
        memory_limit="8Gi",
        volume=VolumeSpec("20Gi", "/data"),
        template="vllm",
        probes=PROBES,
    ),
    settings=(
        Setting(
            code="model",
            label=gettext_noop("Model on Hugging Face"),
            help=gettext_noop(
                "Owner and name, such as Qwen/Qwen2.5-1.5B-Instruct. It is fetched at the first start."
            ),
            kind="model",
            default=MODEL,
            required=True,
            option="--model",
        ),
        Setting(
            code="context_length",
            label=gettext_noop("Context length in tokens"),
            help=gettext_noop(
                "The longest prompt and answer together. More context takes more GPU memory. "
                "Left empty, the model's own length holds, which often does not fit."
            ),
            kind="number",
            default="4096",
            maximum=10_000_000,
            option="--max-model-len",
        ),
    ),
    memory_wanted="8Gi",
    keeps_data=True,
    lost_without_volume=gettext_noop("Without a volume the model is fetched again at each restart."),
    finish=finish,
)
