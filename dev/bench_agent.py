"""What the pull agent itself takes while a model is pulled: `python -m dev.bench_agent`.

The agent only reads progress, so its work grows with the lines of the stream and not with the model. Two runs: one
against the sandbox's stand-in for Ollama, with a line every 60 ms as the real one writes, and one against a stream
that comes as fast as the agent can read it.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from dev import processes

ROOT = Path(__file__).resolve().parent.parent
AGENT = ROOT / "worker" / "pull_agent.py"
GB = 1_000_000_000
MODEL = "llama3.1:8b"
SECONDS = 20.0
"""How long the stand-in takes for its 4.9 GB: some 250 MB/s, a fast line."""

FLOOD_LINES = 200_000
GOAL_MIB, GOAL_CPU_S = 64.0, 1.0


@dataclass(frozen=True)
class Taken:
    """What one run took: bytes of the model, bytes of the stream, seconds on the clock and of CPU, MiB of memory."""

    model: int
    stream: int
    seconds: float
    cpu: float
    memory: float

    @property
    def good(self) -> bool:
        """Whether the goals are met, both counted per GB of model."""
        return self.memory < GOAL_MIB and self.cpu / (self.model / GB) < GOAL_CPU_S

    def line(self, name: str) -> str:
        """The figures for a reader."""
        gigabytes, rate = self.model / GB, self.model / self.seconds / 1e6
        return (
            f"pull agent, {name}: {gigabytes:.1f} GB reported in {self.seconds:.1f} s, "
            f"{rate:.0f} MB/s of model, {self.stream / self.seconds / 1e6:.3f} MB/s of stream, "
            f"{self.cpu / gigabytes:.3f} CPU s per GB, {self.memory:.1f} MiB "
            f"(goal: under {GOAL_CPU_S:.0f} CPU s per GB and {GOAL_MIB:.0f} MiB): {'met' if self.good else 'MISSED'}"
        )


def measure(url: str, model: str = MODEL) -> Taken:
    """Run the agent against a server; its figures without the stream's size. Raises SystemExit where it fails."""
    env = {**os.environ, "AGENT_MODE": "pull", "OLLAMA_URL": url, "MODEL": model}
    begin = time.monotonic()
    with tempfile.TemporaryFile("w+") as out:
        child = subprocess.Popen([sys.executable, "-c", AGENT.read_text()], env=env, stdout=out)
        memory = 0.0
        while (ended := os.wait4(child.pid, os.WNOHANG))[0] == 0:
            # Its ru_maxrss would count the process it was forked from, too.
            memory = max(memory, processes.peak_mib(child.pid))
            time.sleep(0.02)
        _, status, usage = ended
        child.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - begin
        out.seek(0)
        verdict = json.loads(out.readlines()[-1])
    if child.returncode != 0:
        raise SystemExit(f"the pull failed: {verdict}")
    return Taken(verdict["total"], 0, seconds, usage.ru_utime + usage.ru_stime, memory)


def paced() -> Taken:
    """Against the stand-in, at the real one's pace."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log.txt")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        server = processes.spawn(
            [sys.executable, "-m", "sandbox.ollama", "--port", str(port), "--models", folder,
             "--seconds", str(SECONDS)],
            log=log, cwd=ROOT,
        )  # fmt: skip
        try:
            taken = measure(f"http://127.0.0.1:{port}")
        finally:
            processes.stop(server)
    return Taken(taken.model, int(SECONDS / 0.06) * len(_flood(1)), taken.seconds, taken.cpu, taken.memory)


def flooded() -> Taken:
    """Against a server that writes without pause."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Flood)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    taken = measure(f"http://127.0.0.1:{server.server_address[1]}")
    server.shutdown()
    return Taken(taken.model, len(_flood(FLOOD_LINES)), taken.seconds, taken.cpu, taken.memory)


def _flood(lines: int) -> bytes:
    digest = "sha256:" + "a" * 64
    total = FLOOD_LINES * 65536
    return b"".join(
        b'{"status":"pulling %s","digest":"%s","total":%d,"completed":%d}\n'
        % (b"a" * 12, digest.encode(), total, number * 65536)
        for number in range(1, lines + 1)
    )


class _Flood(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    asked = 0

    def do_GET(self) -> None:
        """The list of models."""
        type(self).asked += 1
        model = {"name": MODEL, "size": 1, "modified_at": "2026-01-01T00:00:00Z", "digest": "a" * 64}
        self._send("application/json", json.dumps({"models": [model] if self.asked > 1 else []}).encode())

    def do_POST(self) -> None:
        """A pull, all at once."""
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self._send("application/x-ndjson", _flood(FLOOD_LINES) + b'{"status":"success"}\n')

    def _send(self, kind: str, data: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


def main() -> int:
    """Print both figures; 1 where a goal is missed."""
    runs = {"at Ollama's pace": paced(), "as fast as it reads": flooded()}
    for name, taken in runs.items():
        print(taken.line(name), flush=True)
    return 0 if all(taken.good for taken in runs.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
