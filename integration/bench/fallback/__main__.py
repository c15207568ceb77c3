# SPDX-License-Identifier: Apache-2.0
"""How long a fallback takes on a test host, by a soft reboot and by a full one, in one run.

Prints one JSON object. The fault is that of a service which fails until the userspace has started again. `reboot` is
the time from the moment when logind accepted the request until the agent runs again, `fallback` until the update is
verified: the longest of all repetitions, in seconds. ``good`` says whether each soft fallback took at most 5 s. An
agent that systemd stops before it has read the answer of logind does not know that moment; such a fallback is
repeated. It boots a test host, so it needs root; a minute.

    python -m integration.bench.fallback [--repeat N]
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from integration.bench.rest.__main__ import Quiet
from integration.demo import package_of
from integration.hosts import nodeagent_client as agent
from integration.hosts.container.container_host import Host
from integration.hosts.container.image import base_image
from integration.hosts.container.package import installed_image
from integration.hosts.errors import Unavailable

LIMIT = 5.0  # seconds, of the project
REPEAT = 3
MOST = 5  # fallbacks of a host in 24 hours
MODE = "/etc/flaky/mode"
POLICY = agent.policy(files={"/etc/flaky": ["Restart flaky.service"]})
KINDS = {"soft": ("fallback", 1), "full": ("never", 0)}


def one(host: Host, name: str, soft: int) -> tuple[float, float] | None:
    """Return the seconds of the reboot and of the whole fallback of an update that needs one, None if not known."""
    # The content differs each time: the unit notes for each in which start of the userspace it failed first.
    mode = f"fail {name} until-soft-reboot"
    agent.apply(host, agent.machine_config(name, files={MODE: mode}))
    entry = agent.wait_outcome(host, name)
    found = (entry["outcome"], entry["reboots"], entry["soft_reboots"])
    assert found == ("done-after-fallback", 1, soft), (found, entry)
    trail: dict[str, Any] = json.loads(host.run(["nodeagent", "history", "show", "--json"]).stdout)["trail"]
    before, after = trail["boots"]
    if before["accepted"] is None:
        return None
    # A boot of the kernel begins its own steady clock; the wall clock goes on.
    accepted = before["accepted"] + before["offset"]
    return after["seen"] + after["offset"] - accepted, after["last"] + after["offset"] - accepted


def measured(story: Quiet, setting: str, soft: int, repeat: int) -> dict[str, float]:
    """Return the longest times of some fallbacks on a host of their own, because a host makes five in 24 hours."""
    with Host(installed_image(base_image(story.say), package_of(story))) as host:
        agent.settings(host, {"reboot": {"soft": setting}})
        host.write(agent.POLICY, POLICY)
        host.boot()
        agent.wait_daemon(host)
        agent.apply(host, agent.machine_config("good", files={MODE: "ok"}))
        agent.wait_done(host, "good")
        times: list[tuple[float, float]] = []
        for number in range(MOST):
            if len(times) < repeat and (found := one(host, f"{setting}-{number}", soft)) is not None:
                times.append(found)
    assert len(times) == repeat, "too many fallbacks without a begin"
    reboot, fallback = (round(max(column), 1) for column in zip(*times, strict=True))
    return {"reboot": reboot, "fallback": fallback}


def run(repeat: int) -> dict[str, object]:
    story = Quiet()
    found = {kind: measured(story, setting, soft, repeat) for kind, (setting, soft) in KINDS.items()}
    return {"bench": "fallback", "repeat": repeat, **found, "good": found["soft"]["fallback"] <= LIMIT}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, choices=range(1, MOST + 1), default=REPEAT)
    options = parser.parse_args()
    try:
        print(json.dumps(run(options.repeat), indent=1))
    except Unavailable as error:
        print(f"fallback: cannot run here: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
