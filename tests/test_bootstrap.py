"""dev/bootstrap.sh finds a Python by trying; dev/install.py knows when there is something to do."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dev import install

ROOT = Path(__file__).resolve().parent.parent
REAL = Path(sys.base_prefix) / "bin" / "python3"
REFUSES = "#!/bin/sh\necho 'pyenv: python: command not found' >&2\nexit 127\n"
WITHOUT_VENV = f'#!/bin/sh\ncase "$2" in *ensurepip*) exit 1;; esac\nexec {REAL} "$@"\n'
WORKS = f'#!/bin/sh\nexec {REAL} "$@"\n'
UV = f'#!/bin/sh\n[ "$1 $2" = "python find" ] && echo {REAL}\n'


class Machine:
    """A checkout with a PATH and a HOME of its own; instead of installing, it tells which Python was found."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.path = folder / "bin"
        self.checkout = folder / "a checkout"
        (self.checkout / "dev").mkdir(parents=True)
        self.path.mkdir()
        shutil.copy(ROOT / "dev" / "bootstrap.sh", self.checkout / "dev")
        (self.checkout / "dev" / "install.py").write_text("import sys; print('found', sys.argv[1:])\n")
        for tool in ("sh", "dirname"):
            (self.path / tool).symlink_to(str(shutil.which(tool)))

    def program(self, name: str, text: str, folder: Path | None = None) -> None:
        path = (folder or self.path) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def start(self, **env: str) -> subprocess.CompletedProcess[str]:
        command = [self.path / "sh", self.checkout / "dev" / "bootstrap.sh", "demo"]
        env = {"PATH": str(self.path), "HOME": str(self.home)} | env
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize("name", ["python3.14", "python3.13", "python3.12", "python3"])
def test_the_first_on_the_path_that_works_is_taken(machine: Machine, name: str) -> None:
    machine.program(name, WORKS)
    assert machine.start().stdout == "found ['demo']\n"


def test_shims_that_refuse_are_passed_over_for_pyenvs_versions(machine: Machine) -> None:
    for name in ("python3.14", "python3.13", "python3.12", "python3"):
        machine.program(name, REFUSES)
    machine.program("python", REFUSES, machine.home / ".pyenv/versions/3.9.1/bin")
    machine.program("python", WORKS, machine.home / ".pyenv/versions/3.13.0/bin")
    assert machine.start().stdout == "found ['demo']\n"


def test_uv_is_asked_last(machine: Machine) -> None:
    machine.program("python3", REFUSES)
    machine.program("uv", UV)
    assert machine.start().stdout == "found ['demo']\n"


def test_without_any_a_sentence_says_what_is_needed(machine: Machine) -> None:
    machine.program("python3", REFUSES)
    answer = machine.start()
    assert answer.returncode == 1
    assert answer.stderr.startswith("Python 3.12 or newer is needed and was not found")


def test_a_python_that_cannot_make_environments_is_named_with_its_package(machine: Machine) -> None:
    machine.program("python3.13", WITHOUT_VENV)
    answer = machine.start()
    assert answer.returncode == 1
    assert "python3.13 is new enough but cannot make environments" in answer.stderr
    assert "python3.13-venv" in answer.stderr


def test_a_python_without_venv_is_passed_over_for_one_with_it(machine: Machine) -> None:
    machine.program("python3.13", WITHOUT_VENV)
    machine.program("python3", WORKS)
    assert machine.start().stdout == "found ['demo']\n"


def test_a_named_python_is_taken_or_refused(machine: Machine) -> None:
    machine.program("mine", WORKS)
    machine.program("old", REFUSES)
    assert machine.start(PYTHON=str(machine.path / "mine")).stdout == "found ['demo']\n"
    answer = machine.start(PYTHON=str(machine.path / "old"))
    assert answer.returncode == 1
    assert "is no Python 3.12 or newer" in answer.stderr


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A made-up .venv in which `demo` is installed."""
    (tmp_path / "requirements").mkdir()
    for kind in ("demo", "dev"):
        (tmp_path / "requirements" / f"{kind}.txt").write_text(f"{kind}==1\n")
    monkeypatch.setattr(install, "ROOT", tmp_path)
    monkeypatch.setattr(install, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(install, "HALF_MADE", tmp_path / ".venv" / ".half-made")
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / ".demo-installed").write_text(install.fingerprint("demo"))
    return tmp_path


def test_a_complete_environment_needs_nothing(environment: Path) -> None:
    assert install.installed("demo")
    assert not install.installed("dev")


def test_what_the_tests_need_holds_what_the_demo_needs(environment: Path) -> None:
    (environment / ".venv" / ".demo-installed").unlink()
    (environment / ".venv" / ".dev-installed").write_text(install.fingerprint("dev"))
    assert install.installed("demo")


def test_a_change_of_the_locked_file_is_noticed(environment: Path) -> None:
    (environment / "requirements" / "demo.txt").write_text("demo==2\n")
    assert not install.installed("demo")


def test_an_interrupted_making_is_noticed(environment: Path) -> None:
    (environment / ".venv" / ".half-made").touch()
    assert not install.installed("demo")
