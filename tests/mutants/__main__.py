# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.mutants --seed 27 --count 300``: a random sample of decisions, each taken away once.

In a copy of the tree each decision of the sample gets a switch. The tests run there once as they are, which shows the
ones that reach each decision; then these run without it (``server.py``). What they do not notice has survived: a test
is missing, or the decision makes no difference. A decision that is made while modules are imported, or that only a
child process reaches, has no switch in time: it is changed in the text, and the nearest test files run. One line of
JSON for each, and the rate at the end. A sample that was interrupted continues where it ended.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.mutants.decisions import Decision, changed, decisions, switched
from tests.mutants.nearest import nearest
from tests.mutants.server import SAMPLE, end_group

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("core", "kube", "host")
SECONDS = 600
"""For the nearest tests of one decision. A decision whose lack hangs them was noticed."""
PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist")

Pair = tuple[Path, Decision]


def sample(root: Path, folders: Sequence[str], seed: int, count: int) -> list[Pair]:
    """Return ``count`` decisions of ``folders`` below nodeagent, the same for the same tree and seed."""
    modules = [path for folder in folders for path in sorted((root / "nodeagent" / folder).rglob("*.py"))]
    every = [(path, each) for path in modules for each in decisions(path.read_text(encoding="utf-8"))]
    return random.Random(seed).sample(every, min(count, len(every)))


def _copy(scratch: Path, name: str) -> Path:
    ignored = shutil.ignore_patterns(".venv", ".git", "build", "dist", ".*_cache")
    return Path(shutil.copytree(ROOT, scratch / name, ignore=ignored))


def _serve(scratch: Path, chosen: Mapping[int, Pair], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield a result for each of ``chosen``, as ``server.py`` writes them."""
    tree = _copy(scratch, "switched")
    for module in {path for path, _ in options.sample}:
        numbered = {number: decision for number, (path, decision) in enumerate(options.sample) if path == module}
        text = switched(module.read_text(encoding="utf-8"), numbered)
        (tree / module.relative_to(ROOT)).write_text(text, encoding="utf-8")
    with (scratch / "sample.jsonl").open("w", encoding="utf-8") as out:
        for number, (module, _) in chosen.items():
            near = [str(test.relative_to(ROOT)) for test in nearest(ROOT, module)]
            out.write(f"{json.dumps({'number': number, 'near': near, 'seconds': options.seconds})}\n")
    if options.reached.exists():
        shutil.copy(options.reached, scratch / "tests.jsonl")
    results = scratch / "results.jsonl"
    results.touch()
    command = [*PYTEST, "-p", "tests.mutants.server", "--timeout", "60", *options.tests]
    environment = {**os.environ, SAMPLE: str(scratch / "sample.jsonl")}
    log = (ROOT / "build/mutants.log").open("w")
    with log, results.open(encoding="utf-8") as lines_of_results:
        process = subprocess.Popen(command, cwd=tree, env=environment, stdout=log, stderr=log, start_new_session=True)
        try:
            missing = len(chosen)
            ended = False
            while not ended:
                ended = process.poll() is not None
                for line in lines_of_results:
                    missing -= 1
                    yield json.loads(line)
                time.sleep(0 if ended else 1)
            shutil.copy(scratch / "tests.jsonl", options.reached)
            if missing:
                raise RuntimeError("the tests ended before the sample: see build/mutants.log")
        finally:
            end_group(process.pid)
            process.wait()


def _described(module: Path, decision: Decision) -> dict[str, str]:
    was = module.read_bytes()[decision.start : decision.end].decode()
    place = f"{module.relative_to(ROOT)}:{decision.line} {decision.kind} {decision.start}"
    return {"place": place, "was": was, "becomes": decision.text}


def _nearest(tree: Path, module: Path, decision: Decision) -> str:
    """Return what the nearest tests in ``tree``, a copy, make of the change. ``module`` is a path below its root."""
    source = (tree / module).read_text(encoding="utf-8")
    (tree / module).write_text(changed(source, decision), encoding="utf-8")
    command = [*PYTEST, "-x", *map(str, nearest(tree, tree / module))]
    process = subprocess.Popen(
        command, cwd=tree, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        return "survived" if process.wait(SECONDS) == 0 else "killed"
    except subprocess.TimeoutExpired:
        return "killed (hangs)"
    finally:
        end_group(process.pid)
        process.wait()
        (tree / module).write_text(source, encoding="utf-8")


def _results(chosen: Mapping[int, Pair], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="mutants-") as directory:
        scratch = Path(directory)
        plain = _copy(scratch, "plain")
        for result in _serve(scratch, chosen, options):
            module, decision = chosen[result["number"]]
            if result["result"] == "not reached":
                result["result"] = f"{_nearest(plain, module.relative_to(ROOT), decision)} (not reached)"
            yield result


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--seed", type=int, default=27)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--tests", nargs="+", default=["tests"], help="files or folders of tests (default: all)")
    parser.add_argument("--seconds", type=float, default=120.0, help="for the tests of one decision (default: 120)")
    parser.add_argument("--out", type=Path, default=ROOT / "build/mutants.jsonl")
    parser.add_argument("folders", nargs="*", default=list(FOLDERS), help="folders below nodeagent")
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.touch()
    options.reached = options.out.with_suffix(".reached")
    options.sample = sample(ROOT, options.folders, options.seed, options.count)
    done = [json.loads(line) for line in options.out.read_text(encoding="utf-8").splitlines()]
    known = {result["place"] for result in done}
    # As they are now: the tests of a survivor are written while the sample runs.
    described = [_described(*pair) for pair in options.sample]
    chosen = {n: pair for n, pair in enumerate(options.sample) if described[n]["place"] not in known}
    with options.out.open("a", encoding="utf-8") as out:
        for found in _results(chosen, options):
            result = described[found["number"]] | found
            done.append(result)
            line = json.dumps(result)
            out.write(f"{line}\n")
            out.flush()
            sys.stdout.write(f"{line}\n")
    survived = [result for result in done if result["result"].startswith("survived")]
    rate = 100 * len(survived) / max(1, len(done))
    sys.stdout.write(f"{len(survived)} of {len(done)} decisions survived ({rate:.1f} %)\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
