"""SGLang: one language model behind an OpenAI-compatible API."""

from __future__ import annotations

from gpu.manifest_spec import VolumeSpec, WorkloadSpec
from gpu.messages import gettext_noop
from gpu.templates_catalogue import vllm
from gpu.templates_catalogue.base import Setting, Template

PORT = 30000

TEMPLATE = Template(
    code="sglang",
    title=gettext_noop("SGLang"),
    summary=gettext_noop(
        "One language model behind an OpenAI-compatible API, good at shared prompts. SGLang's own images do not start "
        "on a V100: you need one built for it."
    ),
    defaults=WorkloadSpec(
        # None to propose: see gpu.images.CEILINGS.
        image="",
        command=("python3", "-m", "sglang.launch_server"),
        # The V100 knows no bfloat16, and FlashInfer asks for a newer card: Triton and PyTorch do its work.
        args=(
            *("--model-path", vllm.MODEL, "--dtype", "half"),
            *("--attention-backend", "triton", "--sampling-backend", "pytorch"),
            *("--host", "0.0.0.0", "--port", str(PORT)),  # noqa: S104
        ),
        port=PORT,
        cpu_request="2",
        cpu_limit="4",
        memory_request="4Gi",
        memory_limit="8Gi",
        volume=VolumeSpec("20Gi", "/data"),
        template="sglang",
        probes=vllm.PROBES,
    ),
    settings=(
        Setting(
            code="model",
            label=gettext_noop("Model on Hugging Face"),
            help=gettext_noop(
                "Owner and name, such as Qwen/Qwen2.5-1.5B-Instruct. It is fetched at the first start."
            ),
            kind="model",
            default=vllm.MODEL,
            required=True,
            option="--model-path",
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
            option="--context-length",
        ),
    ),
    memory_wanted="8Gi",
    keeps_data=True,
    lost_without_volume=gettext_noop("Without a volume the model is fetched again at each restart."),
    finish=vllm.finish,
)
