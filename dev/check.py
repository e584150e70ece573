"""Everything `make test` checks, in one run: linters, types, import rules, migrations, catalogues, tests.

    python -m dev.check            all
    python -m dev.check --static   without the tests

Goes on after a failure, so that one run tells all of them. The exit code is 0 only if everything passed. The last
line has the form "N passed, N failed, N skipped".
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path

from dev import browser, messages, services, throwaway

ROOT = Path(__file__).resolve().parent.parent
ARTEFACTS = ROOT / "artefacts"
PYTHON = sys.executable
PRODUCTION = {
    "PORTAL_ENV": "production",
    "SECRET_KEY": secrets.token_urlsafe(60),
    "ALLOWED_HOSTS": "portal.example.org",
}
NO_TESTS = 5
"""pytest's exit code for a selection that holds no test."""


@dataclass(frozen=True)
class Step:
    """One command of the run. `output` names a file for the closing counts of pytest."""

    name: str
    command: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)
    counts: Path | None = None


def _python(name: str, *arguments: str, env: dict[str, str] | None = None) -> Step:
    return Step(name, (PYTHON, *arguments), env or {})


def _pytest(name: str, counts: str, *arguments: str) -> Step:
    path = ARTEFACTS / counts
    return Step(name, (PYTHON, "-m", "pytest", "-q", f"--junit-xml={path}", *arguments), counts=path)


STATIC = (
    _python("lint", "-m", "ruff", "check", "--output-format=concise", "."),
    _python("format", "-m", "ruff", "format", "--check", "--output-format=concise", "."),
    _python("types", "-m", "mypy", "."),
    _python(
        "import rules", "-c", "from importlinter.cli import lint_imports; raise SystemExit(lint_imports())"
    ),
    _python("migrations", "manage.py", "makemigrations", "--check", "--dry-run"),
    _python("deploy check", "manage.py", "check", "--deploy", "--fail-level", "WARNING", env=PRODUCTION),
    _python("message catalogues", "-m", "dev.messages", "check"),
)
TESTS = (
    _pytest(
        "tests", "tests.xml", "-n", "2", "-m", "not alone and not browser and not real", "--durations=10"
    ),
    _pytest("faults", "faults.xml", "-m", "alone and not browser and not real"),
    _pytest(
        "browser tests",
        "browser.xml",
        "-m",
        "browser and not real",
        "--screenshot=only-on-failure",
        "--output=artefacts/playwright",
    ),
)


def run(step: Step, env: dict[str, str]) -> bool:
    """Run one step with its output on the terminal; whether it passed."""
    print(f"\n== {step.name}", flush=True)
    started = time.monotonic()
    code = subprocess.run(step.command, cwd=ROOT, env=env | step.env, check=False).returncode
    passed = code == 0 or (step.counts is not None and code == NO_TESTS)
    print(f"== {step.name}: {'ok' if passed else 'FAILED'}, {time.monotonic() - started:.0f} s", flush=True)
    return passed


def counts(paths: list[Path]) -> tuple[int, int, int]:
    """Passed, failed and skipped tests of pytest's result files; a run that left no file counts as one failure."""
    passed = failed = skipped = 0
    for path in paths:
        if not path.exists():
            failed += 1
            continue
        for suite in ElementTree.parse(path).iter("testsuite"):  # noqa: S314 (pytest has just written it)
            total, bad, left = (
                int(suite.get("tests", 0)),
                int(suite.get("failures", 0)) + int(suite.get("errors", 0)),
                int(suite.get("skipped", 0)),
            )
            passed, failed, skipped = passed + total - bad - left, failed + bad, skipped + left
    return passed, failed, skipped


def main(arguments: list[str]) -> int:
    """See the module."""
    steps = list(STATIC) if "--static" in arguments else [*STATIC, *TESTS]
    results = [step.counts for step in steps if step.counts]
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    if results:
        shutil.rmtree(ARTEFACTS, ignore_errors=True)
    ARTEFACTS.mkdir(exist_ok=True)
    messages.compile_catalogues()
    folder = throwaway.make(ROOT / ".data" / "test")
    try:
        env = dict(os.environ)
        if results:
            env["CHROMIUM"] = browser.find_or_install()
        with services.start(folder.path, throw_away=True) as started:
            env |= {"PORTAL_ENV": "test"} | started.environment()
            failed = [step.name for step in steps if not run(step, env)]
    except (services.ServiceError, browser.NoBrowser) as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(folder.path, ignore_errors=True)
    print(f"\nFAILED: {', '.join(failed)}" if failed else "\nEverything passed.")
    if results:
        passed, bad, skipped = counts(results)
        print(f"{passed} passed, {bad} failed, {skipped} skipped", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
