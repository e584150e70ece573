"""Provides a real Ollama server: `python -m dev.ollama.build`.

Built with Go and a C++ compiler from its module, for the CPU alone. The module lacks three headers: two come from
Debian's packages, one from the source package of a Python binding. Takes some minutes on two cores, once; the result
is kept outside the checkout.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from dev.controlplane import build as controlplane
from dev.controlplane.build import BuildError, find_go, run_go

HERE = Path(__file__).resolve().parent
MODULE = "github.com/ollama/ollama"
RELEASE = "v0.17.4"
GO = (1, 24)
DEBIAN = {"nlohmann-json3-dev": "nlohmann/json.hpp", "libstb-dev": "stb/stb_image.h"}
"""Debian's packages and a header of each, below an include folder."""

_FLAGS = ("-trimpath", "-ldflags", "-s -w")
_LINE = "  {}".format


def cache_folder() -> Path:
    """The folder outside the checkout in which headers and server are kept."""
    return controlplane.cache_folder().parent / "ollama"


def provide(say: Callable[[str], None] = print) -> Path:
    """The program `ollama`, built where need be. Raises BuildError."""
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    sources = (RELEASE, *DEBIAN, *_FLAGS, (HERE / "miniaudio.txt").read_text())
    recipe = hashlib.sha256("\0".join(sources).encode()).hexdigest()
    program = folder / f"{RELEASE}-{recipe[:12]}" / "ollama"
    with (folder / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two runs at once: the second waits and finds the work done
        if not program.exists():
            fresh = Path(tempfile.mkdtemp(dir=folder))
            try:
                _build(find_go(GO, folder, say), _headers(folder, say), fresh, say)
                fresh.rename(program.parent)
            finally:
                shutil.rmtree(fresh, ignore_errors=True)
    return program


def _headers(folder: Path, say: Callable[[str], None]) -> Path:
    """An include folder with the headers that the module lacks."""
    target = folder / "include"
    if target.exists():
        return target
    fresh = Path(tempfile.mkdtemp(dir=folder))
    try:
        include = fresh / "include"
        include.mkdir()
        for package, header in DEBIAN.items():
            place = _debian(fresh, package, header, say)
            shutil.copytree(place / Path(header).parent, include / Path(header).parent)
        _miniaudio(fresh, include, say)
        include.rename(target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return target


def _debian(folder: Path, package: str, header: str, say: Callable[[str], None]) -> Path:
    """An include folder with the header: the machine's own, else that of the package, unpacked and not installed."""
    if Path("/usr/include", header).exists():
        return Path("/usr/include")
    say(_LINE(f"fetching {package}"))
    if shutil.which("apt-get") is None:
        raise BuildError(f"{header} is not in /usr/include, and there is no apt-get to fetch {package} with.")
    command = ["apt-get", "download", "-qq", package]
    answer = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if answer.returncode != 0 and os.geteuid() == 0:  # a fresh machine has no lists of packages yet
        subprocess.run(["apt-get", "update", "-qq"], capture_output=True, check=False)
        answer = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    found = sorted(folder.glob(f"{package}_*.deb"))
    if not found:
        raise BuildError(
            f"{package} cannot be fetched; installing it mends this.\n{answer.stderr.strip()[-2000:]}"
        )
    subprocess.run(["dpkg-deb", "-x", found[0], folder / package], check=True)
    return folder / package / "usr" / "include"


def _miniaudio(folder: Path, include: Path, say: Callable[[str], None]) -> None:
    say(_LINE("fetching miniaudio"))
    answer = subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
         "--no-binary", "miniaudio", "--require-hashes", "-r", HERE / "miniaudio.txt", "--dest", folder],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    archives = sorted(folder.glob("miniaudio-*.tar.gz"))
    if not archives:
        raise BuildError(f"miniaudio cannot be fetched:\n{answer.stderr.strip()[-2000:]}")
    with tarfile.open(archives[0]) as archive:
        archive.extractall(folder / "source", filter="data")
    header = next((folder / "source").rglob("miniaudio/miniaudio.h"))
    (include / "miniaudio").mkdir()
    shutil.copy(header, include / "miniaudio")


def _build(go: Path, include: Path, folder: Path, say: Callable[[str], None]) -> None:
    if shutil.which("g++") is None:
        raise BuildError("Ollama cannot be built: there is no g++.")
    say(_LINE(f"building Ollama {RELEASE} with {go}: three to seven minutes on two cores, once"))
    env = os.environ | {
        "CGO_ENABLED": "1",
        "CGO_CFLAGS": "-O2",
        "CGO_CXXFLAGS": f"-O2 -I{include}",
        "GOBIN": str(folder),
        "GOFLAGS": "",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }
    run_go([str(go), "install", *_FLAGS], f"{MODULE}@{RELEASE}", "Ollama", folder, env, say)


def main() -> int:
    """Provide the server, say where it is and how long it took."""
    begin = time.monotonic()
    print("Ollama:", flush=True)
    try:
        program = provide(lambda line: print(line, flush=True))
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    print(_LINE(program))
    print(f"Ollama ready after {time.monotonic() - begin:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
