"""The frozen description of a slice: what a person set and what its package promises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, cast


class SpecError(ValueError):
    """Stored JSON is not a workload spec."""


@dataclass(frozen=True)
class PackageTerms:
    """What a package promises: DeviceClass, profile label, GPU memory (MiB), compute share (% of a card)."""

    device_class: str
    profile_id: str
    memory_mib: int
    compute_percent: int


@dataclass(frozen=True)
class EnvVar:
    """One environment variable; the value is text, also where it looks like a number (C-10)."""

    name: str
    value: str

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not isinstance(self.value, str):
            raise SpecError("name and value of an environment variable are text")


@dataclass(frozen=True)
class VolumeSpec:
    """A volume kept over restarts: size as a quantity, where it is mounted, its class (None: the default)."""

    size: str
    mount_path: str
    storage_class: str | None = None


@dataclass(frozen=True)
class Probe:
    """One check of a container: an HTTP path, a command, or neither: the port opens. Times in seconds."""

    path: str | None = None
    command: tuple[str, ...] = ()
    port: int | None = None
    period: int = 10
    failures: int = 3
    timeout: int = 5


@dataclass(frozen=True)
class Probes:
    """The three checks Kubernetes knows; None leaves one out."""

    startup: Probe | None = None
    readiness: Probe | None = None
    liveness: Probe | None = None


@dataclass(frozen=True)
class WorkloadSpec:
    """What runs on a slice, as a person set it. Quantities are text as Kubernetes writes it ("500m")."""

    image: str
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[EnvVar, ...] = ()
    port: int | None = None
    cpu_request: str = "500m"
    cpu_limit: str = "1"
    memory_request: str = "1Gi"
    memory_limit: str = "2Gi"
    volume: VolumeSpec | None = None
    template: str = "custom"
    probes: Probes = Probes()
    secret_env: str = ""
    """The variable that gets the slice's access token from its Secret; "" for none."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data from which from_json makes an equal spec."""
        return {
            "image": self.image,
            "command": list(self.command),
            "args": list(self.args),
            "env": [{"name": item.name, "value": item.value} for item in self.env],
            "port": self.port,
            "cpu_request": self.cpu_request,
            "cpu_limit": self.cpu_limit,
            "memory_request": self.memory_request,
            "memory_limit": self.memory_limit,
            "volume": None if self.volume is None else shallow(self.volume),
            "template": self.template,
            "probes": {
                kind: None if probe is None else {**shallow(probe), "command": list(probe.command)}
                for kind, probe in shallow(self.probes).items()
            },
            "secret_env": self.secret_env,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> WorkloadSpec:
        """Make the spec that to_json gave. A key left out takes its default; else SpecError."""
        try:
            given = dict(data)
            for key in ("command", "args"):
                if key in given:
                    given[key] = _strings(given[key])
            given["env"] = tuple(EnvVar(**item) for item in given.get("env", ()))
            if given.get("volume") is not None:
                given["volume"] = VolumeSpec(**given["volume"])
            given["probes"] = Probes(
                **{
                    kind: None
                    if probe is None
                    else Probe(**{**probe, "command": _strings(probe.get("command", ()))})
                    for kind, probe in given.get("probes", {}).items()
                }
            )
            spec = cls(**given)
            _check_kinds(spec)
            return spec
        except (TypeError, AttributeError, ValueError) as error:
            raise SpecError(f"not a workload spec: {error}") from error


@dataclass(frozen=True)
class SliceSpec:
    """One slice as it shall be in the cluster: 0 replicas is stopped, `restart` counts restarts asked for."""

    namespace: str
    app: str
    terms: PackageTerms
    workload: WorkloadSpec
    replicas: int
    restart: int
    slice_id: str


def shallow(item: VolumeSpec | Probe | Probes) -> dict[str, Any]:
    """Return the fields of one dataclass by name, not going deeper."""
    return {field.name: getattr(item, field.name) for field in fields(item)}


def _check_kinds(spec: WorkloadSpec) -> None:
    """Raise SpecError when a plain field of a spec made from JSON is not of its kind."""
    parts = [spec, spec.volume, *shallow(spec.probes).values()]
    for part in (part for part in parts if part is not None):
        for field in fields(part):
            value, kind = getattr(part, field.name), str(field.type)
            numeric = isinstance(value, int) and not isinstance(value, bool)
            wrong = (kind.startswith("str") and not isinstance(value, str)) or (
                kind.startswith("int") and not numeric
            )
            if wrong and not (value is None and kind.endswith("None")):
                raise SpecError(f"{field.name} is {value!r}")


def _strings(items: Sequence[object]) -> tuple[str, ...]:
    if isinstance(items, str) or not all(isinstance(item, str) for item in items):
        raise SpecError("a command is a list of texts")
    return tuple(cast("Sequence[str]", items))
