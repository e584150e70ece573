"""python -m dev.faults [--seed N] [--count 1000]: exit code 1 where anything was lost, doubled or left over."""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
from pathlib import Path

from dev import throwaway
from dev.faults import run

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="dev.faults", description=run.__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))  # noqa: S311
    parser.add_argument("--count", type=int, default=1000, help="injections")
    parser.add_argument("--minutes", type=float, default=40.0, help="after which no more are injected")
    parser.add_argument("--keep", action="store_true", help="keep the folder with logs and database")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    folder = throwaway.make(ROOT / ".data" / "faults")

    def say(line: str) -> None:
        print(line, flush=True)

    say(f"seed {arguments.seed}, {arguments.count} injections, logs in {folder.path / 'logs'}")
    good = False
    try:
        outcome = run.run(folder.path, arguments.seed, arguments.count, say, most_s=arguments.minutes * 60)
        good = run.report(arguments.seed, outcome, say)
    finally:
        if good and not arguments.keep:
            shutil.rmtree(folder.path, ignore_errors=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
