"""Workload templates: what a person may run. A template is one file here, one line below, and one test."""

from gpu.templates_catalogue import cuda_check, custom, notebook, ollama, sglang, vllm
from gpu.templates_catalogue.base import Setting, SettingRefused, Template

__all__ = ["TEMPLATES", "Setting", "SettingRefused", "Template", "get"]

TEMPLATES: dict[str, Template] = {
    module.TEMPLATE.code: module.TEMPLATE for module in (cuda_check, ollama, vllm, sglang, notebook, custom)
}
"""All templates by code, in the order in which the order form offers them."""


def get(code: str) -> Template | None:
    """Return the template with this code, or None."""
    return TEMPLATES.get(code)
