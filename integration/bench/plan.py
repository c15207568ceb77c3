"""How long a plan takes, against merely reading the same two texts as JSON in the same process.

Prints one JSON object. The limits are those of the project: at most twice the time of ``json.loads`` and a peak of at
most six times the input. Both are given the bytes of the two files, as they are read. Runs of both are interleaved and
the best of each counts, so that other work on the machine weighs on neither side. On a busy machine the shorter of the
two finds a quiet moment more easily: the median of the ratios of neighbouring runs is given beside it. ``good`` says
whether a form keeps both limits; a clock never fails a run.

Three forms of the same config: ``rendered`` as a cluster writes it (base64, empty objects), ``terse`` without the empty
objects, and ``percent``, with a sixth of the characters escaped. ``json.loads`` has less to do for the latter two, and
decoding the contents, which it does not do, takes as long as ever: undoing the escapes of one text alone takes two
thirds of the time of ``json.loads`` of both.

    python -m integration.bench.plan [--files N] [--runs N]
"""

from __future__ import annotations

import argparse
import base64
import json
import platform
import random
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable
from urllib.parse import quote

from nodeagent import domains
from nodeagent.core.config.parse import API_VERSION, KIND, Cache, parse
from nodeagent.core.plan.change import Plan
from nodeagent.core.plan.plan import make_plan
from nodeagent.core.plan.policy import Policy
from nodeagent.core.plan.reconcile import check_reconcilable

MAX_TIMES_JSON = 2.0
MAX_TIMES_INPUT = 6.0
CHANGED_EVERY = 20  # one file in so many differs between the two configs
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
    """``changed`` shifts the content of every ``CHANGED_EVERY``th file."""
    files = [
        form(f"/etc/app{index % 100}/{index:05}.conf", encode(index if index % CHANGED_EVERY else index + changed))
        for index in range(count)
    ]
    unit = {"name": "app.service", "enabled": True, "contents": "[Service]\nExecStart=/bin/true\n"}
    ignition = {"ignition": {"version": "3.4.0"}, "storage": {"files": files}, "systemd": {"units": [unit]}}
    spec = {"config": ignition, "kernelArguments": ["quiet"], "fips": False}
    return json.dumps({"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": spec}).encode()


def plan(old_text: bytes, new_text: bytes, policy: Policy) -> Plan:
    """All that `nodeagent plan` does between reading its inputs and printing."""
    cache = Cache()
    old, new = parse(old_text, cache=cache), parse(new_text, cache=cache)
    if problems := (*domains.validate(old, new), *check_reconcilable(old, new)):
        raise SystemExit(f"the benchmark made a bad config: {problems[0]}")
    return make_plan(old, new, policy)


def measure(encode: Encoder, form: Form, count: int, runs: int) -> dict[str, float | int]:
    old, new = config("old", count, 0, encode, form), config("new", count, count, encode, form)
    policy = domains.default_policy()
    changes = len(plan(old, new, policy).changes)  # and everything is warm
    loads, plans = [], []
    for _ in range(runs):
        start = time.perf_counter()
        json.loads(old)
        json.loads(new)
        middle = time.perf_counter()
        plan(old, new, policy)
        loads.append(middle - start)
        plans.append(time.perf_counter() - middle)
    ratios = [spent / load for spent, load in zip(plans, loads, strict=True)]
    return {
        "bytes": len(old) + len(new),
        "changes": changes,
        "json_ms": round(min(loads) * 1000, 1),
        "plan_ms": round(min(plans) * 1000, 1),
        "times_json": round(min(plans) / min(loads), 2),
        "median_times_json": round(statistics.median(ratios), 2),
    }


def peak(encode: Encoder, form: Form, count: int) -> float:
    """The most memory of a plan, the texts included, as a multiple of the texts. Tracing slows down what runs later."""
    old, new = config("old", count, 0, encode, form), config("new", count, count, encode, form)
    tracemalloc.start()
    plan(old, new, domains.default_policy())
    traced = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return round(1 + traced / (len(old) + len(new)), 2)


def main() -> int:
    parser = argparse.ArgumentParser(description="time and memory of a plan")
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=15)
    args = parser.parse_args()
    forms: dict[str, tuple[Encoder, Form]] = {
        "rendered": (in_base64, rendered),
        "terse": (in_base64, terse),
        "percent": (in_percent, terse),
    }
    results = {name: measure(*form, args.files, args.runs) for name, form in forms.items()}
    for name, form in forms.items():
        results[name]["times_input"] = peak(*form, args.files)
    python = platform.python_version()
    report = {"schema": "nodeagent/bench-plan/v1", "python": python, "files": args.files, "forms": results}
    for result in results.values():
        result["good"] = result["times_json"] <= MAX_TIMES_JSON and result["times_input"] <= MAX_TIMES_INPUT
    print(json.dumps(report, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
