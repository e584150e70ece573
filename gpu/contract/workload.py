"""The fields of an order form against the contract, each finding at its field."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from gpu import images, templates_catalogue
from gpu.contract import texts
from gpu.contract.finding import By, Finding, Level
from gpu.contract.resources import check_resources, check_volume_size
from gpu.manifest_spec import EnvVar, Probe, VolumeSpec, WorkloadSpec
from gpu.messages import Count, Text, gettext_noop
from gpu.templates_catalogue import Setting, SettingRefused, Template

MAX_WORDS = 64
MAX_ENV = 100
MAX_ENV_NAME = 128
MAX_VALUE_BYTES = 32 * 1024
MAX_SPEC_BYTES = 128 * 1024
"""Of a workload's JSON. The whole object, with the names of its fields kept by the server, stays below 256 KiB."""
MAX_PATH = 512
MAX_STORAGE_CLASS = 253


def check_workload(
    workload: WorkloadSpec,
    *,
    ceilings: Sequence[images.Ceiling] = images.CEILINGS,
    require_digest: bool = False,
    replicas: int = 1,
) -> tuple[Finding, ...]:
    """Return what is wrong with a workload before it is ordered; `place` is the field's name.

    `ceilings` is the image matrix for the package's card, `require_digest` the operator's wish to have every image
    by digest. A warning never stands in the way.
    """
    return tuple(_findings(workload, ceilings, require_digest, replicas))


def _findings(
    workload: WorkloadSpec, ceilings: Sequence[images.Ceiling], require_digest: bool, replicas: int
) -> Iterator[Finding]:
    template = templates_catalogue.get(workload.template)
    if template is None:
        yield _finding(
            "template-unknown",
            "template",
            Text(gettext_noop("There is no template “%(code)s”."), {"code": workload.template}),
            Text(gettext_noop("Choose one of the templates.")),
        )
    yield from _image(workload.image, template, ceilings, require_digest)
    yield from _words("command", workload.command)
    yield from _words("args", workload.args)
    yield from _env(workload.env, template)
    if workload.port is not None:
        yield from _port("port", workload.port)
    yield from check_resources(workload, template)
    if workload.volume is not None:
        yield from _volume(workload.volume)
    elif template is not None and template.keeps_data:
        yield _finding(
            "volume-missing",
            "volume",
            Text(template.lost_without_volume),
            Text(gettext_noop("Add a volume.")),
            level="warning",
        )
    for kind in ("startup", "readiness", "liveness"):
        probe = getattr(workload.probes, kind)
        if probe is not None:
            yield from _probe(f"probes.{kind}", probe, workload.port)
    yield from _replicas(replicas, workload.volume)
    yield from _whole(workload)


def _image(
    text: str, template: Template | None, ceilings: Sequence[images.Ceiling], require_digest: bool
) -> Iterator[Finding]:
    try:
        image = images.parse(text)
    except images.ImageRefused as error:
        mend = Text(gettext_noop("Write it as repository:version, such as ollama/ollama:0.24.0."))
        default = template.defaults.image if template is not None and not text.strip() else ""
        yield _finding("image-invalid", "image", error.text, mend, by="platform", suggest=default or None)
        return
    suitability, ceiling = images.judge(image, ceilings)
    pin = None if ceiling is None else ceiling.pin or None
    if not image.pinned:
        yield _finding(
            "image-not-pinned",
            "image",
            Text(gettext_noop("The image names no version, so that tomorrow another one may start.")),
            Text(gettext_noop("Add a version after a colon, or a digest. “latest” is none.")),
            suggest=pin,
        )
        return
    if image.digest is None:
        yield _finding(
            "image-not-by-digest",
            "image",
            Text(gettext_noop("The image is named by a version, which its publisher may change.")),
            Text(gettext_noop("Add @sha256: and the digest to keep it as it is.")),
            level="refused" if require_digest else "warning",
        )
    if ceiling is None or suitability is images.Suitability.GOOD:
        return
    yield _unsuitable(image, suitability, ceiling)


def _unsuitable(
    image: images.ImageReference, suitability: images.Suitability, ceiling: images.Ceiling
) -> Finding:
    params: dict[str, object] = {"image": str(image), "card": ceiling.card, "good": ceiling.known_good}
    if ceiling.reason:
        params["reason"] = Text(ceiling.reason)
    if suitability is images.Suitability.BAD:
        rule = "image-bad"
        sentence = (
            gettext_noop("%(image)s does not work on the %(card)s. %(reason)s")
            if ceiling.reason
            else gettext_noop("%(image)s does not work on the %(card)s.")
        )
    elif suitability is images.Suitability.UNTESTED:
        rule = "image-untested"
        sentence = gettext_noop("%(image)s is not tested on the %(card)s.")
    else:
        rule = "image-version-unknown"
        sentence = gettext_noop(
            "The version of this image is not known, so nobody can tell whether it works on the %(card)s."
        )
    mend = (
        gettext_noop("Version %(good)s is the last one known to work on the %(card)s.")
        if ceiling.known_good
        else gettext_noop("Take an image that is built for the %(card)s.")
    )
    pin = ceiling.pin or None
    return _finding(rule, "image", Text(sentence, params), Text(mend, params), level="warning", suggest=pin)


def _words(place: str, words: Sequence[str]) -> Iterator[Finding]:
    if len(words) > MAX_WORDS:
        yield _finding(
            "too-many-words",
            place,
            Text(gettext_noop("There are more than %(limit)s parts."), {"limit": Count(MAX_WORDS)}),
            Text(gettext_noop("Put a longer script into the image.")),
        )
    for number, word in enumerate(words):
        yield from _value(f"{place}.{number}", word)


def _env(env: Sequence[EnvVar], template: Template | None) -> Iterator[Finding]:
    if len(env) > MAX_ENV:
        yield _finding(
            "too-many-variables",
            "env",
            Text(gettext_noop("There are more than %(limit)s variables."), {"limit": Count(MAX_ENV)}),
            Text(gettext_noop("Put the rest into a file of the image or the volume.")),
        )
    settings = {} if template is None else {s.env: s for s in template.settings if s.env is not None}
    seen: set[str] = set()
    for number, variable in enumerate(env):
        yield from _env_name(f"env.{number}.name", variable.name, seen)
        seen.add(variable.name)
        yield from _value(f"env.{number}.value", variable.value)
        if variable.name in settings:
            yield from _setting(f"env.{number}.value", settings[variable.name], variable.value)


def _env_name(place: str, name: str, seen: set[str]) -> Iterator[Finding]:
    if len(name) > MAX_ENV_NAME or not texts.ENV_NAME.fullmatch(name):
        yield _finding(
            "env-name-invalid",
            place,
            Text(gettext_noop("This is not possible as the name of a variable.")),
            Text(
                gettext_noop(
                    "Use letters, digits, “_”, “-” and “.”, no digit first, at most %(limit)s characters."
                ),
                {"limit": Count(MAX_ENV_NAME)},
            ),
            by="platform",
        )
    elif name in seen:
        yield _finding(
            "env-name-twice",
            place,
            Text(gettext_noop("The variable %(name)s is there twice."), {"name": name}),
            Text(gettext_noop("Remove one of them.")),
            by="platform",
        )
    elif texts.is_reserved_env(name):
        yield _finding(
            "env-name-reserved",
            place,
            Text(
                gettext_noop("The platform sets %(name)s itself to hold the slice to its size."),
                {"name": name},
            ),
            Text(gettext_noop("Leave it out.")),
        )


def _value(place: str, value: str) -> Iterator[Finding]:
    if texts.has_control_characters(value):
        yield _finding(
            "control-characters",
            place,
            Text(gettext_noop("The text holds a character that cannot be given to a container.")),
            Text(gettext_noop("Remove it, or write it encoded.")),
            by="platform",
        )
    elif len(value.encode()) > MAX_VALUE_BYTES:
        yield _finding(
            "value-too-long",
            place,
            Text(gettext_noop("The text is longer than %(limit)s bytes."), {"limit": Count(MAX_VALUE_BYTES)}),
            Text(gettext_noop("Put it into a file of the image or the volume.")),
        )


def _setting(place: str, setting: Setting, value: str) -> Iterator[Finding]:
    try:
        setting.clean(value)
    except SettingRefused as error:
        mend = Text(gettext_noop("Correct it, or leave it out: then the server's own default holds."))
        yield _finding("setting-invalid", place, error.text, mend)


def _port(place: str, port: int) -> Iterator[Finding]:
    if not 0 < port < 65536:
        yield _finding(
            "port-invalid",
            place,
            Text(gettext_noop("A port is a number from 1 to 65535.")),
            Text(gettext_noop("Write the port on which the container listens.")),
            by="platform",
        )
    elif port < 1024:
        yield _finding(
            "port-privileged",
            place,
            Text(
                gettext_noop(
                    "The container does not run as root and may not be able to listen on a port below 1024."
                )
            ),
            Text(gettext_noop("Let it listen on a higher port, such as 8080.")),
            level="warning",
        )


def _volume(volume: VolumeSpec) -> Iterator[Finding]:
    yield from check_volume_size(volume.size)
    path = volume.mount_path
    if len(path) > MAX_PATH or not texts.is_absolute_path(path):
        yield _finding(
            "mount-path-invalid",
            "volume.mount_path",
            Text(
                gettext_noop("The volume needs a full path that begins with “/”, without “..”, “//” and “:”.")
            ),
            Text(gettext_noop("Write a path such as /data.")),
            by="platform",
            suggest="/data",
        )
    elif texts.hides_system(path):
        yield _finding(
            "mount-path-system",
            "volume.mount_path",
            Text(gettext_noop("A volume at %(path)s hides files that the container needs."), {"path": path}),
            Text(gettext_noop("Write a path of its own, such as /data.")),
            suggest="/data",
        )
    storage_class = volume.storage_class
    if storage_class is not None and (
        len(storage_class) > MAX_STORAGE_CLASS or not texts.SUBDOMAIN.fullmatch(storage_class)
    ):
        yield _finding(
            "storage-class-invalid",
            "volume.storage_class",
            Text(gettext_noop("This is not possible as the name of a storage class.")),
            Text(gettext_noop("Leave it empty for the platform's default.")),
            by="platform",
        )


def _probe(place: str, probe: Probe, port: int | None) -> Iterator[Finding]:
    if probe.command:
        yield from _words(f"{place}.command", probe.command)
    elif probe.port is None and port is None:
        yield _finding(
            "probe-without-port",
            f"{place}.port",
            Text(gettext_noop("The check asks a port, but the workload has none.")),
            Text(gettext_noop("Set the port on which the container listens, or leave the check out.")),
        )
    if probe.port is not None:
        yield from _port(f"{place}.port", probe.port)
    if probe.path is not None and (
        not probe.path.startswith("/")
        or len(probe.path) > MAX_PATH
        or texts.has_control_characters(probe.path)
    ):
        yield _finding(
            "probe-path-invalid",
            f"{place}.path",
            Text(gettext_noop("The check needs a path that begins with “/”.")),
            Text(gettext_noop("Write a path such as /health.")),
        )
    for field in ("period", "failures", "timeout"):
        if not 0 < getattr(probe, field) <= 3600:
            yield _finding(
                "probe-number-invalid",
                f"{place}.{field}",
                Text(gettext_noop("This is a whole number from 1 to 3600.")),
                Text(gettext_noop("Write a number in this range.")),
                by="platform",
            )
    if place.endswith("liveness") and probe.failures == 1:
        yield _finding(
            "liveness-hasty",
            f"{place}.failures",
            Text(
                gettext_noop("One slow answer would restart the container and throw away what it has loaded.")
            ),
            Text(gettext_noop("Allow three failures or more.")),
            level="warning",
            suggest="3",
        )


def _replicas(replicas: int, volume: VolumeSpec | None) -> Iterator[Finding]:
    if replicas in (0, 1):
        return
    if volume is not None:
        sentence = Text(gettext_noop("Two containers cannot share this volume: only one may write to it."))
    else:
        sentence = Text(gettext_noop("Each further container takes a slice of its own."))
    yield _finding(
        "replicas-not-one",
        "replicas",
        sentence,
        Text(gettext_noop("Order a second slice for a second container.")),
        suggest="1",
    )


def _whole(workload: WorkloadSpec) -> Iterator[Finding]:
    text = json.dumps(workload.to_json(), ensure_ascii=False)
    if len(text.encode("utf-8", "surrogatepass")) > MAX_SPEC_BYTES:
        yield _finding(
            "workload-too-large",
            "env",
            Text(
                gettext_noop("Command, arguments and variables are longer than %(limit)s bytes together."),
                {"limit": Count(MAX_SPEC_BYTES)},
            ),
            Text(gettext_noop("Put long texts into a file of the image or the volume.")),
        )


def _finding(
    rule: str,
    place: str,
    sentence: Text,
    mend: Text,
    *,
    level: Level = "refused",
    by: By = "advice",
    suggest: str | None = None,
) -> Finding:
    return Finding(rule, place, sentence, mend, level, by, suggest)
