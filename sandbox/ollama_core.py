"""What the stand-in for Ollama does with models: lists, pulls, loads and deletes them."""

import hashlib
import json
import os
import re
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

from sandbox import ollama_log as log
from sandbox import ollama_models as models
from sandbox.ollama_store import Full, GaveUp, Shelf

TICK = 0.06
"""Seconds between two lines of a pull."""

LEAST_MEMORY = 1024**3
"""A container with less is killed while it loads a model (field report: 512 MiB was too little)."""

OUT_OF_MEMORY = 247
"""The exit code that the pretended kubelet reads as the kernel's kill."""

FOR_EVER = 10 * 365 * 86400.0
_DURATION = re.compile(r"(-?\d+)(ms|s|m|h)?")


class Refused(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, words: str | None) -> None:
        super().__init__(words)
        self.status, self.words = status, words


@dataclass
class Ollama:
    """The server's state. `seconds` is how long an ordinary pull takes; `memory` the container's limit, 0 for none."""

    shelf: Shelf
    card: log.Card
    seconds: float = 12.0
    version: str = "0.0.0"
    memory: int = 0
    running: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def context(self) -> int:
        """Tokens of context of one request."""
        return int(os.environ.get("OLLAMA_CONTEXT_LENGTH") or 0) or log.default_context(self.card)

    @property
    def keep_alive(self) -> float:
        """Seconds a model stays loaded."""
        match = _DURATION.fullmatch(os.environ.get("OLLAMA_KEEP_ALIVE") or "5m")
        seconds = int(match[1]) * {"ms": 0.001, "m": 60, "h": 3600}.get(match[2], 1) if match else 300.0
        return FOR_EVER if seconds < 0 else seconds

    def tags(self) -> dict[str, Any]:
        """The models on the volume, the newest first."""
        keys = ("name", "model", "modified_at", "size", "digest", "details")
        found = sorted(self.shelf.models.values(), key=lambda one: str(one["modified_at"]), reverse=True)
        return {"models": [{key: one[key] for key in keys} for one in found]}

    def ps(self) -> dict[str, Any]:
        """The loaded models."""
        self.running = {key: one for key, one in self.running.items() if one["until"] > time.time()}
        return {
            "models": [
                {key: value for key, value in one.items() if key != "until"} for one in self.running.values()
            ]
        }

    def pull(self, name: models.Name) -> Generator[dict[str, Any]]:
        """The lines of a pull. Raises GaveUp where it fails on the way."""
        yield {"status": "pulling manifest"}
        manifest = models.find(name)
        if isinstance(manifest, str):
            yield {"error": f"pull model manifest: {manifest}"}
            return
        for digest, size in manifest.layers:
            yield from self._layer(digest, size, manifest)
        yield {"status": "verifying sha256 digest"}
        time.sleep(min(1.0, self.seconds / 20))
        weights = manifest.layers[0][0]
        if manifest.fate == "mismatch":
            self.shelf.finished(weights)
            other = hashlib.sha256(weights.encode()).hexdigest()
            words = f"digest mismatch, file must be downloaded again: want {weights}, got sha256:{other}"
            yield {"error": words}
            return
        yield {"status": "writing manifest"}
        known = self.shelf.models.get(name.key)
        # A model keeps the letters under which it came first.
        self.shelf.put(name.key, _entry(str(known["name"] if known else name), manifest))
        for digest, _ in manifest.layers:
            self.shelf.finished(digest)
        yield {"status": "success"}

    def _layer(self, digest: str, size: int, manifest: models.Manifest) -> Iterator[dict[str, Any]]:
        line: dict[str, Any] = {"status": f"pulling {digest[7:19]}", "digest": digest, "total": size}
        if digest in self.shelf.blobs():
            yield line | {"completed": size}
            return
        large = size == manifest.weights
        seconds = (manifest.seconds or self.seconds) if large else TICK
        with self.shelf.downloading(digest, size, seconds, manifest.fate if large else "") as download:
            there = -1
            while there < size:
                try:
                    there = self.shelf.progress(download)
                except Full:
                    path = f"/models/blobs/{digest.replace(':', '-')}-partial"
                    raise GaveUp(f"write {path}: no space left on device") from None
                yield line | ({"completed": there} if there else {})
                time.sleep(TICK)

    def generate(self, body: dict[str, Any]) -> dict[str, Any]:
        """Load the model where need be, and say something."""
        entry = self._known(body)
        name = str(entry["name"])
        load = str(entry["load"])
        if load == "broken":
            log.write("runtime error: slice bounds out of range [:18388627997852787302] with capacity 4096")
            raise Refused(500, None)
        options = body.get("options") or {}
        context = int(options.get("num_ctx") or self.context)
        began = time.monotonic()
        fresh = name not in self.running or self.running[name]["context_length"] != context
        if fresh:
            self._load(name, entry, load, context)
        self.running[name]["until"] = time.time() + self.keep_alive
        loading = time.monotonic() - began
        prompt = len(str(body.get("prompt", ""))) // 4 + 5
        if prompt > context:
            log.line(
                "WARN",
                "runner.go:153",
                "truncating input prompt",
                limit=context,
                prompt=prompt,
                keep=5,
                new=context,
            )
        count = int(options.get("num_predict") or 16)
        speed = self._speed(entry, name)
        time.sleep(min(1.0, count / speed))
        return {
            "model": body["model"],
            "created_at": _now(),
            "response": "…",
            "done": True,
            "done_reason": "length",
            "load_duration": int(loading * 1e9),
            "prompt_eval_count": min(prompt, context),
            "eval_count": count,
            "eval_duration": int(count / speed * 1e9),
        }

    def _load(self, name: str, entry: dict[str, Any], load: str, context: int) -> None:
        if self.memory and self.memory < LEAST_MEMORY:
            os._exit(OUT_OF_MEMORY)
        if load == "hungry":
            words = "model requires more system memory (95.4 GiB) than is available (22.0 GiB)"
            log.line("INFO", "sched.go:518", "Load failed", model="/models/blobs/sha256-0", error=words)
            raise Refused(500, words)
        weights, blocks = int(entry["weights"]), int(entry["blocks"])
        parallel = int(os.environ.get("OLLAMA_NUM_PARALLEL") or 1)
        cache = blocks * 4096 * context * parallel
        size = weights + cache + 300 * models.MEBI
        on_gpu = min(1.0, self.card.used / size) if self.card.used else 0.0
        on_gpu = {"cpu": 0.0, "partly": min(on_gpu, 0.75)}.get(load, on_gpu)
        if load == "gpufull":
            log.write(f"ggml_gallocr_reserve_n: failed to allocate CUDA0 buffer of size {size}")
            raise Refused(500, "llama runner process has terminated: cudaMalloc failed: out of memory")
        time.sleep(min(1.0, self.seconds / 20))
        log.loaded(self.card, weights, cache, on_gpu, blocks, context, parallel)
        self.running[name] = {
            "name": name,
            "model": name,
            "size": size,
            "digest": entry["digest"],
            "details": entry["details"],
            "expires_at": _now(),
            "size_vram": int(size * on_gpu),
            "context_length": context,
            "until": 0.0,
        }

    def _speed(self, entry: dict[str, Any], name: str) -> float:
        """Tokens a second: each needs the weights once, at 360 GB/s from the card or 20 GB/s from the host."""
        one = self.running[name]
        on_gpu = float(one["size_vram"] / one["size"])
        return 1 / (int(entry["weights"]) * (on_gpu / 360e9 + (1 - on_gpu) / 20e9))

    def _known(self, body: dict[str, Any]) -> dict[str, Any]:
        name = models.parse(body.get("model"))
        found = self.shelf.models.get(name.key) if name else None
        if found is None:
            raise Refused(404, f"model '{body.get('model', '')}' not found")
        return found

    def show(self, body: dict[str, Any]) -> dict[str, Any]:
        """The figures of a model."""
        entry = self._known(body)
        info = {"general.architecture": "llama", "llama.block_count": entry["blocks"]}
        return {"details": entry["details"], "model_info": info | {"llama.context_length": entry["context"]}}

    def delete(self, body: dict[str, Any]) -> None:
        """Delete a model."""
        name = models.parse(body.get("model"))
        if name is None:
            raise Refused(400, f'name "{body.get("model", "")}" is invalid')
        if not self.shelf.remove(name.key):
            raise Refused(404, f"model '{body['model']}' not found")


def _entry(name: str, manifest: models.Manifest) -> dict[str, object]:
    text = json.dumps(manifest.layers)
    return {
        "name": name,
        "model": name,
        "modified_at": _now(),
        "size": manifest.size,
        "digest": hashlib.sha256(text.encode()).hexdigest(),
        "details": {"format": "gguf", "family": "llama", "families": ["llama"],
                    "parameter_size": manifest.parameters, "quantization_level": "Q4_K_M"},
        "layers": [list(layer) for layer in manifest.layers],
        "weights": manifest.weights,
        "blocks": manifest.blocks,
        "context": manifest.context,
        "load": manifest.load,
    }  # fmt: skip


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) + f".{time.time_ns() % 1_000_000_000:09d}Z"
