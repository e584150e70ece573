"""Shows that the slice is there: prints nvidia-smi once and sleeps."""

from gpu.manifest_spec import WorkloadSpec
from gpu.messages import gettext_noop
from gpu.templates_catalogue.base import Template

# The first process of a container does not die of SIGTERM by itself; with the trap the slice is back at once and not
# after the 30 seconds of grace.
SCRIPT = "trap 'exit 0' TERM INT; nvidia-smi || exit 1; sleep infinity & wait"

TEMPLATE = Template(
    code="cuda-check",
    title=gettext_noop("CUDA check"),
    summary=gettext_noop("Prints nvidia-smi, so that you see your slice in the log, and then sleeps."),
    defaults=WorkloadSpec(
        image="nvidia/cuda:12.4.1-base-ubuntu22.04",
        command=("/bin/sh", "-c", SCRIPT),
        cpu_request="100m",
        cpu_limit="500m",
        memory_request="128Mi",
        memory_limit="512Mi",
        template="cuda-check",
    ),
)
