# SPDX-License-Identifier: Apache-2.0
"""One change and one failure, on a real systemd host made on the spot: `make demo`, or `python -m integration.demo`.

Shows what an operator would do, with the commands and their output, and checks what it shows. The exit status is 0 if
everything was as expected; without root, or without what it takes to boot a host, it says what is missing.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from integration.hosts import nodeagent_client as agent
from integration.hosts import requirements
from integration.hosts.container import container_host
from integration.hosts.container.configs import ANCHOR, CERTIFICATE, MIRRORED, REGISTRIES
from integration.hosts.container.container_host import Host
from integration.hosts.container.image import Image, base_image
from integration.hosts.container.package import installed_image
from integration.hosts.errors import HostRingError, Unavailable

PROJECT = Path(__file__).resolve().parent.parent
BUILD_TIMEOUT = 900.0  # seconds; the first build on a machine fetches 150 MB
UPDATE_TIMEOUT = 60.0

CONFIGS = "/root"

# The agent's own settings, to be quick: by default it watches a restarted unit for ten seconds.
SETTINGS = "actions: {settle: 2}\nreboot: {warn_users: 0}\n"

# What a change to the files of this host's own service asks for. Everything else is in the built-in policy.
POLICY = """\
nodeDisruptionPolicy:
  files:
  - path: /etc/flaky
    actions:
    - type: Restart
      restart: {serviceName: flaky.service}
"""


class Failed(Exception):
    """An expectation of the demo did not hold."""


class Story:
    """Prints what happens, in colour on a terminal only."""

    def __init__(self) -> None:
        self._colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    def say(self, text: str) -> None:
        print(text, flush=True)

    def chapter(self, title: str) -> None:
        self.say(f"\n{self._paint('1', f'== {title}')}")

    def command(self, argv: Sequence[str]) -> None:
        self.say(self._paint("36", f"   node# {' '.join(argv)}"))

    def output(self, text: str) -> None:
        if text.strip():
            self.say(textwrap.indent(text.rstrip(), "   "))

    def expect(self, what: str, holds: bool, found: object = "") -> None:
        """Says that it is so, or stops the demo."""
        if not holds:
            raise Failed(f"expected: {what}" + (f"; found: {found}" if found != "" else ""))
        self.say(f"   {self._paint('32', 'ok')}  {what}")

    def _paint(self, style: str, text: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self._colour else text


def machine_config(name: str, files: dict[str, str]) -> str:
    """A MachineConfig as a cluster would render it, in JSON, which is YAML."""
    entries = [
        {
            "path": path,
            "mode": 0o644,
            "overwrite": True,
            "contents": {"source": "data:;base64," + base64.b64encode(text.encode()).decode()},
        }
        for path, text in files.items()
    ]
    config = {
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {"name": name},
        "spec": {"config": {"ignition": {"version": "3.4.0"}, "storage": {"files": entries}}},
    }
    return json.dumps(config, indent=2) + "\n"


class Node:
    """The demo's host with nodeagent on it."""

    def __init__(self, host: Host, story: Story) -> None:
        self.host = host
        self.story = story

    def show(self, *argv: str, check: bool = True) -> None:
        """Run a command as root on the host and show both."""
        self.story.command(argv)
        done = self.host.run(argv, check=False, timeout=UPDATE_TIMEOUT)
        self.story.output(done.stdout + done.stderr)
        if check and done.returncode != 0:
            raise Failed(f"{' '.join(argv)}: exit status {done.returncode}")

    def ask(self, command: str) -> Any:
        return json.loads(self.host.run(["nodeagent", command, "--json"], check=False).stdout)

    def in_force(self, name: str) -> bool:
        status = self.ask("status")
        return bool(status["phase"] == "Idle" and status["current"] == name)

    def starts(self, unit: str) -> int:
        return sum(event.event == "start" for event in self.host.events(unit))


def require(story: Story, *more: str) -> None:
    """Install all programs, before anything is made. Image and package may be cached, but seldom both."""
    requirements.ensure(story.say, build=True, more=("package", "interpreter", *more))


def prepare(story: Story) -> Image:
    story.chapter("A host to try it on")
    require(story)
    image = base_image(story.say)
    container_host.sweep()
    return installed_image(image, package_of(story))


def package_of(story: Story, interpreter: str = "testing") -> Path:
    """The tar to install on a host, in a directory of its own for each origin of the interpreter."""
    story.say("   nodeagent's package: its own interpreter, libraries and units in one tar")
    if interpreter == "testing":
        story.say("   (with an interpreter for tests; make package builds the one for users, which takes longer)")
    out = PROJECT / "dist" / interpreter
    argv = [sys.executable, str(PROJECT / "packaging/build.py"), "--out", str(out), "--interpreter", interpreter]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as build:
        assert build.stdout is not None, "asked for"
        for line in build.stdout:
            story.output(line)
    if build.returncode != 0:
        raise Unavailable("the package could not be built; the reason is above")
    return max(out.glob("nodeagent-*.tar.gz"), key=lambda path: path.stat().st_mtime)


def boot(host: Host, story: Story) -> Node:
    host.write("/etc/nodeagent/config.d/50-demo.yaml", SETTINGS)
    host.write(agent.POLICY, POLICY)
    started = time.monotonic()
    host.boot()
    version = host.run(["systemctl", "--version"]).stdout.split()[1]
    story.say(f"   a container with systemd {version} booted in {time.monotonic() - started:.1f} s")
    node = Node(host, story)
    node.host.wait_for(lambda: host.is_active("nodeagent.service"), "nodeagent is up")
    return node


def configs(node: Node) -> None:
    """The desired config in three versions, each with one difference."""
    base = {REGISTRIES: node.host.read_text(REGISTRIES)}
    base |= {"/etc/flaky/mode": "ok\n"}
    trusted = base | {REGISTRIES: MIRRORED, ANCHOR: CERTIFICATE}
    # The stand-in service reads this file: it does not start any more until the host was rebooted.
    broken = trusted | {"/etc/flaky/mode": "fail until-reboot\n"}
    for name, files in (("worker-1", base), ("worker-2", trusted), ("worker-3", broken)):
        node.host.write(f"{CONFIGS}/{name}.yaml", machine_config(name, files), mode=0o600)


def first_start(node: Node) -> None:
    node.story.chapter("The first config: the host already is as it says")
    node.show("nodeagent", "apply", "--wait", f"{CONFIGS}/worker-1.yaml")
    node.story.expect("nothing was restarted because nodeagent is new", node.starts("crio.service") == 1)


def change(node: Node) -> None:
    story = node.story
    story.chapter("A change: a registry mirror and a CA certificate")
    story.say("   What would happen on this host? Before anything is touched, with the changed lines:")
    node.show("nodeagent", "plan", "--diff", f"{CONFIGS}/worker-2.yaml")
    story.say("   Apply it:")
    boot_id, starts = node.host.boot_id, node.starts("crio.service")
    node.show("nodeagent", "apply", "--wait", f"{CONFIGS}/worker-2.yaml")
    node.show("nodeagent", "status")
    story.expect("the new content is in place", node.host.read_text(REGISTRIES) == MIRRORED)
    once = node.starts("crio.service") == starts + 1
    story.expect("crio.service was restarted once, though both files ask for something", once)
    story.expect("the host was not rebooted", node.host.boots[-1].boot_id == boot_id)
    story.expect("worker-2 is the current config", node.in_force("worker-2"), node.ask("status"))


def cancelled(node: Node) -> None:
    story = node.story
    story.chapter("An update that an operator stops")
    story.say("   The update is put off to the night, and then cancelled:")
    node.show("nodeagent", "apply", "--at", "tomorrow 02:00", f"{CONFIGS}/worker-1.yaml")
    node.host.wait_for(lambda: node.ask("status")["reason"] == "Scheduled", "the update waits for its time")
    node.show("nodeagent", "status")
    node.show("nodeagent", "cancel")
    story.expect("worker-2 is still the current config", node.in_force("worker-2"), node.ask("status"))
    newest = node.ask("history")["updates"][0]
    story.expect("the update to worker-1 ended as cancelled", newest["outcome"] == "cancelled", newest)


def failure(node: Node) -> None:
    story, host = node.story, node.host
    story.chapter("A change whose restart fails")
    story.say("   flaky.service will not start with this config until the host was rebooted.")
    story.say("   The policy of this host names the action for a change of its file:")
    node.show("nodeagent", "plan", f"{CONFIGS}/worker-3.yaml")
    first = host.boot_id
    # Not with --wait: the host goes down under it.
    with host.rebooting(timeout=UPDATE_TIMEOUT):
        node.show("nodeagent", "apply", f"{CONFIGS}/worker-3.yaml")
    story.say(f"   The host rebooted: boot {first[:8]} became boot {host.boot_id[:8]}.")
    host.wait_for(lambda: node.in_force("worker-3"), "worker-3 is in force", timeout=UPDATE_TIMEOUT)
    messages = [f"{entry['PRIORITY']}  {entry['MESSAGE']}" for entry in failure_entries(host)]
    story.say("   The journal of that update, in both boots, with its priorities:")
    story.output("\n".join(messages))
    node.show("nodeagent", "status")
    story.expect("there was one reboot and not a second one", host.reboots == 1, host.reboots)
    story.expect("flaky.service runs with the new config", host.is_active("flaky.service"))
    story.expect("the host has what worker-3 says", node.ask("verify")["ok"])


def failure_entries(host: Host) -> list[dict[str, str]]:
    entries = host.journal("nodeagent.service")
    of_update = [entry for entry in entries if entry.get("NODEAGENT_UPDATE_ID")]
    (update,) = {one["NODEAGENT_UPDATE_ID"] for one in of_update if one.get("NODEAGENT_DESIRED") == "worker-3"}
    return [entry for entry in entries if entry.get("NODEAGENT_UPDATE_ID") == update and int(entry["PRIORITY"]) < 7]


def history(node: Node) -> tuple[int, int]:
    """Return the number of updates without a reboot, and the number of reboots."""
    node.story.chapter("What happened here")
    node.show("nodeagent", "history")
    ended = [update for update in node.ask("history")["updates"] if update["outcome"] != "cancelled"]
    updates = {update["to_name"]: update for update in ended}
    outcomes = {name: update["outcome"] for name, update in updates.items()}
    expected = {"worker-1": "done", "worker-2": "done", "worker-3": "done-after-fallback"}
    node.story.expect("two updates without a reboot, one after a fallback reboot", outcomes == expected, outcomes)
    quiet = sum(not update["reboots"] for update in updates.values())
    return quiet, sum(update["reboots"] for update in updates.values())


def save_report(story: Story, name: str, run: Callable[[Sequence[str]], str]) -> None:
    """Write the page of the newest update to dist/. ``run`` returns the output of a command."""
    argv = ("nodeagent", "report", "--html", "-")
    story.command(argv)
    path = PROJECT / "dist" / f"{name}-report.html"
    path.parent.mkdir(exist_ok=True)
    path.write_text(run(argv), encoding="utf-8")
    story.say(f"   where the time of the last update went, as a page to open in a browser: {path}")


def run(story: Story) -> None:
    story.say("nodeagent applies MachineConfigs with the least disruption that is safe. This shows it on a real host.")
    image = prepare(story)
    try:
        with Host(image) as host:
            node = boot(host, story)
            configs(node)
            first_start(node)
            change(node)
            cancelled(node)
            failure(node)
            quiet, reboots = history(node)
            save_report(story, "demo", lambda argv: host.run(argv, timeout=UPDATE_TIMEOUT).stdout)
    finally:
        image.close()
    story.say(
        f"\ndemo: done in {story.seconds:.0f} s: updates without a reboot: {quiet}, "
        f"fallback reboots: {reboots}, all verified"
    )


def main() -> int:
    story = Story()
    try:
        run(story)
    except Unavailable as error:
        print(f"demo: cannot run here: {error}", file=sys.stderr)
        return 2
    except (Failed, HostRingError) as error:
        print(f"demo: FAILED after {story.seconds:.0f} s: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
