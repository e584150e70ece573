"""Makes .venv hold exactly what requirements/KIND.txt locks. Standard library only: it runs before anything is there.

python dev/install.py demo|dev            creates, completes or mends .venv
python dev/install.py --check demo|dev    exit code 0 when there is nothing to do
"""

from __future__ import annotations

import fcntl
import hashlib
import re
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
HALF_MADE = VENV / ".half-made"
LOG = ROOT / ".data" / "logs" / "install.log"


def fingerprint(kind: str) -> str:
    """What the installed set depends on: the locked file and the Python."""
    locked = (ROOT / "requirements" / f"{kind}.txt").read_bytes()
    return hashlib.sha256(locked + sys.version.encode()).hexdigest()


def installed(kind: str) -> bool:
    """Whether .venv holds the locked set. `dev` holds all of `demo`."""
    if HALF_MADE.exists():
        return False
    for larger in ("dev", kind):
        stamp = VENV / f".{larger}-installed"
        if stamp.exists() and stamp.read_text() == fingerprint(larger):
            return True
    return False


def install(kind: str) -> int:
    """Create or complete .venv; 0 when it worked. An environment whose making was interrupted is made anew."""
    if HALF_MADE.exists() or not _runs(VENV / "bin" / "python"):
        if VENV.exists():
            print("Removing a half-made or broken .venv", flush=True)
            shutil.rmtree(VENV)
        print(f"Creating .venv with Python {sys.version.split()[0]} ({sys.executable})", flush=True)
        VENV.mkdir()
        HALF_MADE.touch()
        venv.create(VENV, with_pip=True, symlinks=True)
    HALF_MADE.touch()
    locked = ROOT / "requirements" / f"{kind}.txt"
    total = len(re.findall(r"^[a-z0-9]", locked.read_text(), re.MULTILINE))
    print(f"Installing up to {total} packages (log: {LOG.relative_to(ROOT)})", flush=True)
    command = [VENV / "bin" / "python", "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
    command += ["--progress-bar", "off", "--only-binary", ":all:", "--require-hashes", "-r", locked]
    started = time.monotonic()
    code = _run_with_progress([str(part) for part in command], total)
    if code != 0:
        print("\nInstalling failed. The last lines:", file=sys.stderr)
        for line in LOG.read_text(errors="replace").splitlines()[-8:]:
            print(f"  | {line}", file=sys.stderr)
        print(f"Log: {LOG}", file=sys.stderr)
        print(
            "Is a package registry reachable (pip's own settings count)? Then start again.", file=sys.stderr
        )
        return 1
    for stamp in VENV.glob(".*-installed"):
        stamp.unlink()
    # The version that decides is the environment's, which can be another than ours.
    code = subprocess.run([VENV / "bin" / "python", __file__, "--stamp", kind], check=False).returncode
    if code == 0:
        HALF_MADE.unlink()
        print(f"Installed in {time.monotonic() - started:.0f} s", flush=True)
    return code


def _runs(python: Path) -> bool:
    test = [str(python), "-c", "import sys, pip; assert sys.version_info >= (3, 12)"]
    try:
        return subprocess.run(test, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _run_with_progress(command: Sequence[str], total: int) -> int:
    """Run pip; its output goes to the log, a count of the packages to the terminal."""
    LOG.parent.mkdir(parents=True, exist_ok=True)
    terminal = sys.stdout.isatty()
    seen = 0
    with (
        LOG.open("w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process,
    ):
        assert process.stdout is not None  # noqa: S101 (for mypy: it is a pipe)
        for line in process.stdout:
            log.write(line)
            log.flush()
            if line.startswith("Collecting "):
                seen += 1
                text = f"  {seen} of {total}: {line.split()[1]}"
                if terminal:
                    print(f"\r{text:<70.70}", end="", flush=True)
                elif seen % 20 == 0:
                    print(text, flush=True)
            elif line.startswith("Installing collected packages"):
                print(f"{chr(13) if terminal else ''}{'  unpacking':<70}", flush=True)
    return process.returncode


def main(arguments: Sequence[str]) -> int:
    """See the module."""
    kind = arguments[-1]
    if arguments[0] == "--check":
        return 0 if installed(kind) else 1
    if arguments[0] == "--stamp":
        (VENV / f".{kind}-installed").write_text(fingerprint(kind))
        return 0
    (ROOT / ".data").mkdir(exist_ok=True)
    with (ROOT / ".data" / "install.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("Another start is installing; waiting for it", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        check = [str(VENV / "bin" / "python"), __file__, "--check", kind]
        if _runs(VENV / "bin" / "python") and subprocess.run(check, check=False).returncode == 0:
            return 0
        return install(kind)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        print("\nInterrupted; the next start makes .venv anew.", file=sys.stderr)
        sys.exit(130)
