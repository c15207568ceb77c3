"""What the daemon costs while it waits: memory before and after many updates, processor time and wake-ups of a minute.

Prints one JSON object. ``good`` says whether both aims hold: at most 54 MiB after the updates, and below 0.1 % of a
processor. It boots a test host, so it needs root; some minutes. Memory is resident KiB: all of it, and the anonymous
part, which the kernel cannot drop and read again.

    python -m integration.bench.rest [--updates N] [--interpreter ORIGIN] [--environment NAME=VALUE]...
"""

from __future__ import annotations

import argparse
import json
import sys
import time

from integration.demo import Story, package_of
from integration.hosts import nodeagent_client as agent
from integration.hosts.container.container_host import Host
from integration.hosts.container.image import base_image
from integration.hosts.container.package import installed_image
from integration.hosts.errors import Unavailable

MAX_RSS = 54 * 1024  # KiB
MAX_CPU = 0.001  # of one processor
WATCHED = 60.0  # seconds
SETTLE = 5.0
PATH = "/etc/bench.conf"
DROP_IN = "/etc/systemd/system/nodeagent.service.d/bench.conf"


class Quiet(Story):
    """Writes to standard error: standard output has the result."""

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


def pid(host: Host) -> int:
    return int(host.unit("nodeagent.service", "MainPID")["MainPID"])


def memory(host: Host) -> dict[str, int]:
    """KiB of resident memory, and of its anonymous part."""
    fields = dict(line.split(":", 1) for line in host.read_text(f"/proc/{pid(host)}/status").splitlines())
    return {key: int(fields[name].split()[0]) for key, name in (("all", "VmRSS"), ("anonymous", "RssAnon"))}


def spent(host: Host) -> tuple[float, int]:
    """Seconds of processor time and voluntary context switches of all threads so far."""
    found = host.run(["sh", "-c", f"cat /proc/{pid(host)}/task/*/schedstat"]).stdout.splitlines()
    switches = host.run(["sh", "-c", f"grep -h ^voluntary /proc/{pid(host)}/task/*/status"]).stdout.split()
    return sum(int(line.split()[0]) for line in found) / 1e9, sum(int(each) for each in switches[1::2])


def update(host: Host, number: int) -> None:
    name = f"config-{number}"
    agent.apply(host, agent.machine_config(name, files={PATH: f"{number}\n"}))
    agent.wait_done(host, name)


def run(updates: int, interpreter: str, environment: list[str]) -> dict[str, object]:
    story = Quiet()
    with Host(installed_image(base_image(story.say), package_of(story, interpreter))) as host:
        agent.settings(host)
        if environment:
            host.write(DROP_IN, "".join(["[Service]\n", *(f"Environment={each}\n" for each in environment)]))
        host.write(agent.POLICY, agent.policy(files={PATH: ["None"]}))
        host.boot()
        agent.wait_daemon(host)
        before = pid(host)
        time.sleep(SETTLE)
        fresh = memory(host)
        update(host, 0)
        time.sleep(SETTLE)
        first = memory(host)
        started = time.monotonic()
        for number in range(1, updates + 1):
            update(host, number)
        took = time.monotonic() - started
        time.sleep(SETTLE)
        assert pid(host) == before, "the daemon was restarted"
        last = memory(host)
        cpu, switches = spent(host)
        time.sleep(WATCHED)
        cpu, switches = spent(host)[0] - cpu, spent(host)[1] - switches
    return {
        "bench": "rest",
        "updates": updates,
        "seconds_of_an_update": round(took / max(updates, 1), 2),
        "interpreter": interpreter or "quick",
        "environment": environment,
        "rss_kib": {"before an update": fresh, "after one update": first, "after all": last},
        "idle": {"cpu_share": round(cpu / WATCHED, 6), "wakeups_per_minute": round(switches * 60 / WATCHED)},
        "good": last["all"] <= MAX_RSS and cpu / WATCHED < MAX_CPU,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=300)
    parser.add_argument("--interpreter", default="", metavar="ORIGIN", help="as of make package (quick)")
    parser.add_argument("--environment", action="append", default=[], metavar="NAME=VALUE", help="of the daemon")
    options = parser.parse_args()
    try:
        print(json.dumps(run(options.updates, options.interpreter, options.environment), indent=1))
    except Unavailable as error:
        print(f"rest: cannot run here: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
