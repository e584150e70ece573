"""Image references by the reference grammar (distribution/reference), and versions compared as numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import zip_longest

from gpu.messages import Text, gettext_noop

DEFAULT_HOST = "docker.io"
MAX_NAME_LENGTH = 255
MAX_LENGTH = 512

_HOST_PART = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_HOST = re.compile(
    rf"(?P<host>{_HOST_PART}(?:\.{_HOST_PART})*|\[[0-9a-fA-F:]+\])(?::(?P<port>[0-9]+))?",
)
_PATH_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_PATH = re.compile(rf"{_PATH_PART}(?:/{_PATH_PART})*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha384:[0-9a-f]{96}|sha512:[0-9a-f]{128}")
_VERSION = re.compile(r"[vV]?(?P<numbers>[0-9]{1,9}(?:\.[0-9]{1,9}){0,5})(?:\.?[-+_a-zA-Z].*)?")

Version = tuple[int, ...]


class ImageRefused(ValueError):
    """A text is no image reference; `text` tells the person why."""

    def __init__(self, text: Text) -> None:
        super().__init__(str(text))
        self.text = text


@dataclass(frozen=True)
class ImageReference:
    """The parts of an image reference as they were written; `host` and `port` are None when left out."""

    host: str | None
    port: int | None
    path: str
    tag: str | None
    digest: str | None

    @property
    def repository(self) -> str:
        """Host, port and path in full: `nginx` is `docker.io/library/nginx`."""
        if self.host is None or self.host.lower() in {DEFAULT_HOST, "index.docker.io"}:
            return f"{DEFAULT_HOST}/{self.path if '/' in self.path else 'library/' + self.path}"
        return f"{self.host}{'' if self.port is None else f':{self.port}'}/{self.path}"

    @property
    def pinned(self) -> bool:
        """Tell whether the reference names one version: a digest, or a tag other than `latest`."""
        return self.digest is not None or (self.tag is not None and self.tag.lower() != "latest")

    @property
    def version(self) -> Version | None:
        """The numbers of the tag, `v0.24.0-rc1` as (0, 24, 0); None without a tag or without numbers in front."""
        return None if self.tag is None else parse_version(self.tag)

    def __str__(self) -> str:
        host = "" if self.host is None else f"{self.host}{'' if self.port is None else f':{self.port}'}/"
        tag = "" if self.tag is None else f":{self.tag}"
        digest = "" if self.digest is None else f"@{self.digest}"
        return f"{host}{self.path}{tag}{digest}"


def parse(text: str) -> ImageReference:
    """Read an image reference. Raises ImageRefused for anything a container runtime would not take."""
    if not text.strip():
        raise ImageRefused(Text(gettext_noop("No image is given.")))
    if len(text) > MAX_LENGTH:
        raise ImageRefused(Text(gettext_noop("The image's name is too long.")))
    if "://" in text:
        raise ImageRefused(
            Text(gettext_noop("An image is written without https:// or another protocol in front."))
        )
    if any(c.isspace() for c in text):
        raise ImageRefused(Text(gettext_noop("The image's name holds a blank.")))
    name, at, digest = text.partition("@")
    if at and not _DIGEST.fullmatch(digest):
        raise ImageRefused(
            Text(
                gettext_noop(
                    "What follows the @ is no digest: sha256: and 64 digits 0-9 and a-f are expected."
                )
            )
        )
    name, tag = _split_tag(name)
    if tag is not None and not _TAG.fullmatch(tag):
        raise ImageRefused(Text(gettext_noop("“%(tag)s” is not possible as a tag."), {"tag": tag}))
    host, port, path = _split_host(name)
    if len(name) > MAX_NAME_LENGTH:
        raise ImageRefused(Text(gettext_noop("The image's name is too long.")))
    if not _PATH.fullmatch(path):
        if _PATH.fullmatch(path.lower()):
            raise ImageRefused(
                Text(gettext_noop("The image's name holds capital letters; write it in small letters."))
            )
        raise ImageRefused(
            Text(gettext_noop("“%(name)s” is not possible as an image's name."), {"name": name})
        )
    return ImageReference(host, port, path, tag, digest if at else None)


def parse_version(text: str) -> Version | None:
    """Read the numbers a version begins with: `v0.8.5.post1` is (0, 8, 5); None when it begins with something else."""
    match = _VERSION.fullmatch(text)
    return None if match is None else tuple(int(number) for number in match["numbers"].split("."))


def compare_versions(a: Version, b: Version) -> int:
    """Return -1, 0 or 1 as `a` is older than, the same as or newer than `b`; missing numbers count as 0."""
    for left, right in zip_longest(a, b, fillvalue=0):
        if left != right:
            return -1 if left < right else 1
    return 0


@dataclass(frozen=True)
class Ceiling:
    """What is known of one image on one kind of card: an entry of the image matrix.

    `path` is the repository without its host, so that mirrors count too. `known_good` is the newest version that works
    ("": none does); `bad_from` the first that does not (None: newer ones are untested). `pin` is the image to propose
    ("": none). `reason` is a message id or the operator's own sentence.
    """

    path: str
    card: str
    known_good: str
    bad_from: str | None
    pin: str
    reason: str = ""


class Suitability(StrEnum):
    """What the image matrix says of an image."""

    GOOD = "good"
    UNTESTED = "untested"
    BAD = "bad"
    UNKNOWN_VERSION = "unknown_version"
    NO_STATEMENT = "no_statement"


CEILINGS: tuple[Ceiling, ...] = (
    # Newer Ollama left the V100's compute capability 7.0 behind (case C-09).
    Ceiling("ollama/ollama", "V100", "0.24.0", "0.30.0", "ollama/ollama:0.24.0"),
    # Its image for 0.9.0 brings a PyTorch that asks for 7.5 at least (vllm-project/vllm#18818).
    Ceiling("vllm/vllm-openai", "V100", "0.8.5", "0.9.0", "vllm/vllm-openai:v0.8.5.post1"),
    # Its start stops with "SGLang only supports sm75 and above." (sgl-project/sglang, model_runner.py).
    Ceiling(
        "lmsysorg/sglang",
        "V100",
        "",
        "0",
        "",
        gettext_noop("It asks for compute capability 7.5, and the V100 has 7.0."),
    ),
    # CUDA 13 ended the support of Volta (NVIDIA's CUDA 13.0 release notes).
    Ceiling("nvidia/cuda", "V100", "12.9.1", "13.0.0", "nvidia/cuda:12.4.1-base-ubuntu22.04"),
)
"""What the matrix holds before an operator changes it."""


def judge(image: ImageReference, ceilings: Sequence[Ceiling]) -> tuple[Suitability, Ceiling | None]:
    """Tell what the matrix says of `image`, and by which entry (None: it says nothing)."""
    for ceiling in ceilings:
        if image.path != ceiling.path and not image.path.endswith(f"/{ceiling.path}"):
            continue
        version = image.version
        if version is None:
            return Suitability.UNKNOWN_VERSION, ceiling
        good, bad = parse_version(ceiling.known_good), parse_version(ceiling.bad_from or "")
        if bad is not None and compare_versions(version, bad) >= 0:
            return Suitability.BAD, ceiling
        if good is not None and compare_versions(version, good) <= 0:
            return Suitability.GOOD, ceiling
        return Suitability.UNTESTED, ceiling
    return Suitability.NO_STATEMENT, None


def _split_tag(name: str) -> tuple[str, str | None]:
    """Split off the tag: only a colon after the last slash begins one, otherwise it is a port."""
    slash, colon = name.rfind("/"), name.rfind(":")
    return (name[:colon], name[colon + 1 :]) if colon > slash else (name, None)


def _split_host(name: str) -> tuple[str | None, int | None, str]:
    """Split off the host: the first part is one when it has a dot, a colon or a capital, or is `localhost`."""
    first, slash, rest = name.partition("/")
    is_host = "." in first or ":" in first or first == "localhost" or first != first.lower()
    if not slash or not is_host:
        return None, None, name
    match = _HOST.fullmatch(first)
    port = int(match["port"]) if match and match["port"] and len(match["port"]) < 6 else None
    if match is None or (match["port"] and not 0 < (port or 0) < 65536):
        raise ImageRefused(
            Text(gettext_noop("“%(host)s” is not possible as a registry's host."), {"host": first})
        )
    return match["host"], port, rest
