"""Where the real Ollama comes from: built once, kept; without what it needs, a sentence."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dev.controlplane.build import BuildError
from dev.ollama import build


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with the headers in it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (build.cache_folder() / "include").mkdir(parents=True)
    return build.cache_folder()


def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Path:
    """A Go that does what the script says when it is to install."""
    program = tmp_path / "bin" / "go"
    program.parent.mkdir(exist_ok=True)
    program.write_text(
        f"#!/bin/sh\nif [ $1 = env ]; then echo go1.26.0; exit; fi\necho x >> $0.count\n{script}\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr("shutil.which", lambda name: str(program) if name == "go" else f"/usr/bin/{name}")
    return program


def test_it_is_built_once(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = go(tmp_path, monkeypatch, 'echo "$CGO_CXXFLAGS $*" > "$GOBIN/ollama"')
    said: list[str] = []
    first = build.provide(said.append)
    assert first.read_text().startswith(f"-O2 -I{cache}/include install")
    assert first.read_text().rstrip().endswith(f"{build.MODULE}@{build.RELEASE}")
    assert build.provide(said.append) == first
    assert Path(f"{program}.count").read_text() == "x\n"
    assert sum("building Ollama" in line for line in said) == 1


def test_a_failed_build_leaves_nothing(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go(tmp_path, monkeypatch, "echo no such header >&2; exit 1")
    with pytest.raises(BuildError, match="no such header"):
        build.provide(lambda line: None)
    assert sorted(path.name for path in cache.iterdir()) == ["include", "lock"]


@pytest.mark.parametrize(
    ("missing", "words"), [("g++", "there is no g++"), ("apt-get", "no apt-get to fetch")]
)
def test_what_is_missing_is_named(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, missing: str, words: str
) -> None:
    go(tmp_path, monkeypatch, "")
    found = shutil.which
    monkeypatch.setattr("shutil.which", lambda name: None if name == missing else found(name))
    if missing == "apt-get":
        (cache / "include").rmdir()
        monkeypatch.setattr(build, "DEBIAN", {"libnothing-dev": "nothing/at/all.h"})
    with pytest.raises(BuildError, match=words.replace("+", r"\+")):
        build.provide(lambda line: None)
