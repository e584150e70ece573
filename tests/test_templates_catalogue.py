"""Workload templates: what each sends, and settings as people type them (case C-10)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu import images, templates_catalogue
from gpu.images import Suitability
from gpu.manifests import EnvVar, VolumeSpec, WorkloadSpec, render
from gpu.templates_catalogue import SettingRefused, Template
from tests.specs import slice_spec

OLLAMA = templates_catalogue.TEMPLATES["ollama"]
VLLM = templates_catalogue.TEMPLATES["vllm"]
ALL = list(templates_catalogue.TEMPLATES.values())


def env(workload: WorkloadSpec) -> dict[str, str]:
    return {item.name: item.value for item in workload.env}


def option(workload: WorkloadSpec, name: str) -> str | None:
    return workload.args[workload.args.index(name) + 1] if name in workload.args else None


def container(workload: WorkloadSpec) -> dict[str, object]:
    deployment = next(d for d in render(slice_spec(workload)) if d["kind"] == "Deployment")
    found: dict[str, object] = deployment["spec"]["template"]["spec"]["containers"][0]
    return found


def test_templates_are_found_by_code() -> None:
    assert list(templates_catalogue.TEMPLATES) == [
        "cuda-check",
        "ollama",
        "vllm",
        "sglang",
        "notebook",
        "custom",
    ]
    assert templates_catalogue.get("ollama") is OLLAMA
    assert templates_catalogue.get("other") is None


@pytest.mark.parametrize("template", ALL, ids=lambda t: t.code)
def test_a_template_fits_together(template: Template) -> None:
    first = template.first()
    assert first.template == template.code
    assert template.configure(first, {}) == first
    assert template.configure(first, template.values_of(first)) == first
    assert WorkloadSpec.from_json(first.to_json()) == first
    assert bool(template.lost_without_volume) == template.keeps_data == (first.volume is not None)
    assert len({setting.code for setting in template.settings}) == len(template.settings)
    for setting in template.settings:
        assert (setting.env is None) != (setting.option is None)
        assert setting.clean(setting.default) == setting.default


@pytest.mark.parametrize("template", [t for t in ALL if t.defaults.image], ids=lambda t: t.code)
def test_the_proposed_image_is_pinned_and_not_known_to_fail(template: Template) -> None:
    image = images.parse(template.defaults.image)
    assert image.pinned
    assert images.judge(image, images.CEILINGS)[0] in (Suitability.GOOD, Suitability.NO_STATEMENT)


@pytest.mark.parametrize("template", [t for t in ALL if t.defaults.port], ids=lambda t: t.code)
def test_a_server_is_given_five_minutes_to_start_and_is_not_restarted_hastily(template: Template) -> None:
    probes = template.first().probes
    assert probes.startup is not None
    assert probes.readiness is not None
    assert probes.liveness is not None
    assert probes.startup.period * probes.startup.failures >= 300
    assert probes.liveness.period * probes.liveness.failures >= 120
    closed = template.configure(replace(template.first(), port=None), {})
    assert "startupProbe" not in container(closed)


def test_cuda_check_prints_and_gives_the_slice_back_at_once() -> None:
    first = templates_catalogue.TEMPLATES["cuda-check"].first()
    assert first.command[:2] == ("/bin/sh", "-c")
    script = first.command[2]
    assert script.index("trap") < script.index("nvidia-smi") < script.index("sleep")
    assert (first.port, first.volume) == (None, None)


def test_ollama_keeps_key_and_models_on_the_volume() -> None:
    first = OLLAMA.first()
    assert first.image == "ollama/ollama:0.24.0"
    assert (first.memory_request, first.memory_limit) == ("2Gi", "4Gi")
    assert env(first) == {
        "OLLAMA_CONTEXT_LENGTH": "8192",
        "OLLAMA_NUM_PARALLEL": "1",
        "OLLAMA_KEEP_ALIVE": "30m",
        "OLLAMA_HOST": "0.0.0.0:11434",
        "HOME": "/data",
        "OLLAMA_MODELS": "/data/models",
    }
    moved = OLLAMA.configure(replace(first, port=8080, volume=VolumeSpec("5Gi", "/models/")), {})
    assert env(moved)["OLLAMA_HOST"] == "0.0.0.0:8080"
    assert (env(moved)["HOME"], env(moved)["OLLAMA_MODELS"]) == ("/models", "/models/models")
    # Only /tmp can be written by user 65532 then.
    assert env(OLLAMA.configure(replace(first, volume=None), {}))["HOME"] == "/tmp"  # noqa: S108


def test_the_context_length_is_sent_as_text() -> None:
    workload = OLLAMA.configure(OLLAMA.first(), {"context_length": "16384"})
    assert {"name": "OLLAMA_CONTEXT_LENGTH", "value": "16384"} in container(workload)["env"]  # type: ignore[operator]


@pytest.mark.parametrize(("typed", "stored"), [(" 8192 ", "8192"), ("08192", "8192"), ("1", "1")])
def test_a_number_is_stored_as_it_is_meant(typed: str, stored: str) -> None:
    workload = OLLAMA.configure(OLLAMA.first(), {"context_length": typed})
    assert env(workload)["OLLAMA_CONTEXT_LENGTH"] == stored
    assert OLLAMA.values_of(workload)["context_length"] == stored


@pytest.mark.parametrize(
    "typed", ["16.384", "16,384", "0", "-1", "abc", "1e4", "٣", "8192 4096", "99999999999"]
)
def test_what_is_no_whole_number_is_refused(typed: str) -> None:
    with pytest.raises(SettingRefused) as refusal:
        OLLAMA.configure(OLLAMA.first(), {"context_length": typed})
    assert refusal.value.setting == "context_length"
    assert "whole number" in str(refusal.value.text)


def test_empty_leaves_the_variable_out() -> None:
    workload = OLLAMA.configure(OLLAMA.first(), {"context_length": "", "parallel": "4"})
    assert "OLLAMA_CONTEXT_LENGTH" not in env(workload)
    assert env(workload)["OLLAMA_NUM_PARALLEL"] == "4"
    assert OLLAMA.values_of(workload) == {"context_length": "", "parallel": "4", "keep_alive": "30m"}


@pytest.mark.parametrize(
    ("typed", "good"),
    [("24h", True), ("-1", True), ("1h30m", True), ("0", True), ("a day", False), ("5", False)],
)
def test_times_are_those_that_ollama_reads(typed: str, good: bool) -> None:
    if good:
        assert env(OLLAMA.configure(OLLAMA.first(), {"keep_alive": typed}))["OLLAMA_KEEP_ALIVE"] == typed
    else:
        with pytest.raises(SettingRefused):
            OLLAMA.configure(OLLAMA.first(), {"keep_alive": typed})


@pytest.mark.parametrize("template", [VLLM, templates_catalogue.TEMPLATES["sglang"]], ids=lambda t: t.code)
def test_model_servers_use_half_precision_and_know_model_and_context(template: Template) -> None:
    names = {"vllm": ("--model", "--max-model-len"), "sglang": ("--model-path", "--context-length")}[
        template.code
    ]
    workload = template.configure(template.first(), {"model": " acme/tiny-chat ", "context_length": "2048"})
    assert option(workload, "--dtype") == "half"
    assert (option(workload, names[0]), option(workload, names[1])) == ("acme/tiny-chat", "2048")
    assert option(workload, "--port") == str(workload.port)
    assert env(workload)["HF_HOME"] == "/data/huggingface"
    moved = template.configure(replace(workload, port=9000), {"context_length": ""})
    assert option(moved, "--port") == "9000"
    assert option(moved, names[1]) is None
    assert container(workload)["startupProbe"]["httpGet"]["path"] == "/health"  # type: ignore[index]
    for wrong in ("", "a b", "../etc", "a/b/c/d", "--flag", "x" * 201):
        with pytest.raises(SettingRefused):
            template.configure(workload, {"model": wrong})


def test_a_notebook_works_in_its_volume() -> None:
    first = templates_catalogue.TEMPLATES["notebook"].first()
    assert option(first, "--notebook-dir") == "/data"
    assert option(first, "--ip") == "0.0.0.0"  # noqa: S104
    assert env(first)["HOME"] == "/data"


def test_an_empty_image_gives_the_pinned_default() -> None:
    """Case C-09."""
    for empty in ("", "  "):
        assert OLLAMA.configure(replace(OLLAMA.first(), image=empty), {}).image == "ollama/ollama:0.24.0"
    assert OLLAMA.configure(replace(OLLAMA.first(), image="a/b:1"), {}).image == "a/b:1"


def test_what_a_person_added_stays() -> None:
    workload = replace(
        OLLAMA.first(), env=(EnvVar("HTTPS_PROXY", "http://proxy.test:3128"), *OLLAMA.first().env)
    )
    again = OLLAMA.configure(workload, {"context_length": "4096"})
    assert again.env[0] == EnvVar("HTTPS_PROXY", "http://proxy.test:3128")
    assert [item.name for item in again.env] == [item.name for item in workload.env]


@given(st.text(max_size=12), st.sampled_from([s for t in ALL for s in t.settings]))
def test_any_text_is_stored_cleanly_or_refused(typed: str, setting: templates_catalogue.Setting) -> None:
    try:
        stored = setting.clean(typed)
    except SettingRefused:
        return
    assert stored == setting.clean(stored)
    assert stored.isascii()
    assert stored == stored.strip()
