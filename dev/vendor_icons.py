"""Build the icon sprite of the pages from an unpacked `@tabler/icons` package.

Usage: python dev/vendor_icons.py PATH_TO_PACKAGE
Writes static/vendor/tabler-icons/sprite.svg with the icons of icons.txt beside it, each a <symbol> with the
icon's name as id.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "static/vendor/tabler-icons"
DRAWING = (
    'fill="none" stroke="currentColor" stroke-width="1.75" stroke-linecap="round" stroke-linejoin="round"'
)


def symbol(source: str, name: str) -> str:
    """Return the SVG text `source` as a <symbol> with the id `name`."""
    body = source[source.index(">", source.index("<svg")) + 1 : source.rindex("</svg>")]
    body = re.sub(r'<path stroke="none" d="M0 0h24v24H0z" fill="none"\s*/>', "", body)
    return f'<symbol id="{name}" viewBox="0 0 24 24" {DRAWING}>{"".join(body.split(chr(10)))}</symbol>'


def main(package: Path) -> None:
    """Write the sprite from the outline icons of `package`."""
    outline = package / "icons/outline"
    symbols = [
        symbol((outline / f"{name}.svg").read_text(), name)
        for name in (FOLDER / "icons.txt").read_text().split()
    ]
    (FOLDER / "sprite.svg").write_text(
        '<svg xmlns="http://www.w3.org/2000/svg">\n' + "\n".join(symbols) + "\n</svg>\n"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
