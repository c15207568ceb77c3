# SPDX-License-Identifier: Apache-2.0
"""Measure how long it takes to read a config and to make a plan, compared with ``json.loads`` of the same bytes.

Prints one JSON object. The sizes are a usual rendered config (150 files of 1 kB) and the largest one that an API server
accepts (1,500 files, 1.5 MB). The limits: reading takes at most 4 times as long as ``json.loads`` in the same process
(5 times in the form ``percent``), and a plan, which reads two configs, needs at most 6 times the memory of its input,
the input included. Runs of both are interleaved, and the best of each counts, so that other load on the machine affects
both equally. ``good`` says whether a form keeps both limits; the clock never fails a run.

Three forms of the same config: ``rendered`` as a cluster writes it (base64, empty objects), ``terse`` without the empty
objects, and ``percent``, with a sixth of the characters escaped. ``json.loads`` has less to do for the last two, and it
does not decode the contents at all. In ``percent``, decoding takes half of the time although the loop is in C, because
each escape is three characters for one byte; so this form has a limit of its own.

    python -m integration.bench.plan [--files N ...] [--runs N]
"""

from __future__ import annotations

import argparse
import base64
import json
import platform
import random
import sys
import time
import tracemalloc
from collections.abc import Callable
from urllib.parse import quote

from nodeagent import domains
from nodeagent.core.config.parse import API_VERSION, KIND, parse
from nodeagent.core.plan.change import Plan
from nodeagent.core.plan.plan import make_plan
from nodeagent.core.plan.policy import Policy
from nodeagent.core.plan.reconcile import check_reconcilable

MAX_TIMES_JSON = 4.0
MAX_TIMES_JSON_PERCENT = 5.0
MAX_TIMES_INPUT = 6.0
# One file in so many differs between the two configs.
CHANGED_EVERY = 20
CONTENT_BYTES = 640  # makes about 1 kB of JSON for each file

Encoder = Callable[[int], str]
Form = Callable[[str, str], dict[str, object]]


def in_base64(seed: int) -> str:
    data = random.Random(seed).randbytes(CONTENT_BYTES)
    return "data:text/plain;charset=utf-8;base64," + base64.b64encode(data).decode()


def in_percent(seed: int) -> str:
    return "data:," + quote("".join(f"key{line} = value {seed} of {line}\n" for line in range(24)))


def rendered(path: str, source: str) -> dict[str, object]:
    contents = {"source": source, "verification": {}}
    return {"contents": contents, "group": {}, "mode": 0o644, "overwrite": True, "path": path, "user": {}}


def terse(path: str, source: str) -> dict[str, object]:
    return {"path": path, "mode": 0o644, "overwrite": True, "contents": {"source": source}}


def config(name: str, count: int, changed: int, encode: Encoder, form: Form = rendered) -> bytes:
    """Make a config of ``count`` files; ``changed`` shifts the content of every ``CHANGED_EVERY``th file."""
    files = [
        form(f"/etc/app{index % 100}/{index:05}.conf", encode(index if index % CHANGED_EVERY else index + changed))
        for index in range(count)
    ]
    unit = {"name": "app.service", "enabled": True, "contents": "[Service]\nExecStart=/bin/true\n"}
    ignition = {"ignition": {"version": "3.4.0"}, "storage": {"files": files}, "systemd": {"units": [unit]}}
    spec = {"config": ignition, "kernelArguments": ["quiet"], "fips": False}
    return json.dumps({"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": spec}).encode()


def plan(old_text: bytes, new_text: bytes, policy: Policy) -> Plan:
    """Do what `nodeagent plan` does between reading its files and printing."""
    old, new = parse(old_text), parse(new_text)
    if problems := (*domains.validate(old, new), *check_reconcilable(old, new)):
        raise SystemExit(f"the benchmark made a bad config: {problems[0]}")
    return make_plan(old, new, policy)


def measure(encode: Encoder, form: Form, count: int, runs: int) -> dict[str, float | int | bool]:
    old, new = config("old", count, 0, encode, form), config("new", count, count, encode, form)
    policy = domains.default_policy()
    # The first run imports modules and fills caches.
    changes = len(plan(old, new, policy).changes)
    works: dict[str, Callable[[], object]] = {
        "json": lambda: json.loads(new),
        "parse": lambda: parse(new),
        "plan": lambda: plan(old, new, policy),
    }
    best = dict.fromkeys(works, 60.0)
    for _ in range(runs):
        for name, work in works.items():
            start = time.perf_counter()
            work()
            best[name] = min(best[name], time.perf_counter() - start)
    limit = MAX_TIMES_JSON_PERCENT if encode is in_percent else MAX_TIMES_JSON
    times_json, times_input = best["parse"] / best["json"], peak(old, new, policy)
    return {
        "bytes": len(new),
        "changes": changes,
        **{f"{name}_ms": round(seconds * 1000, 1) for name, seconds in best.items()},
        "times_json": round(times_json, 2),
        "times_input": round(times_input, 2),
        "good": times_json <= limit and times_input <= MAX_TIMES_INPUT,
    }


def peak(old: bytes, new: bytes, policy: Policy) -> float:
    """Return the peak memory of a plan, its input included, as a multiple of its input."""
    tracemalloc.start()
    plan(old, new, policy)
    traced = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return 1 + traced / (len(old) + len(new))


def main() -> int:
    parser = argparse.ArgumentParser(description="time and memory of reading a config and of a plan")
    parser.add_argument("--files", type=int, nargs="+", default=[150, 1500])
    parser.add_argument("--runs", type=int, default=30)
    args = parser.parse_args()
    forms: dict[str, tuple[Encoder, Form]] = {
        "rendered": (in_base64, rendered),
        "terse": (in_base64, terse),
        "percent": (in_percent, terse),
    }
    sizes = {
        str(count): {name: measure(*form, count, args.runs) for name, form in forms.items()} for count in args.files
    }
    print(json.dumps({"schema": "nodeagent/bench-plan/v2", "python": platform.python_version(), "files": sizes}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
