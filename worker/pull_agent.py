"""Fetches, lists, deletes or checks a model by Ollama's HTTP API; runs in a Job beside the server it speaks to.

Standard library alone and Python 3.9 or newer, because it is handed to a plain image with `python -c`. Configured by
environment: AGENT_MODE (pull, list, delete, check), OLLAMA_URL, MODEL, INSECURE (1: the registry speaks plain HTTP),
START_SECONDS (how long a server may take to answer at all), STALL_SECONDS, STALL_LIMIT_SECONDS, DEADLINE_SECONDS.

Prints JSON lines; the last is the verdict, which goes to the termination log as well. Exit code 0: done; 1: worth
another try; 2: not worth one. No proxy variable is honoured: the server is in the same namespace.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import queue
import re
import signal
import socket
import sys
import threading
import time
import urllib.parse
from typing import Any, NoReturn

# In order; the first that is found in the lower-case text counts. The last column says whether to try again.
ERRORS = (
    (r"no space left on device|disk quota exceeded", "volume_full", "", "no"),
    (r": permission denied|read-only file system", "failed", "volume_not_writable", "no"),
    (r"digest mismatch", "digest_mismatch", "", "once"),
    (r"valid quantization", "unknown_model", "unknown_tag", "no"),
    (r"invalid model name|^name .* is invalid", "bad_name", "", "no"),
    (r"file does not exist|^model .* not found|manifest: 404\b", "unknown_model", "", "no"),
    (r"requires a newer version|manifest: 412\b", "failed", "needs_newer_ollama", "no"),
    (r"realm host|unauthorized|access denied|manifest: 40[13]\b", "no_access", "", "no"),
    (r"cuda.*out of memory|cudamalloc|cuda\d* buffer", "out_of_memory", "gpu", "no"),
    (r"more system memory|cpu buffer|cannot allocate memory|signal: killed", "out_of_memory", "host", "no"),
    (r"max retries exceeded|context canceled", "interrupted", "", "yes"),
    (r"invalid character", "failed", "registry_page", "no"),
    (r"like a tls handshake|http response to https|insecure protocol", "failed", "registry_protocol", "no"),
    (r"x509|certificate", "failed", "registry_certificate", "no"),
    (r"no such host", "failed", "registry_name", "once"),
    (r"manifest: 429\b|too many requests", "failed", "registry_busy", "yes"),
    (r"manifest: 5\d\d\b", "failed", "registry_error", "yes"),
    (r"connection refused|timeout|no route to host|unreachable|deadline exceeded", "failed", "registry_down", "yes"),
    (r"unexpected eof|connection reset", "interrupted", "", "yes"),
    (r"does not support generate", "failed", "no_generate", "no"),
    (r"runner has unexpectedly stopped|runner process has terminated", "failed", "runner_stopped", "no"),
    (r"unable to load model|error loading model|file magic|(unsupported|unknown) model", "model_broken", "", "no"),
)  # fmt: skip
VERIFY_BYTES_PER_SECOND = (
    10_000_000  # the slowest volume waited for while the server, silent, reads all again
)
LONGEST = 1 << 24
CHECK_TOKENS = 16
ADDRESS = re.compile(
    r"\[?(?:\d{1,3}(?:\.\d{1,3}){3}|(?:[0-9a-fA-F]{0,4}:){2,7}[0-9a-fA-F]{0,4})\]?(?::\d+)?(?!\w)"
)
HEADERS = {"Content-Type": "application/json", "Connection": "close"}
BROKEN = (OSError, http.client.HTTPException)


class Ended(Exception):
    """The work is over, well or not; holds what the verdict says."""

    def __init__(
        self, outcome: str, detail: str = "", cause: str = "", again: str = "no", digest: str = ""
    ) -> None:
        super().__init__(outcome)
        self.outcome, self.detail, self.cause, self.again, self.digest = outcome, detail, cause, again, digest


class Progress:
    """Sums up a stream's layers. Counts the highest `completed` of each, since a retry begins a part again at 0."""

    def __init__(self, attempt: int = 1) -> None:
        self.attempt, self.step, self.percent, self.fetched = attempt, "connecting", 0.0, 0
        self.grew = time.monotonic()
        self.highest: dict[str, int] = {}
        self.totals: dict[str, int] = {}
        self.history = [(self.grew, 0)]

    def take(self, line: dict[str, Any], at: float) -> None:
        """Note a line of the stream; a missing `completed` is 0."""
        status = line.get("status")
        if isinstance(status, str) and status:
            step = status if status == "pulling manifest" else plain(status).partition(" ")[0][:40]
            if step != self.step:
                self.step, self.grew = step, at
        digest = line.get("digest")
        if not isinstance(digest, str):
            return
        completed, known = whole(line.get("completed")), self.highest.get(digest)
        if known is None or completed > known:
            # What was there before the first line was not fetched now, and says nothing of the speed.
            self.fetched += 0 if known is None else completed - known
            self.highest[digest], self.grew = completed, at
        self.totals[digest] = max(whole(line.get("total")), self.totals.get(digest, 0), self.highest[digest])

    def sums(self) -> dict[str, int]:
        """Bytes there and bytes known to be needed, over all layers seen."""
        return {"completed": sum(self.highest.values()), "total": sum(self.totals.values())}

    def report(self, at: float) -> dict[str, object]:
        """The fields of a progress line; asked once a second."""
        self.history = [entry for entry in self.history if at - entry[0] <= 10.0] or self.history[-1:]
        since, before = self.history[0]
        speed = int((self.fetched - before) / (at - since)) if at > since else 0
        self.history.append((at, self.fetched))
        sums = self.sums()
        share = round(100.0 * sums["completed"] / sums["total"], 1) if sums["total"] else 0.0
        # A later layer makes the whole larger. What was told is not taken back, and 100 is for the end alone.
        self.percent = max(self.percent, min(99.0, share))
        eta = int((sums["total"] - sums["completed"]) / speed) if speed else None
        return {
            "step": self.step, **sums, "layers": len(self.totals), "speed": speed, "eta_s": eta,
            "percent": self.percent, "attempt": self.attempt,
        }  # fmt: skip


class Agent:
    """One run of the agent, set up by the environment. Times in seconds."""

    def __init__(self, env: dict[str, str]) -> None:
        self.mode, self.model = env.get("AGENT_MODE", "pull"), env.get("MODEL", "")
        self.insecure = env.get("INSECURE") == "1"
        url = urllib.parse.urlsplit(env.get("OLLAMA_URL", ""))
        self.host, self.port = url.hostname or "", url.port or 80
        self.stall = float(env.get("STALL_SECONDS", "60"))
        self.stall_limit = float(env.get("STALL_LIMIT_SECONDS", "600"))
        self.patience = time.monotonic() + float(env.get("START_SECONDS", "60"))
        self.allowed = float(env.get("DEADLINE_SECONDS", "21600"))
        self.deadline = time.monotonic() + self.allowed
        self.progress = Progress()

    def run(self) -> NoReturn:
        """Do what the mode says. Raises Ended."""
        if self.mode == "check":
            self.check()
        if self.mode == "delete":
            self.ask("DELETE", "/api/delete", {"model": self.model})
        elif self.mode == "pull":
            before = self.digest_in(self.models())
            try:
                self.pull()
            except Ended as end:
                if end.again != "once":
                    raise
                time.sleep(2.0)
                self.progress = Progress(2)
                self.pull()
        elif self.mode != "list":
            raise Ended("failed", "unknown AGENT_MODE", "agent")
        models = self.models()
        say("models", models=models)
        if self.mode != "pull":
            raise Ended("done")
        digest = self.digest_in(models)
        if not re.fullmatch(r"[0-9a-f]{64}", digest):
            raise Ended("failed", "pulled, and yet the server does not list the model", "not_listed", "yes")
        raise Ended("already_there" if digest == before else "done", digest=digest)

    def connect(self) -> http.client.HTTPConnection:
        """A connection to the server. One that has never answered may still be starting, and is waited for."""
        while True:
            connection = http.client.HTTPConnection(self.host, self.port, timeout=5)
            try:
                connection.connect()
            except OSError as error:
                if time.monotonic() >= self.patience:
                    raise Ended("unreachable", type(error).__name__, again="yes") from error
                time.sleep(min(1.0, self.patience - time.monotonic()))
            else:
                self.patience = 0.0
                return connection

    def send(self, method: str, path: str, body: object, timeout: float) -> http.client.HTTPResponse:
        """Send a request; the answer, begun within `timeout`, is Ollama's and good. Raises Ended."""
        connection = self.connect()
        left = max(1.0, self.deadline - time.monotonic())
        (sock := connection.sock).settimeout(min(timeout, left))
        try:
            connection.request(method, path, None if body is None else json.dumps(body), HEADERS)
            response = connection.getresponse()
            text = b"" if response.status == 200 else response.read(LONGEST)
        except BROKEN as error:
            raise self.broken(error, f"{method} {path}") from error
        kind = response.getheader("Content-Type", "").partition(";")[0].strip().lower()
        if response.status == 200 and kind in ("", "application/json", "application/x-ndjson"):
            with contextlib.suppress(OSError):  # an empty answer has closed it
                sock.settimeout(left)
            return response
        if response.status == 500 and not text and path == "/api/generate":
            raise Ended("model_broken", "HTTP 500 without a word: the weights cannot be read")
        try:
            said = json.loads(text)["error"] if kind == "application/json" else None
        except (ValueError, KeyError, TypeError):
            said = None
        if isinstance(said, str):
            raise explained(said, "yes" if response.status >= 500 else "no")
        # Whoever answered, their words are not ours to pass on.
        raise Ended("not_ollama", f"HTTP {response.status} {plain(kind)[:60]}", again="yes")

    def broken(self, error: Exception, what: str) -> Ended:
        """The verdict on an answer that did not come, or not whole."""
        if isinstance(error, socket.timeout) and time.monotonic() >= self.deadline:
            return Ended("time_limit", f"no answer to {what} in time")
        if isinstance(error, (OSError, http.client.IncompleteRead)):
            return Ended("interrupted", f"no answer to {what}", again="yes")
        return Ended("not_ollama", f"{what} was not answered in HTTP", again="yes")

    def ask(self, method: str, path: str, body: object = None, timeout: float = 60.0) -> dict[str, Any]:
        """The JSON object of an answer, {} for an empty one. Raises Ended."""
        response = self.send(method, path, body, timeout)
        try:
            text = response.read(LONGEST)
        except BROKEN as error:
            raise self.broken(error, f"{method} {path}") from error
        return parsed(text) if text else {}

    def models(self) -> list[dict[str, object]]:
        """What is on the volume: name, size in bytes, modified_at, digest."""
        keys = ("name", "size", "modified_at", "digest")
        return [{key: model.get(key) for key in keys} for model in objects(self.ask("GET", "/api/tags"))]

    def digest_in(self, models: list[dict[str, object]]) -> str:
        """The digest under which the model is listed, "" where it is not."""
        same = [model for model in models if canonical(str(model["name"])) == canonical(self.model)]
        return str(same[0]["digest"]) if same else ""

    def pull(self) -> None:
        """Pull once; returns after `success`. Raises Ended."""
        plain_http = self.insecure and "://" not in self.model
        body = {"model": "http://" * plain_http + self.model, "insecure": self.insecure, "stream": True}
        lines: queue.Queue[list[bytes] | None] = queue.Queue(64)
        # A silent server must not keep us from speaking, and a socket cannot be read again after a timeout.
        response = self.send("POST", "/api/pull", body, 60.0)
        threading.Thread(target=read, args=(response, lines), daemon=True).start()
        told = 0.0
        while True:
            at = time.monotonic()
            if at - told >= 1.0:
                self.tell(at)
                told = at
            try:
                batch = lines.get(timeout=max(0.0, told + 1.0 - at))
            except queue.Empty:
                continue
            if batch is None:
                raise Ended("interrupted", "the stream ended without success", again="yes")
            for text in batch:
                line = parsed(text)
                if "error" in line:
                    raise explained(str(line["error"]), "yes")
                if line.get("status") == "success":
                    return
                self.progress.take(line, time.monotonic())

    def tell(self, at: float) -> None:
        """Print where the pull stands. Raises Ended where nothing has come for too long."""
        progress = self.progress
        still = at - progress.grew
        fetching = progress.step in ("connecting", "pulling manifest", "pulling")
        if fetching and still >= self.stall:
            say("stall", stalled_s=int(still), **progress.report(at))
        else:
            say("progress", **progress.report(at))
        slack = 0.0 if fetching else progress.sums()["total"] / VERIFY_BYTES_PER_SECOND
        if still >= self.stall_limit + slack:
            raise Ended("interrupted", f"nothing came for {int(still)} s", "stalled", "yes")
        if at >= self.deadline:
            raise Ended("time_limit", f"not done after {int(self.allowed)} s")

    def check(self) -> NoReturn:
        """Load the model, let it say a few words, and ask where it runs."""
        body = {
            "model": self.model,
            "prompt": "Hello",
            "stream": False,
            "options": {"num_predict": CHECK_TOKENS},
        }
        answer = self.ask("POST", "/api/generate", body, self.allowed)
        seconds, count = whole(answer.get("eval_duration")) / 1e9, whole(answer.get("eval_count"))
        running = objects(self.ask("GET", "/api/ps"))
        same = [one for one in running if canonical(str(one.get("name"))) == canonical(self.model)]
        loaded = same[0] if same else {}
        say(
            "check",
            model=self.model,
            **{key: loaded.get(key) for key in ("size", "size_vram", "context_length")},
            tokens_per_second=round(count / seconds, 1) if seconds else None,
            eval_count=count,
            load_seconds=round(whole(answer.get("load_duration")) / 1e9, 2),
        )
        raise Ended("done", digest=str(loaded.get("digest", "")))


def read(response: http.client.HTTPResponse, lines: queue.Queue[list[bytes] | None]) -> None:
    """Put the lines of the stream, by whatever pieces it comes, and None at its end."""
    rest = b""
    with contextlib.suppress(*BROKEN, ValueError):  # whatever ends it, success alone makes it a good end
        for piece in iter(lambda: response.read1(65536), b""):
            *found, rest = (rest + piece).split(b"\n")
            if len(rest) > LONGEST:
                found, rest = [rest], b""
            if found := [line for line in found if line.strip()]:
                lines.put(found)
    if rest.strip() and not (rest.startswith(b"{") and not rest.rstrip().endswith(b"}")):
        lines.put([rest])  # a last line without LF counts, the first half of one does not
    lines.put(None)


def objects(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """The entries of an answer's `models`."""
    models = answer.get("models")
    return [one for one in models if isinstance(one, dict)] if isinstance(models, list) else []


def parsed(text: bytes) -> dict[str, Any]:
    """A JSON object of the server. Raises Ended where it is none."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise Ended("not_ollama", "the answer is no JSON object", again="yes")
    return found


def explained(text: str, again: str) -> Ended:
    """The verdict on an error of Ollama; `again` counts where it is none of those known."""
    for pattern, outcome, cause, retry in ERRORS:
        if re.search(pattern, text.lower()):
            return Ended(outcome, text, cause, retry)
    return Ended("failed", text, again=again)


def canonical(name: str) -> str:
    """A model's name as names are compared: lower case, with tag, without scheme and without what is the default."""
    name = name.lower().rpartition("://")[2]
    name += "" if ":" in name.rpartition("/")[2] else ":latest"
    for default in ("registry.ollama.ai/", "library/"):
        name = name[len(default) :] if name.startswith(default) else name
    return name


def plain(text: str) -> str:
    """Text without markup, control characters and addresses of machines."""
    text = ADDRESS.sub("[…]", re.sub(r"<[a-zA-Z/!?][^>]*(>|$)", " ", text))
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def whole(value: object) -> int:
    """A count that the server gave; 0 for what is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def say(kind: str, **fields: object) -> str:
    """Print a line and return it."""
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    line = json.dumps({"v": 1, "at": at, "kind": kind, **fields}, ensure_ascii=False)
    with contextlib.suppress(OSError):  # nobody reads any more; exit code and termination log still tell
        sys.stdout.buffer.write(line.encode() + b"\n")
        sys.stdout.buffer.flush()
    return line


def told_to_end(*_: object) -> NoReturn:
    """The pod is to go: SIGTERM."""
    raise Ended("interrupted", "the agent was told to end", "terminated", "yes")


def main() -> int:
    """Run as the environment says; the exit code tells whether another try is worth it."""
    progress = Progress()
    try:
        signal.signal(signal.SIGTERM, told_to_end)
        agent = Agent(dict(os.environ))
        try:
            agent.run()
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            progress = agent.progress
    except Ended as found:
        end = found
    except Exception as error:
        end = Ended("failed", f"{type(error).__name__}: {error}", "agent")
    retry = end.again == "yes" or (end.again == "once" and progress.attempt < 2)
    verdict = {"outcome": end.outcome, "cause": end.cause, "detail": plain(end.detail)[:300], "retry": retry}
    line = say("verdict", **verdict, **progress.sums(), digest=end.digest)
    note = os.environ.get("TERMINATION_LOG", "/dev/termination-log")
    with contextlib.suppress(OSError):  # made by the kubelet, not by us
        os.write(os.open(note, os.O_WRONLY | os.O_TRUNC), line.encode())
    return 0 if end.outcome in ("done", "already_there") else 1 if retry else 2


if __name__ == "__main__":
    sys.exit(main())
