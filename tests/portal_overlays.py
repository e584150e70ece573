"""The overlays of deploy/portal as `kubectl kustomize` builds them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).resolve().parent.parent / "deploy"
OVERLAYS = ("base", "overlays/production", "overlays/evaluation")
SECRETS = "secret_key=a\ndatabase_url=b\nredis_url=c\npostgres_password=d\nmetrics_token=e\n"
KUBECTL = Path(sys.executable).with_name("kubectl")

type Doc = dict[str, Any]


def checkout(folder: Path) -> Path:
    """A copy of deploy/ in which the operator has made secrets.env; returns it."""
    copy = folder / "deploy"
    shutil.copytree(DEPLOY, copy, ignore=shutil.ignore_patterns("secrets.env"))
    (copy / "portal" / "overlays" / "evaluation" / "secrets.env").write_text(SECRETS)
    return copy


def build(folder: Path) -> list[Doc]:
    """What `kubectl kustomize` gives."""
    answer = subprocess.run([KUBECTL, "kustomize", folder], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    return [document for document in yaml.safe_load_all(answer.stdout) if document]


def pod_of(document: Doc) -> Doc | None:
    """The pod spec of a workload."""
    found: Doc | None = document.get("spec", {}).get("template", {}).get("spec")
    return found
