# SPDX-License-Identifier: Apache-2.0
"""Make a picture of a report for the documentation: its head, the time line, and the comparison.

make demo-vm && python -m integration.browser.picture dist/demo-vm-report.html docs/report.png
"""

from __future__ import annotations

import sys
from pathlib import Path

from integration.browser.browser import opened

WIDTH = 1100


def main() -> int:
    source, target = map(Path, sys.argv[1:])
    with opened(print) as tab:
        tab.look(WIDTH)
        tab.open(source.read_text(encoding="utf-8"))
        # The tables below the drawings are left out.
        tab.picture(target, tab.run("return document.querySelector('section table, section:last-of-type').offsetTop"))
    print(f"wrote {target}, {target.stat().st_size >> 10} KiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
