"""Whether a language model fits on a slice: weights, key/value cache, and what the server needs for itself.

It warns and never forbids: buffers grow with the prompt and differ between servers and versions, so the verdict is an
estimate, and the figures it rests on are told with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from gpu.messages import Count, Memory, Text, gettext_noop

MIB = 1024 * 1024
OVERHEAD = 1024 * MIB
"""Bytes set aside for the CUDA context and compute buffers: our estimate, stated on the page."""

SERVER_DEFAULT_CONTEXT = 4096
"""Tokens of context the server takes on an 8 GiB slice where the order says nothing (field report)."""

CONTEXT_STEP = 256
"""The largest context is given as a multiple of this."""

# Bytes for 32 cached values, as llama.cpp stores them in blocks of 32.
CACHE_TYPES: Mapping[str, int] = {"f16": 64, "q8_0": 34, "q4_0": 18}


@dataclass(frozen=True)
class Model:
    """The figures of a model that decide whether it fits.

    `weights` in bytes; `blocks`, `kv_heads`, `key_length` and `value_length` as in GGUF (`*.block_count`,
    `*.attention.head_count_kv`, `*.attention.key_length`, `*.attention.value_length`); `max_context` in tokens, 0
    where it is not known.
    """

    name: str
    weights: int
    blocks: int
    kv_heads: int
    key_length: int
    value_length: int
    max_context: int = 0
    source: str = ""

    def cache_per_token(self, cache_type: str = "f16") -> int:
        """Bytes of key/value cache for one token, rounded up. Raises KeyError for an unknown cache type."""
        values = self.blocks * self.kv_heads * (self.key_length + self.value_length)
        return -(-values * CACHE_TYPES[cache_type] // 32)


@dataclass(frozen=True)
class Fit:
    """Whether a model fits, with the figures in bytes; `largest_context` in tokens for each request, 0 for none."""

    verdict: Literal["fits", "tight", "too_large"]
    weights: int
    cache: int
    overhead: int
    memory: int
    largest_context: int
    sentence: Text

    @property
    def needed(self) -> int:
        """Weights and cache together, without the overhead."""
        return self.weights + self.cache

    @property
    def warns(self) -> bool:
        """Whether a person should be told before ordering."""
        return self.verdict != "fits"


def assess(
    model: Model,
    memory_mib: int,
    *,
    context: int = SERVER_DEFAULT_CONTEXT,
    parallel: int = 1,
    cache_type: str = "f16",
) -> Fit:
    """Judge `model` on a slice of `memory_mib`, with `context` tokens for each of `parallel` requests.

    Raises ValueError for a context or a number of requests below one.
    """
    if context < 1 or parallel < 1:
        raise ValueError("context and parallel are at least 1")
    memory = memory_mib * MIB
    per_token = model.cache_per_token(cache_type) * parallel
    cache = per_token * context
    largest = _largest_context(model, memory, per_token)
    needed = model.weights + cache
    params: dict[str, object] = {
        "weights": Memory(model.weights),
        "cache": Memory(cache),
        "needed": Memory(needed),
        "memory": Memory(memory),
        "overhead": Memory(OVERHEAD),
        "context": Count(context),
        "largest": Count(largest),
    }
    if needed + OVERHEAD <= memory:
        verdict: Literal["fits", "tight", "too_large"] = "fits"
        msgid = gettext_noop(
            "It fits: %(weights)s for the weights and %(cache)s for %(context)s tokens of context, "
            "%(needed)s of %(memory)s."
        )
    elif needed <= memory:
        verdict = "tight"
        msgid = gettext_noop(
            "It is tight: weights and context take %(needed)s of %(memory)s, and the server needs about %(overhead)s "
            "for itself. Up to %(largest)s tokens of context fit well."
        )
    elif largest > 0:
        verdict = "too_large"
        msgid = gettext_noop(
            "It is too large: weights and context take %(needed)s, and the slice has %(memory)s. "
            "Up to %(largest)s tokens of context fit well."
        )
    else:
        verdict = "too_large"
        msgid = gettext_noop(
            "It is too large: the weights take %(weights)s, and of the slice's %(memory)s the server needs about "
            "%(overhead)s for itself. Take a larger package or a smaller model."
        )
    used = {name: value for name, value in params.items() if f"%({name})s" in msgid}
    return Fit(verdict, model.weights, cache, OVERHEAD, memory, largest, Text(msgid, used))


def _largest_context(model: Model, memory: int, per_token: int) -> int:
    """The largest context that leaves the overhead free, no larger than the model was made for."""
    tokens = max(memory - OVERHEAD - model.weights, 0) // per_token
    if model.max_context:
        tokens = min(tokens, model.max_context)
    return tokens // CONTEXT_STEP * CONTEXT_STEP


_LLAMA = gettext_noop("Figures of Meta's config.json; size as the Ollama library lists it (4-bit)")
_QWEN = gettext_noop("Figures of Alibaba's config.json; size as the Ollama library lists it (4-bit)")
_MISTRAL = gettext_noop("Figures of Mistral AI's config.json; size as the Ollama library lists it (4-bit)")
_GB = 1_000_000_000

# Sizes of listed models are rounded to the digits of the library; llama3.2:3b is the size of its layer.
COMMON_MODELS: tuple[Model, ...] = (
    Model("llama3.2:1b", 13 * _GB // 10, 16, 8, 64, 64, 131072, _LLAMA),
    Model("llama3.2:3b", 2_019_377_376, 28, 8, 128, 128, 131072, _LLAMA),
    Model("qwen3:4b", 26 * _GB // 10, 36, 8, 128, 128, 40960, _QWEN),
    Model("mistral:7b", 44 * _GB // 10, 32, 8, 128, 128, 32768, _MISTRAL),
    Model("qwen2.5:7b", 47 * _GB // 10, 28, 4, 128, 128, 32768, _QWEN),
    Model("llama3.1:8b", 49 * _GB // 10, 32, 8, 128, 128, 131072, _LLAMA),
    Model("qwen3:8b", 52 * _GB // 10, 36, 8, 128, 128, 40960, _QWEN),
    Model("mistral-nemo:12b", 71 * _GB // 10, 40, 8, 128, 128, 131072, _MISTRAL),
    Model("qwen2.5:14b", 9 * _GB, 48, 8, 128, 128, 32768, _QWEN),
    Model("qwen3:14b", 93 * _GB // 10, 40, 8, 128, 128, 40960, _QWEN),
    Model("qwen2.5:32b", 20 * _GB, 64, 8, 128, 128, 32768, _QWEN),
    Model("llama3.1:70b", 43 * _GB, 80, 8, 128, 128, 131072, _LLAMA),
)
"""Models that people order, smallest first; any other model is judged by its own figures."""


def common_model(name: str) -> Model | None:
    """The entry of `COMMON_MODELS` with this name, letter case aside."""
    return next((model for model in COMMON_MODELS if model.name == name.strip().lower()), None)
