"""A container of the customer's own."""

from gpu.manifest_spec import WorkloadSpec
from gpu.messages import gettext_noop
from gpu.templates_catalogue.base import Template

TEMPLATE = Template(
    code="custom",
    title=gettext_noop("Own container"),
    summary=gettext_noop("Any image that runs without root and works with the GPU of the card."),
    defaults=WorkloadSpec(
        image="",
        cpu_request="500m",
        cpu_limit="1",
        memory_request="1Gi",
        memory_limit="2Gi",
        template="custom",
    ),
)
