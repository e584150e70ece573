"""Dockerfile and docker-compose.yml without an engine: their steps are run here, their commands are looked up."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import get_commands

from dev import stack
from portal import gunicorn_conf

ROOT = Path(__file__).resolve().parent.parent
DOCKERFILE = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
PORTAL = ("migrate", "web", "worker", "watcher", "beat")
PRODUCT = ("portal", "tenants", "gpu", "worker")
PRODUCTION = {
    "DJANGO_SETTINGS_MODULE": "portal.settings",
    "PORTAL_ENV": "production",
    "SECRET_KEY": "k" * 60,
    "ALLOWED_HOSTS": "localhost",
    "DATABASE_URL": "postgres://localhost/none",
    "REDIS_URL": "redis://localhost/0",
}


def steps(kind: str) -> list[str]:
    """The arguments of all instructions of one kind."""
    return re.findall(rf"^{kind} +(.*)$", DOCKERFILE, re.MULTILINE)


def copies() -> list[tuple[list[str], str]]:
    """Sources and target of each COPY from the checkout."""
    split = [shlex.split(step) for step in steps("COPY") if not step.startswith("--from")]
    return [(parts[:-1], parts[-1]) for parts in split]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the image's /app holds: the Dockerfile's own steps, carried out here (all but the installation)."""
    folder = tmp_path_factory.mktemp("image")
    for sources, target in copies():
        for source in sources:
            place = folder / target / Path(source).name if target.endswith("/") else folder / target
            place.parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / source).is_dir():
                ignored = shutil.ignore_patterns("__pycache__", "*.mo")
                shutil.copytree(ROOT / source, place, ignore=ignored)
            else:
                shutil.copy(ROOT / source, place)
    for step in steps("RUN"):
        if "pip install" not in step:
            step = step.replace("/venv/bin/python", sys.executable).replace("/app", str(folder))
            subprocess.run(step, shell=True, cwd=folder, env=bare_environment(), check=True, timeout=300)  # noqa: S602
    return folder


def bare_environment() -> dict[str, str]:
    keep = ("PATH", "HOME", "LANG", "TMPDIR")
    return {name: os.environ[name] for name in keep if name in os.environ}


def in_image(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = bare_environment() | PRODUCTION | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    return subprocess.run(
        arguments, cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False
    )


def test_what_is_copied_exists_and_passes_the_dockerignore() -> None:
    allowed = set((ROOT / ".dockerignore").read_text().splitlines())
    for sources, _target in copies():
        for source in sources:
            assert (ROOT / source).exists()
            assert f"!{source}" in allowed


def test_installation_is_locked_with_hashes() -> None:
    (step,) = [step for step in steps("RUN") if "pip install" in step]
    assert "--require-hashes -r requirements/base.txt" in step
    locked = (ROOT / "requirements" / "base.txt").read_text()
    names = re.findall(r"^[a-z0-9].*", locked, re.MULTILINE)
    assert names
    assert all(line.endswith("\\") for line in names), "a package without a hash"


@pytest.mark.parametrize("name", ["base", "demo", "dev"])
def test_requirement_files_hold_no_address(name: str) -> None:
    assert "://" not in (ROOT / "requirements" / f"{name}.txt").read_text()


def test_the_image_runs_as_a_numbered_user_that_is_not_root() -> None:
    (user,) = steps("USER")
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)


def test_the_image_has_static_files_and_compiled_messages(image: Path) -> None:
    assert (image / "staticfiles" / "staticfiles.json").exists()
    assert (image / "locale" / "de" / "LC_MESSAGES" / "django.mo").exists()
    assert not (image / "dev").exists()


def test_the_image_holds_all_that_web_and_worker_import(image: Path) -> None:
    (command,) = steps("CMD")
    web = in_image(image, *ast.literal_eval(command), "--check-config")
    assert web.returncode == 0, web.stderr
    worker = in_image(image, "celery", "-A", "portal", "report")
    assert worker.returncode == 0, worker.stderr
    tasks = in_image(
        image, sys.executable, "-c", ONLY_WHAT_IS_LOCKED, str(ROOT / "requirements" / "base.txt")
    )
    assert tasks.returncode == 0, tasks.stderr


ONLY_WHAT_IS_LOCKED = """
import re, sys
from importlib.metadata import packages_distributions
from pathlib import Path

locked = set(re.findall(r"^([a-z0-9][a-z0-9.-]*)==", Path(sys.argv[1]).read_text(), re.M))
owners = packages_distributions()
hidden = {
    name for name, packages in owners.items()
    if not {re.sub(r"[-_.]+", "-", package).lower() for package in packages} & locked
}

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if path is None and name in hidden:
            raise ModuleNotFoundError(f"No module named {name!r}, as in the image", name=name)

sys.meta_path.insert(0, Hidden())
import django
django.setup()
import kombu.transport.redis, portal.wsgi, worker.tasks
from portal.celery import app
app.connection().transport
"""
"""Imports what web, worker and beat import, with every package hidden that base.txt does not install."""


def test_the_product_imports_only_what_the_image_installs() -> None:
    locked = set(
        re.findall(r"^([a-z0-9][a-z0-9.-]*)==", (ROOT / "requirements" / "base.txt").read_text(), re.M)
    )
    owners = packages_distributions()
    missing = {}
    for folder in PRODUCT:
        for path in (ROOT / folder).rglob("*.py"):
            for name in imports(ast.parse(path.read_text())):
                packages = {re.sub(r"[-_.]+", "-", owner).lower() for owner in owners.get(name, [])}
                if packages and not packages & locked:
                    missing[f"{path.relative_to(ROOT)}: {name}"] = sorted(packages)
    assert missing == {}


def imports(tree: ast.AST) -> set[str]:
    """Top-level names of the modules that are imported at run time."""
    typing_only = {
        child
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        for child in ast.walk(node)
    }
    found = set()
    for node in ast.walk(tree):
        if node in typing_only:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


def command_of(service: dict[str, Any]) -> list[str]:
    return [str(part) for part in service.get("command") or ast.literal_eval(steps("CMD")[0])]


def test_demo_and_image_serve_with_the_same_threads_and_patience() -> None:
    command = re.search(r"^CMD (\[.*\])", DOCKERFILE, re.MULTILINE)
    assert command
    image, demo = json.loads(command[1]), stack.web(8000)
    assert image[image.index("--config") + 1] == f"python:{gunicorn_conf.__name__}"
    assert demo[demo.index("--keep-alive") + 1] == str(gunicorn_conf.keepalive)
    assert demo[demo.index("--threads") + 1] == image[image.index("--threads") + 1]
    # A page of the portal asks every three seconds.
    assert gunicorn_conf.keepalive > 3


@pytest.mark.parametrize("name", PORTAL)
def test_the_command_of_each_process_exists(name: str) -> None:
    command = command_of(COMPOSE["services"][name])
    assert (Path(sys.executable).parent / command[0]).exists()
    if command[0] == "python":
        assert command[1] == "manage.py"
        assert command[2] in get_commands()
    if command[0] == "celery":
        answer = in_image(ROOT, *command[: 4 if command[1] == "-A" else 2], "--help")
        assert answer.returncode == 0, answer.stderr
        for option in (part for part in command[4:] if part.startswith("--")):
            assert option.partition("=")[0] in answer.stdout


@pytest.mark.parametrize("name", sorted(COMPOSE["services"]))
def test_each_service_is_hardened(name: str) -> None:
    service = COMPOSE["services"][name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert int(service["user"].partition(":")[0]) > 0
    assert "no-new-privileges:true" in service["security_opt"]


@pytest.mark.parametrize("name", sorted(set(COMPOSE["services"]) - {"migrate"}))
def test_each_lasting_service_has_a_health_check(name: str) -> None:
    assert COMPOSE["services"][name]["healthcheck"]["test"]


def test_the_portal_waits_for_its_migrations() -> None:
    for name in set(PORTAL) - {"migrate"}:
        assert COMPOSE["services"][name]["depends_on"]["migrate"] == {
            "condition": "service_completed_successfully"
        }
    assert COMPOSE["services"]["migrate"]["restart"] == "no"


def test_only_worker_and_watcher_get_the_cluster() -> None:
    holders = {
        name for name, service in COMPOSE["services"].items() if "kubeconfig" in service.get("secrets", [])
    }
    assert holders == {"worker", "watcher"}


def test_servers_are_of_the_versions_that_are_supported() -> None:
    assert COMPOSE["services"]["postgres"]["image"] == "postgres:17"
    assert COMPOSE["services"]["redis"]["image"] == "redis:7"


def test_secrets_are_files_that_git_does_not_keep() -> None:
    used = {name for service in COMPOSE["services"].values() for name in service.get("secrets", [])}
    assert used == set(COMPOSE["secrets"])
    assert "/secrets/" in (ROOT / ".gitignore").read_text().splitlines()


@pytest.mark.skipif(
    subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode != 0
    if shutil.which("docker")
    else True,
    reason="no docker compose here",
)
def test_docker_compose_reads_the_file() -> None:
    env = os.environ | {"ALLOWED_HOSTS": "portal.example.org"}
    command = ["docker", "compose", "config", "--quiet"]
    answer = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
