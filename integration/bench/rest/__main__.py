# SPDX-License-Identifier: Apache-2.0
"""What the daemon costs while it waits: memory after updates, processor time and wake-ups of a minute.

Prints one JSON object. ``good`` says whether the aims hold: after the start and one update of a small config at most
48 MiB, 85 MiB with a cluster, and below 0.1 % of a processor. They are for the interpreter of releases. The memory
after many updates is reported beside it. It boots a test host, so it needs root, and
with a cluster ``make cluster-tools``; some minutes. Memory is resident KiB: all of it, and the anonymous part, which
the kernel cannot drop and read again.

With ``--nodes``, it reports the peak of an agent that waits for the turn of its pool in a cluster of so many Nodes,
which is to be below 100 MiB.

    python -m integration.bench.rest [--cluster | --nodes N] [--files N] [--updates N] [--interpreter ORIGIN]
        [--environment NAME=VALUE]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack

from integration.bench.rest import with_cluster
from integration.cluster.tcp_proxy import INSIDE, listen_inside
from integration.demo import Story, package_of
from integration.hosts import nodeagent_client as agent
from integration.hosts.container.container_host import Host
from integration.hosts.container.image import base_image
from integration.hosts.container.package import installed_image
from integration.hosts.errors import Unavailable

MAX_RSS = 48 * 1024  # KiB
MAX_RSS_WITH_CLUSTER = 85 * 1024  # KiB
MAX_PEAK = 100 * 1024  # KiB
MAX_CPU = 0.001  # of one processor
WATCHED = 60.0  # seconds
# Seconds in which a node that waits for the turn of its pool reads all Nodes four times.
FOUR_CHECKS = 250.0
SETTLE = 5.0
LATE = 400.0
KINDS = (("all", "VmRSS"), ("anonymous", "RssAnon"), ("peak", "VmHWM"))
PATH = "/etc/bench.conf"
DROP_IN = "/etc/systemd/system/nodeagent.service.d/bench.conf"


class Quiet(Story):
    """Writes to standard error: standard output has the result."""

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


def pid(host: Host) -> int:
    return int(host.unit("nodeagent.service", "MainPID")["MainPID"])


def memory(host: Host) -> dict[str, int]:
    """KiB of resident memory, of its anonymous part, and the most that it was."""
    fields = dict(line.split(":", 1) for line in host.read_text(f"/proc/{pid(host)}/status").splitlines())
    return {key: int(fields[name].split()[0]) for key, name in KINDS}


def spent(host: Host) -> tuple[float, int]:
    """Seconds of processor time and voluntary context switches of all threads so far."""
    found = host.run(["sh", "-c", f"cat /proc/{pid(host)}/task/*/schedstat"]).stdout.splitlines()
    switches = host.run(["sh", "-c", f"grep -h ^voluntary /proc/{pid(host)}/task/*/status"]).stdout.split()
    return sum(int(line.split()[0]) for line in found) / 1e9, sum(int(each) for each in switches[1::2])


def update(host: Host, number: int, files: int) -> None:
    """``files`` are those beside the one that changes with each number."""
    name = f"config-{number}"
    more = {f"/etc/bench.d/{each}.conf": f"{each}\n" for each in range(files)}
    agent.apply(host, agent.machine_config(name, files={PATH: f"{number}\n", **more}))
    agent.wait_done(host, name)


def run(updates: int, interpreter: str, environment: list[str], *, files: int, cluster: bool) -> dict[str, object]:
    story = Quiet()
    image = installed_image(base_image(story.say), package_of(story, interpreter))
    with ExitStack() as stack:
        server, directory = stack.enter_context(with_cluster.api_server()) if cluster else (None, None)
        host = stack.enter_context(Host(image, read_only={INSIDE: directory} if directory else None))
        agent.settings(host, with_cluster.SETTINGS if cluster else None)
        if server is not None:
            host.write(with_cluster.KUBECONFIG, with_cluster.kubeconfig(server))
            listen_inside(host, server.port)
        if environment:
            host.write(DROP_IN, "".join(["[Service]\n", *(f"Environment={each}\n" for each in environment)]))
        policy = {path: ["None"] for path in (PATH, "/etc/bench.d")}
        host.write(agent.POLICY, agent.policy(files=policy))
        host.boot()
        agent.wait_daemon(host)
        before = pid(host)
        figures = {}
        time.sleep(SETTLE)
        figures["before an update"] = memory(host)
        update(host, 0, files)
        time.sleep(SETTLE)
        first = figures["after one update"] = memory(host)
        started = time.monotonic()
        for number in range(1, updates + 1):
            update(host, number, files)
        took = time.monotonic() - started
        time.sleep(SETTLE)
        assert pid(host) == before, "the daemon was restarted"
        figures["after all"] = memory(host)
        cpu, switches = spent(host)
        time.sleep(WATCHED)
        cpu, switches = spent(host)[0] - cpu, spent(host)[1] - switches
    most = MAX_RSS_WITH_CLUSTER if cluster else MAX_RSS
    return {
        "bench": "rest",
        "cluster": cluster,
        "files": files,
        "updates": updates,
        "seconds_of_an_update": round(took / max(updates, 1), 2),
        "interpreter": interpreter,
        "environment": environment,
        "rss_kib": figures,
        "idle": {"cpu_share": round(cpu / WATCHED, 6), "wakeups_per_minute": round(switches * 60 / WATCHED)},
        "good": first["all"] <= most and cpu / WATCHED < MAX_CPU,
    }


def run_waiting(nodes: int, interpreter: str) -> dict[str, object]:
    story = Quiet()
    image = installed_image(base_image(story.say), package_of(story, interpreter))
    with ExitStack() as stack:
        server, directory = stack.enter_context(with_cluster.api_server())
        controller = with_cluster.fill(server, nodes)
        host = stack.enter_context(Host(image, read_only={INSIDE: directory}))
        agent.settings(host, with_cluster.WAITING)
        host.write(with_cluster.KUBECONFIG, with_cluster.kubeconfig(server))
        # Another content than that of the config, so that there is an update.
        host.write("/etc/one", "0")
        host.write(agent.POLICY, agent.policy())
        listen_inside(host, server.port)
        host.boot()
        agent.wait_daemon(host)
        wait_for(lambda: controller.notes().get("reason", "").startswith("PoolOrder"))
        time.sleep(FOUR_CHECKS)
        found = memory(host)
    return {
        "bench": "rest",
        "nodes": nodes,
        "interpreter": interpreter,
        "rss_kib": found,
        "good": found["peak"] <= MAX_PEAK,
    }


def wait_for(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LATE
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError("the agent does not come so far")
        time.sleep(1.0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=300)
    parser.add_argument("--interpreter", default="testing", metavar="ORIGIN", help="as of make package (%(default)s)")
    parser.add_argument("--environment", action="append", default=[], metavar="NAME=VALUE", help="of the daemon")
    parser.add_argument("--files", type=int, default=0, metavar="N", help="of each config, which do not change")
    parser.add_argument("--cluster", action="store_true", help="with a Node, a lease and a drain of an API server")
    parser.add_argument(
        "--nodes", type=int, default=0, metavar="N", help="the peak in a cluster of so many, no updates"
    )
    options = parser.parse_args()
    try:
        if options.nodes:
            print(json.dumps(run_waiting(options.nodes, options.interpreter), indent=1))
            return 0
        found = run(
            options.updates, options.interpreter, options.environment, files=options.files, cluster=options.cluster
        )
        print(json.dumps(found, indent=1))
    except Unavailable as error:
        print(f"rest: cannot run here: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
