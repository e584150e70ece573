"""Where the programs of the control plane come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from dev.controlplane import build


def program(path: Path, *lines: str) -> Path:
    """An executable shell script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)
    return path


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no assets."""
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "gpu-slice-portal" / "controlplane"


@pytest.fixture
def assets(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with all four programs."""
    folder = tmp_path / "assets"
    for name in build.NAMES:
        program(folder / name, 'echo "Kubernetes v1.36.0"')
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(folder))
    return folder


@pytest.fixture
def fake_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Go that 'builds' by copying itself to the path after -o."""
    go = program(
        tmp_path / "bin" / "go",
        'if [ "$1" = env ]; then echo go1.26.0; exit; fi',
        'while [ "$1" != -o ]; do shift; done',
        'cp "$0" "$2"; echo built >> "$0.count"',
    )
    monkeypatch.setattr("shutil.which", lambda name: str(go) if name == "go" else None)
    return go


def test_assets_are_used(assets: Path, cache: Path) -> None:
    said: list[str] = []
    found = build.provide(said.append)
    assert found == build.Programs(*(assets / name for name in build.NAMES))
    assert said == []
    assert not cache.exists()


def test_assets_that_are_too_old_are_not(assets: Path, fake_go: Path) -> None:
    program(assets / "kube-apiserver", 'echo "Kubernetes v1.35.9"')
    said: list[str] = []
    found = build.provide(said.append)
    assert found.apiserver.parent != assets
    assert found.etcd == assets / "etcd"
    assert "kube-apiserver in KUBEBUILDER_ASSETS is older than 1.36" in said[0]


def test_what_is_built_is_kept(cache: Path, fake_go: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "_etcd", lambda folder, say: folder / "etcd")
    said: list[str] = []
    first = build.provide(said.append)
    assert first.apiserver.samefile(first.scheduler)
    assert first.manager.name == "kube-controller-manager"
    assert first.apiserver.is_relative_to(cache)
    assert [line.split()[0] for line in said] == ["building", "built"]
    assert build.provide(said.append) == first
    assert len(said) == 2
    assert (fake_go.with_name("go.count")).read_text() == "built\n"


def test_a_failed_build_says_why_and_leaves_nothing(cache: Path, fake_go: Path) -> None:
    program(fake_go, 'if [ "$1" = env ]; then echo go1.26.0; exit; fi', "echo no space left; exit 1")
    with pytest.raises(build.BuildError, match="no space left"):
        build.provide(lambda line: None)
    assert [path.name for path in cache.iterdir()] == ["lock"]


def test_an_old_go_is_replaced_by_the_wheel(
    cache: Path, fake_go: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(fake_go, "echo go1.25.9")
    monkeypatch.setattr(build, "_go_release", lambda go: (1, 25))
    wheel = cache / "wheel"
    program(wheel / "go" / "bin" / "go")
    program(wheel / "go" / "pkg" / "tool" / "compile").chmod(0o644)
    monkeypatch.setattr(build, "_wheel", lambda folder, requirements, say: wheel)
    said: list[str] = []
    assert build._go(cache, said.append) == wheel / "go" / "bin" / "go"
    assert said == ["  no Go 1.26 on this machine"]
    assert (wheel / "go" / "pkg" / "tool" / "compile").stat().st_mode & 0o111


def test_without_pip_and_uv_it_says_so(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.mkdir(parents=True)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr(build, "_uv", lambda: None)
    with pytest.raises(build.BuildError, match="neither pip nor uv"):
        build._etcd(cache, lambda line: None)
