"""What a workload template is: defaults as data, settings of its own, and pure functions over WorkloadSpec."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from gpu.manifest_spec import EnvVar, WorkloadSpec
from gpu.messages import Count, Text, gettext_noop

_NUMBER = re.compile(r"[0-9]{1,9}")
_DURATION = re.compile(r"-1|0|(?:[0-9]{1,6}(?:s|m|h))+")
_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(?:/[A-Za-z0-9][A-Za-z0-9._-]*){0,2}")


class SettingRefused(ValueError):
    """A value of a template's setting is not possible; `setting` is its code, `text` tells the person why."""

    def __init__(self, setting: str, text: Text) -> None:
        super().__init__(f"{setting}: {text}")
        self.setting = setting
        self.text = text


@dataclass(frozen=True)
class Setting:
    """One setting of a template, kept in the container's environment (`env`) or as an option in its arguments.

    `label` and `help` are message ids. `default` is what the order form proposes; "" means the server's own.
    """

    code: str
    label: str
    help: str
    kind: Literal["number", "duration", "model"]
    default: str = ""
    minimum: int = 1
    maximum: int = 999_999_999
    required: bool = False
    env: str | None = None
    option: str | None = None

    def clean(self, value: str) -> str:
        """Return `value` as it is sent ("" leaves it out). Raises SettingRefused."""
        text = value.strip()
        if not text:
            if self.required:
                raise SettingRefused(self.code, Text(gettext_noop("This is needed.")))
            return ""
        if self.kind == "number":
            return self._number(text)
        if self.kind == "duration":
            if not _DURATION.fullmatch(text):
                raise SettingRefused(
                    self.code,
                    Text(gettext_noop("Write a time such as 30m or 24h; -1 is for ever, 0 not at all.")),
                )
            return text
        if len(text) > 200 or not _MODEL.fullmatch(text):
            raise SettingRefused(self.code, Text(gettext_noop("Write the model as owner/name.")))
        return text

    def _number(self, text: str) -> str:
        number = int(text) if _NUMBER.fullmatch(text) else None
        if number is None or not self.minimum <= number <= self.maximum:
            raise SettingRefused(
                self.code,
                Text(
                    gettext_noop(
                        "Write a whole number from %(minimum)s to %(maximum)s, without dots or commas."
                    ),
                    {"minimum": Count(self.minimum), "maximum": Count(self.maximum)},
                ),
            )
        return str(number)


def _unchanged(workload: WorkloadSpec) -> WorkloadSpec:
    return workload


@dataclass(frozen=True)
class Template:
    """A kind of workload: a first spec for the order form, settings of its own, and what it needs to run well.

    `title` and `summary` are message ids. `memory_wanted` is the least memory limit it works with; `keeps_data` says
    that without a volume something is lost at each restart. `finish` puts in what follows from the rest of the spec
    (such as paths on the volume).
    """

    code: str
    title: str
    summary: str
    defaults: WorkloadSpec
    settings: tuple[Setting, ...] = ()
    memory_wanted: str | None = None
    keeps_data: bool = False
    lost_without_volume: str = ""
    finish: Callable[[WorkloadSpec], WorkloadSpec] = _unchanged

    def configure(self, workload: WorkloadSpec, values: Mapping[str, str]) -> WorkloadSpec:
        """Return `workload` with the settings in `values` (by code) put in, and finished.

        A setting that is not in `values` stays as it is; "" takes it out, so that the server's own default holds. An
        empty image becomes the template's. Raises SettingRefused for a value that is not possible.
        """
        if not workload.image.strip():
            workload = replace(workload, image=self.defaults.image)
        for setting in self.settings:
            if setting.code in values:
                workload = put(workload, setting, setting.clean(values[setting.code]))
        return self.finish(workload)

    def values_of(self, workload: WorkloadSpec) -> dict[str, str]:
        """Return the settings as they stand in `workload`, by code; "" where one is not set."""
        return {setting.code: get(workload, setting) for setting in self.settings}

    def first(self) -> WorkloadSpec:
        """Return the spec the order form begins with: the defaults with every setting at its default."""
        return self.configure(self.defaults, {s.code: s.default for s in self.settings if s.default})


def put(workload: WorkloadSpec, setting: Setting, value: str) -> WorkloadSpec:
    """Return `workload` with `setting` at `value`; "" takes it out."""
    if setting.env is not None:
        return set_env(workload, setting.env, value)
    if setting.option is not None:
        return set_option(workload, setting.option, value)
    return workload


def get(workload: WorkloadSpec, setting: Setting) -> str:
    """Return the value `setting` has in `workload`, "" when it has none."""
    if setting.env is not None:
        return next((item.value for item in workload.env if item.name == setting.env), "")
    args = workload.args
    return next((args[i + 1] for i in range(len(args) - 1) if args[i] == setting.option), "")


def set_env(workload: WorkloadSpec, name: str, value: str) -> WorkloadSpec:
    """Return `workload` with the variable set in its place, or added at the end; "" takes it out."""
    if not value:
        return replace(workload, env=tuple(item for item in workload.env if item.name != name))
    if any(item.name == name for item in workload.env):
        env = tuple(EnvVar(name, value) if item.name == name else item for item in workload.env)
        return replace(workload, env=env)
    return replace(workload, env=(*workload.env, EnvVar(name, value)))


def set_option(workload: WorkloadSpec, option: str, value: str) -> WorkloadSpec:
    """Return `workload` with `option value` in its arguments; "" takes both out."""
    args = list(workload.args)
    place = args.index(option) if option in args else len(args)
    args[place : place + 2] = [option, value] if value else []
    return replace(workload, args=tuple(args))


def without_probes_if_closed(workload: WorkloadSpec) -> WorkloadSpec:
    """Return `workload` without probes when it has no port that they could ask."""
    return workload if workload.port is not None else replace(workload, probes=type(workload.probes)())
