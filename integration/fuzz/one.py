# SPDX-License-Identifier: Apache-2.0
"""Fuzz one target until its time is over or an input fails: ``python -m integration.fuzz.one NAME SECONDS DIRECTORY``.

atheris ends the process itself: 0 after the time, another status with a failing input in DIRECTORY.
"""

from __future__ import annotations

import sys
from pathlib import Path

# Bytes of an input, seconds for one, and megabytes of memory.
MAX_INPUT = 4096
SLOW = 10
MEMORY = 1024


def main() -> None:
    import atheris

    name, seconds, directory = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    with atheris.instrument_imports(include=["nodeagent"]):
        from integration.fuzz.targets import TARGETS
    target = TARGETS[name]
    corpus = directory / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds):
        (corpus / f"seed-{number}").write_bytes(seed[:MAX_INPUT])
    limits = [f"-max_len={MAX_INPUT}", f"-timeout={SLOW}", f"-rss_limit_mb={MEMORY}", f"-max_total_time={seconds}"]
    atheris.Setup([name, *limits, f"-artifact_prefix={directory}/", str(corpus)], target.run)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
