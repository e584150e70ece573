"""What the stand-in for Ollama writes to its log: the lines of the real one that the portal reads."""

import hashlib
import sys
import time
from dataclasses import dataclass

from sandbox.options import PRODUCT

GIBI = 1024**3
DRIVER = "12.8"


@dataclass(frozen=True)
class Card:
    """What the server sees of its GPU: bytes, 0 where there is none; `usable`: its build knows the card."""

    memory: int
    usable: bool = True

    @property
    def used(self) -> int:
        """Bytes that models can take."""
        return self.memory if self.usable else 0

    @property
    def ident(self) -> str:
        """An id as cards have, which no tenant must see."""
        text = hashlib.sha256(str(self.memory).encode()).hexdigest()
        return f"GPU-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:32]}"


def human(size: float) -> str:
    """A size as Ollama writes it."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.1f} {unit}" if unit != "B" else f"{int(size)} B"
        size /= 1024
    return f"{size:.1f} GiB"


def write(text: str) -> None:
    """A line that the model runner prints."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def line(level: str, source: str, msg: str, **fields: object) -> None:
    """A line of the server."""
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) + f".{time.time_ns() // 1_000_000 % 1000:03d}Z"
    rest = "".join(f" {key}={_quoted(str(value))}" for key, value in fields.items())
    write(f"time={moment} level={level} source={source} msg={_quoted(msg)}{rest}")


def request(status: int, seconds: float, method: str, path: str) -> None:
    """The line of an answered request."""
    moment = time.strftime("%Y/%m/%d - %H:%M:%S", time.gmtime())
    write(f'[GIN] {moment} | {status} | {seconds * 1000:12.6f}ms |       127.0.0.1 | {method:<8} "{path}"')


def started(card: Card, context: str, models: str, port: int, version: str) -> None:
    """What a server says when it starts."""
    env = (
        f"map[OLLAMA_CONTEXT_LENGTH:{context or 0} OLLAMA_HOST:http://0.0.0.0:{port} OLLAMA_MODELS:{models}]"
    )
    line("INFO", "routes.go:1663", "server config", env=env)
    line("INFO", "routes.go:1718", f"Listening on [::]:{port} (version {version})")
    line("INFO", "runner.go:67", "discovering available GPUs...")
    if card.memory and not card.usable:
        write("ggml was not compiled with any CUDA arch <= 700")
    fields: dict[str, object]
    if card.used:
        fields = {
            "id": card.ident, "filter_id": "", "library": "CUDA", "compute": "7.0", "name": "CUDA0",
            "description": PRODUCT, "libdirs": "ollama,cuda_v12", "driver": DRIVER, "pci_id": "0000:3b:00.0",
            "type": "discrete", "total": human(card.memory), "available": human(card.memory * 0.97),
        }  # fmt: skip
    else:
        fields = {
            "id": "cpu", "library": "cpu", "compute": "", "name": "cpu", "description": "cpu", "libdirs": "ollama",
            "driver": "", "pci_id": "", "type": "", "total": "23.5 GiB", "available": "21.9 GiB",
        }  # fmt: skip
    line("INFO", "types.go:60", "inference compute", **fields)
    line(
        "INFO", "routes.go:1768", "vram-based default context",
        total_vram=human(card.used), default_num_ctx=default_context(card),
    )  # fmt: skip


def default_context(card: Card) -> int:
    """The context of a server that was told none."""
    return 32768 if card.used >= 24 * GIBI else 4096


def loaded(
    card: Card, weights: int, cache: int, on_gpu: float, blocks: int, context: int, parallel: int
) -> None:
    """What a server says when it loads a model; `on_gpu` is the share of it on the GPU."""
    line("INFO", "server.go:431", "starting runner", cmd="/bin/ollama runner --model /models/blobs/sha256-0")
    line("INFO", "server.go:498", "loading model", **{"model layers": blocks + 1})
    shares = (("CUDA0", on_gpu), ("CPU", 1 - on_gpu))
    for what, source, size in (
        ("model weights", "device.go:240", weights),
        ("kv cache", "device.go:251", cache),
    ):
        for device, share in shares:
            if share:
                line("INFO", source, what, device=device, size=human(size * share))
    on = int((blocks + 1) * on_gpu)
    where = f"{on}[ID:{card.ident} Layers:{on}(0..{on - 1})]" if on else "[]"
    text = f"Operation:commit Parallel:{parallel} KvSize:{context * parallel} GPULayers:{where}"
    line("INFO", "runner.go:895", "load", request=f"{{{text}}}")
    if card.used:
        write(f"load_tensors: offloaded {on}/{blocks + 1} layers to GPU")
    line("INFO", "server.go:1388", "llama runner started in 0.54 seconds")


def _quoted(text: str) -> str:
    if text and not set(text) & set(' "=[]'):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
