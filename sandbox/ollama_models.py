"""The pretended registry of the stand-in for Ollama: which models there are, and what goes wrong with which.

A model's name decides what happens, whatever its registry and namespace:

- `missing`, `boom`, `secret`, `html`, `tls`, `refused`, `dns`, `newer`: the registry refuses or is not there
- `diskfull`, `mismatch`, `stall`, `drop`, `reset`, `cut`: something happens on the way
- `broken`, `cpu`, `partly`, `hungry`, `gpufull`: pulled well, but it does not load, or not where it should
- `slow:N` takes N seconds, `huge` is larger than most volumes
- a GGUF of hf.co, and the names in `GOOD`, are good; any other is unknown
"""

import hashlib
import re
from dataclasses import dataclass

DEFAULT_HOST = "registry.ollama.ai"
MEBI = 1024 * 1024

_PART = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,79}"
_NAME = re.compile(
    r"(?:(?:(?:https?://)?(?P<host>[A-Za-z0-9_][A-Za-z0-9_.:-]{0,349})/)?(?P<space>[A-Za-z0-9_][A-Za-z0-9_-]{0,79})/)?"
    rf"(?P<model>{_PART})(?::(?P<tag>{_PART}))?"
)

REFUSALS = {
    "missing": "file does not exist",
    "boom": "500: oops",
    "secret": 'realm host "" does not match original host "{host}"',
    "html": "invalid character '<' looking for beginning of value",
    "tls": 'Get "https://{host}/v2/": tls: first record does not look like a TLS handshake',
    "refused": 'Get "http://{host}/v2/": dial tcp 192.0.2.20:5999: connect: connection refused',
    "dns": 'Get "https://{host}/v2/": dial tcp: lookup {host} on 192.0.2.53:53: no such host',
    "newer": "412: The model you are attempting to pull requires a newer version of Ollama.",
}
BAD_TAG = '400: {"error":"The specified tag is not a valid quantization scheme. Please use another tag"}'
FATES = ("diskfull", "mismatch", "stall", "drop", "reset", "cut")
LOADS = ("broken", "cpu", "partly", "hungry", "gpufull")
QUANTIZATION = re.compile(r"(?:latest|(?:I?Q\d|B?F(?:16|32))\w*)", re.IGNORECASE)

GOOD = {
    # bytes of the weights, parameters, blocks, trained context
    "llama3.2:1b": (1_321_082_688, "1.2B", 16, 131072),
    "llama3.2:3b": (2_019_377_376, "3.2B", 28, 131072),
    "llama3.1:8b": (4_920_738_944, "8.0B", 32, 131072),
    "qwen2.5:0.5b": (397_807_936, "494M", 24, 32768),
    "qwen2.5:7b": (4_683_073_184, "7.6B", 28, 32768),
    "qwen2.5:14b": (8_988_110_688, "14.8B", 48, 32768),
    "qwen3:8b": (5_225_374_496, "8.2B", 36, 40960),
    "gemma3:4b": (3_338_792_448, "4.3B", 34, 131072),
    "mistral:7b": (4_372_811_936, "7.2B", 32, 32768),
    "phi4:14b": (9_053_114_464, "14.7B", 40, 16384),
}
LATEST = {
    "llama3.2": "3b",
    "llama3.1": "8b",
    "qwen2.5": "7b",
    "qwen3": "8b",
    "gemma3": "4b",
    "mistral": "7b",
    "phi4": "14b",
}
_ORDINARY = GOOD["llama3.2:3b"]
SMALL_LAYERS = (7711, 1429, 561)
"""Bytes of template, licence and configuration."""


@dataclass(frozen=True)
class Name:
    """A model's name, every part filled in."""

    host: str
    space: str
    model: str
    tag: str

    @property
    def key(self) -> str:
        """The same for all spellings."""
        return f"{self.host}/{self.space}/{self.model}:{self.tag}".lower()

    def __str__(self) -> str:
        if self.host.lower() != DEFAULT_HOST:
            return f"{self.host}/{self.space}/{self.model}:{self.tag}"
        return (
            f"{self.model}:{self.tag}" if self.space == "library" else f"{self.space}/{self.model}:{self.tag}"
        )


def parse(text: object) -> Name | None:
    """A name by Ollama's rules; None where it is none."""
    match = _NAME.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        return None
    host, space = match["host"] or DEFAULT_HOST, match["space"] or "library"
    return Name(host, space, match["model"], match["tag"] or "latest")


@dataclass(frozen=True)
class Manifest:
    """What the registry holds of a model. `layers`: digest and bytes; `fate`, `load`: what goes wrong, or "".

    `seconds` is how long the pull takes, None for the usual time.
    """

    layers: tuple[tuple[str, int], ...]
    parameters: str
    blocks: int
    context: int
    fate: str = ""
    load: str = ""
    seconds: float | None = None

    @property
    def weights(self) -> int:
        """Bytes of the largest layer."""
        return max(size for _, size in self.layers)

    @property
    def size(self) -> int:
        """Bytes of all layers."""
        return sum(size for _, size in self.layers)


def find(name: Name) -> Manifest | str:
    """What the registry answers: a manifest, or the words of its refusal."""
    model, tag = name.model.lower(), name.tag.lower()
    if model in REFUSALS:
        return REFUSALS[model].format(host=name.host)
    if model in FATES or model in LOADS:
        return _manifest(
            name, _ORDINARY, fate=model if model in FATES else "", load=model if model in LOADS else ""
        )
    if model == "slow":
        return _manifest(name, _ORDINARY, seconds=float(tag) if tag.isdecimal() else 60.0)
    if model == "huge":
        return _manifest(name, (400 * 1024 * MEBI, "671B", 61, 163840))
    if name.host.lower() == "hf.co" and "gguf" in model:
        return _manifest(name, _ORDINARY) if QUANTIZATION.fullmatch(tag) else BAD_TAG
    if tag == "latest":
        tag = LATEST.get(model, tag)
    figures = GOOD.get(f"{model}:{tag}")
    return _manifest(Name(name.host, name.space, model, tag), figures) if figures else REFUSALS["missing"]


def _manifest(
    name: Name,
    figures: tuple[int, str, int, int],
    fate: str = "",
    load: str = "",
    seconds: float | None = None,
) -> Manifest:
    weights, parameters, blocks, context = figures
    sizes = (weights, *SMALL_LAYERS)
    layers = tuple((_digest(f"{name.key} layer {number}"), size) for number, size in enumerate(sizes))
    return Manifest(layers, parameters, blocks, context, fate, load, seconds)


def _digest(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
