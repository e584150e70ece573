"""README.md says what is so: variables, commands, files."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
SETTINGS = (ROOT / "portal" / "settings.py").read_text()


def test_the_table_of_variables_is_that_of_the_settings() -> None:
    read = set(re.findall(r'(?:\benv\.\w+|\bsecret|\burl)\(\s*"([A-Z][A-Z_]+)"', SETTINGS))
    table = README.partition("## Configuration")[2].partition("## How it works")[0]
    rows = re.findall(r"^\| ((?:`[A-Z_]+`(?:, )?)+) \|", table, re.MULTILINE)
    told = {name for row in rows for name in re.findall(r"`([A-Z_]+)`", row)}
    assert told == read


def test_each_make_command_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    told = set(re.findall(r"make ([a-z][a-z-]*)", README))
    assert "demo" in told
    assert told <= targets


def test_continuous_integration_runs_what_the_readme_says() -> None:
    run = set(re.findall(r"^make ([a-z-]+)$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE))
    assert run == {"test", "test-real"}
    assert run <= set(re.findall(r"^make ([a-z-]+)$", README, re.MULTILINE))


def test_each_folder_and_picture_it_names_exists() -> None:
    named = re.findall(r"^\| `([a-z]+/)` \|", README, re.MULTILINE) + re.findall(r"\]\(([^):#]+)\)", README)
    assert "gpu/" in named
    assert [name for name in named if not (ROOT / name).exists()] == []
