# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.mutants --seed 27 --count 300``: a random sample of decisions, each taken away once.

Each is changed in a copy of the tree, and the nearest tests of ring 1 run there. What they do not notice has survived:
a test is missing, or the decision makes no difference. One line of JSON for each, and the rate at the end. A sample
that was interrupted continues where it ended.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.decisions import Decision, changed, decisions
from tests.mutants.nearest import nearest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("core", "kube", "host")
SECONDS = 600
"""For the nearest tests of one decision. A decision whose lack hangs them was noticed."""


def sample(root: Path, folders: Sequence[str], seed: int, count: int) -> list[tuple[Path, Decision]]:
    """Return ``count`` decisions of ``folders`` below nodeagent, the same for the same tree and seed."""
    modules = [path for folder in folders for path in sorted((root / "nodeagent" / folder).rglob("*.py"))]
    every = [(path, each) for path in modules for each in decisions(path.read_text(encoding="utf-8"))]
    return random.Random(seed).sample(every, min(count, len(every)))


def _run(tree: Path, tests: Sequence[Path]) -> str:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", *map(str, tests)]
    process = subprocess.Popen(
        command, cwd=tree, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        code = process.wait(SECONDS)
    except subprocess.TimeoutExpired:
        return "killed (hangs)"
    finally:
        # The tests may have started a bus or a daemon.
        _end(process.pid)
        process.wait()
    return "survived" if code == 0 else "killed"


def _end(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def trial(tree: Path, module: Path, decision: Decision) -> str:
    """Return what the nearest tests in ``tree``, a copy, make of the change. ``module`` is a path below its root."""
    near, wider = nearest(tree, tree / module)
    if not near:
        return "survived (no test is near)"
    source = (tree / module).read_text(encoding="utf-8")
    (tree / module).write_text(changed(source, decision), encoding="utf-8")
    try:
        result = _run(tree, near)
        noticed = result == "survived" and bool(wider) and _run(tree, wider) != "survived"
    finally:
        (tree / module).write_text(source, encoding="utf-8")
    if noticed:
        # Of so many tests one may fail on a busy machine.
        passes = _run(tree, wider) == "survived"
        return "killed (by tests further away)" if passes else "survived (tests further away fail without the change)"
    return result


def _results(chosen: Sequence[tuple[Path, Decision]], jobs: int, known: set[str]) -> Iterator[dict[str, str]]:
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
        trees: SimpleQueue[Path] = SimpleQueue()
        for job in range(jobs):
            copy = Path(scratch, str(job))
            shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".venv", ".git", "build", "dist", ".*_cache"))
            trees.put(copy)

        def one(pair: tuple[Path, Decision]) -> dict[str, str] | None:
            module, decision = pair[0].relative_to(ROOT), pair[1]
            place = f"{module}:{decision.line} {decision.kind} {decision.start}"
            if place in known:
                return None
            tree = trees.get()
            try:
                result = trial(tree, module, decision)
            finally:
                trees.put(tree)
            was = pair[0].read_bytes()[decision.start : decision.end].decode()
            return {"place": place, "was": was, "becomes": decision.text, "result": result}

        with ThreadPoolExecutor(jobs) as pool:
            yield from filter(None, pool.map(one, chosen))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--seed", type=int, default=27)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=ROOT / "build/mutants.jsonl")
    parser.add_argument("folders", nargs="*", default=list(FOLDERS), help="folders below nodeagent")
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.touch()
    done = [json.loads(line) for line in options.out.read_text(encoding="utf-8").splitlines()]
    chosen = sample(ROOT, options.folders, options.seed, options.count)
    with options.out.open("a", encoding="utf-8") as out:
        for result in _results(chosen, options.jobs, {each["place"] for each in done}):
            done.append(result)
            line = json.dumps(result)
            out.write(f"{line}\n")
            out.flush()
            sys.stdout.write(f"{line}\n")
    survived = [each for each in done if each["result"].startswith("survived")]
    rate = 100 * len(survived) / max(1, len(done))
    sys.stdout.write(f"{len(survived)} of {len(done)} decisions survived ({rate:.1f} %)\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
