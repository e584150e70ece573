"""What the API takes: orders, changes, releases."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.utils.translation import gettext_lazy as _
from rest_framework import serializers

from gpu.manifests import EnvVar, VolumeSpec, WorkloadSpec
from gpu.matrix import pinned
from gpu.names import MAX_DISPLAY_LENGTH
from gpu.templates_catalogue import TEMPLATES, SettingRefused
from gpu.wording import render

MAX_TEXT = 4096
MAX_LIST = 200


class Strict(serializers.Serializer[Any]):
    """A serializer that refuses fields it does not know."""

    def to_internal_value(self, data: Any) -> Any:
        """Read the input; an unknown field is an error at its place."""
        found = super().to_internal_value(data)
        unknown = sorted(set(data) - set(self.fields))
        if unknown:
            raise serializers.ValidationError({name: [_("There is no such field.")] for name in unknown})
        return found


def _text(**options: Any) -> serializers.CharField:
    return serializers.CharField(max_length=MAX_TEXT, **options)


class EnvVarIn(Strict):
    """An environment variable."""

    name = serializers.CharField(max_length=256)
    value = serializers.CharField(max_length=32768, allow_blank=True, trim_whitespace=False)


class VolumeIn(Strict):
    """A volume; it cannot be changed later."""

    size = serializers.CharField(max_length=64, help_text="Kubernetes quantity, as 20Gi.")
    mount_path = _text(default="/data")
    storage_class = serializers.CharField(max_length=253, required=False, allow_null=True, default=None)


class WorkloadIn(Strict):
    """What runs on the slice."""

    image = _text(help_text="With a tag, better with a digest: registry/path:tag@sha256:…")
    command = serializers.ListField(
        child=_text(allow_blank=True, trim_whitespace=False), max_length=MAX_LIST, default=list
    )
    args = serializers.ListField(
        child=_text(allow_blank=True, trim_whitespace=False), max_length=MAX_LIST, default=list
    )
    env = serializers.ListField(child=EnvVarIn(), max_length=MAX_LIST, default=list)
    port = serializers.IntegerField(required=False, allow_null=True, default=None)
    cpu_request = serializers.CharField(max_length=64, default="500m")
    cpu_limit = serializers.CharField(max_length=64, default="1")
    memory_request = serializers.CharField(max_length=64, default="1Gi")
    memory_limit = serializers.CharField(max_length=64, default="2Gi")
    volume = VolumeIn(required=False, allow_null=True, default=None)


class OrderIn(Strict):
    """An order of one slice."""

    project = serializers.CharField(max_length=63, help_text="The project's id or namespace.")
    package = serializers.CharField(max_length=40, help_text="The package's code.")
    display_name = serializers.CharField(
        max_length=MAX_DISPLAY_LENGTH * 4, help_text="Free text, at most 63 characters."
    )
    template = serializers.ChoiceField(
        choices=sorted(TEMPLATES),
        default="custom",
        help_text="With one, fields of workload that are left out are the template's.",
    )
    settings = serializers.DictField(
        child=serializers.CharField(max_length=200, allow_blank=True),
        default=dict,
        help_text="The template's own settings, such as context_length; empty leaves one to the server.",
    )
    workload = WorkloadIn()
    allow_queue = serializers.BooleanField(
        default=False, help_text="Order also when it has to wait for a card or for room in the pool."
    )

    def to_internal_value(self, data: Any) -> Any:
        """Read the input over the template's defaults, where a template is named."""
        code = data.get("template") if isinstance(data, dict) else None
        template = TEMPLATES.get(code) if isinstance(code, str) else None
        asked = data.get("workload", {}) if isinstance(data, dict) else None
        if template is not None and isinstance(asked, dict):
            asked = {name: value for name, value in asked.items() if name != "image" or value != ""}
            data = {**data, "workload": _merge(workload_out(template.first()), asked)}
        return super().to_internal_value(data)


class ChangeIn(Strict):
    """A change (JSON merge patch); fields left out stay as they are."""

    workload = serializers.DictField(help_text="Any field of workload but volume.")
    allow_queue = serializers.BooleanField(default=False)


class ModelIn(Strict):
    """A model on the slice's volume."""

    model = serializers.CharField(max_length=640, help_text="Its name, as Ollama lists it.")


class PullIn(Strict):
    """A model to fetch."""

    model = serializers.CharField(
        max_length=640, allow_blank=True, help_text="As Ollama's library shows it: llama3.2:3b."
    )
    anew = serializers.BooleanField(
        default=False, help_text="Fetch also when it is there: a newer version of the same tag."
    )


class ReleaseIn(Strict):
    """A release."""

    delete_volume = serializers.BooleanField(
        default=False, help_text="Delete the volume and the data on it, too."
    )


class StartIn(Strict):
    """A start."""

    allow_queue = serializers.BooleanField(default=False)


def workload_of(data: dict[str, Any], base: WorkloadSpec | None = None) -> WorkloadSpec:
    """Return the workload of validated input; template and probes are those of `base`."""
    volume = data["volume"]
    base = base or WorkloadSpec(image="")
    return WorkloadSpec(
        image=data["image"],
        command=tuple(data["command"]),
        args=tuple(data["args"]),
        env=tuple(EnvVar(item["name"], item["value"]) for item in data["env"]),
        port=data["port"],
        cpu_request=data["cpu_request"],
        cpu_limit=data["cpu_limit"],
        memory_request=data["memory_request"],
        memory_limit=data["memory_limit"],
        volume=VolumeSpec(volume["size"], volume["mount_path"], volume["storage_class"]) if volume else None,
        template=base.template,
        probes=base.probes,
        secret_env=base.secret_env,
    )


def ordered_workload(order: dict[str, Any]) -> WorkloadSpec:
    """Return the workload of a validated order; raises ValidationError at /settings/… for one that is not possible."""
    template = TEMPLATES[order["template"]]
    workload = workload_of(order["workload"], replace(WorkloadSpec(image=""), template=template.code))
    if template.code == "custom":
        return workload
    known = {setting.code for setting in template.settings}
    unknown = sorted(set(order["settings"]) - known)
    if unknown:
        raise serializers.ValidationError(
            {"settings": {name: [_("There is no such field.")] for name in unknown}}
        )
    if workload.image == template.defaults.image:
        workload = replace(workload, image=pinned(workload.image))
    try:
        return template.configure(replace(workload, probes=template.defaults.probes), order["settings"])
    except SettingRefused as refused:
        raise serializers.ValidationError(
            {"settings": {refused.setting: [render(refused.text)]}}
        ) from refused


def merged_workload(base: WorkloadSpec, patch: dict[str, Any]) -> WorkloadSpec:
    """Return `base` with a JSON merge patch of its API form; raises ValidationError at /workload/…"""
    merged = _merge(workload_out(base), patch)
    check = WorkloadIn(data=merged)
    if not check.is_valid():
        raise serializers.ValidationError({"workload": check.errors})
    return workload_of(check.validated_data, base)


def _merge(base: Any, patch: Any) -> Any:
    """RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    result = dict(base) if isinstance(base, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merge(result.get(key), value)
    return result


def workload_out(workload: WorkloadSpec) -> dict[str, Any]:
    """Return the API form of a workload, the same that WorkloadIn takes."""
    data = workload.to_json()
    return {name: data[name] for name in WorkloadIn._declared_fields}
