# SPDX-License-Identifier: Apache-2.0
"""Write the JSON Schemas of all answers of the command line: `python packaging/schemas.py ROOT`, below ROOT/usr/share.

They are made of the declarations when the package is built, as the completion is.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent


def write(root: Path) -> list[Path]:
    """Return the written files. The same declarations give the same bytes."""
    # The environment has the package of its own checkout, which may be another one.
    sys.path.insert(0, str(SOURCE))
    from nodeagent.cli._schemas import DIRECTORY, documents

    directory = root / DIRECTORY
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for name, document in documents().items():
        path = directory / name
        path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        written.append(path)
    return written


if __name__ == "__main__":
    write(Path(sys.argv[1]))
