"""One scenario in a process of its own: `python -m dev.bench.scenario NAME FOLDER` writes FOLDER/result.json."""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from pathlib import Path

from dev.fleet import Fleet


def main(name: str, folder: Path) -> int:
    """Start a fleet, measure, write the lines."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    module = importlib.import_module(f"dev.bench.{name}")
    with Fleet(folder) as fleet:
        os.environ.update(fleet.env)
        import django

        django.setup()
        lines = module.measure(fleet)
    (folder / "result.json").write_text(json.dumps([line.as_dict() for line in lines]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
